"""Gradients that are split over ranks, here over one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

from lockstep.errors import UnsupportedError
from lockstep.pytorch import TensorBoardRecorder, post_process_gradients


@pytest.fixture
def pairs() -> Iterator[list[tuple[torch.Tensor, torch.nn.Parameter]]]:
    """Return a gradient and a parameter as DTensors of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        gradient, weight = (distribute_tensor(torch.ones(2), mesh) for _ in range(2))
        yield [(gradient, torch.nn.Parameter(weight))]
    finally:
        dist.destroy_process_group()


class Writer:
    """Has the methods of a writer of TensorBoard, without an effect."""

    add_scalar = add_histogram = lambda *arguments, **named: None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"strict": True}, "strict=True"),
        ({"recorder": TensorBoardRecorder(Writer()), "names": ["w"]}, "a recorder"),
    ],
)
def test_only_the_default_processes_split_gradients(pairs, options, named) -> None:
    ((clipped, _),) = post_process_gradients(pairs, None, 0.1, 0.5, None)
    assert torch.allclose(clipped.to_local(), torch.full((2,), 0.125**0.5))
    with pytest.raises(UnsupportedError, match=named):
        post_process_gradients(pairs, None, 0.1, 0.5, None, **options)
