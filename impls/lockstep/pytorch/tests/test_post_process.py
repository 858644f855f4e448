"""Summaries of gradients, and the sum of regularization losses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.nn import Parameter

from lockstep import reference
from lockstep.pytorch import (
    TensorBoardRecorder,
    get_regularization_loss,
    mp_regularizer_wrapper,
    post_process_gradients,
)
from lockstep.pytorch.tests.test_larc import LARC, PAIRS, pairs_of
from lockstep.reference.post_process import SummaryRecord

ASKED = ["gradients", "gradient_norm", "global_gradient_norm", "larc_summaries"]


class Writer:
    """Records the calls of a writer of TensorBoard."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def add_scalar(self, *arguments):
        self.calls.append(arguments)

    add_histogram = add_scalar


def test_summaries_are_recorded_under_their_tags():
    (first, second), record = pairs_of((3,), (2,)), SummaryRecord()
    pairs = [first, (None, second[1])]
    post_process_gradients(
        pairs, [*ASKED, "variables"], 0.1, 1e-3, LARC, record, ["a:0", "b:0"]
    )
    assert set(record.scalars) == {
        "global_gradient_norm",
        "global_clipped_gradient_norm",
        "gradient_norm/a_0",
        "larc_clip_on/a_0",
        "larc_grad_update/a_0",
        "larc_final_lr/a_0",
    }
    assert set(record.histograms) == {"gradients/a_0", "variables/a_0"}
    assert record.scalars["global_clipped_gradient_norm"].item() == pytest.approx(1e-3)
    norm = record.scalars["global_gradient_norm"]
    torch.testing.assert_close(norm, first[0].norm())


def test_histograms_hold_zeros_where_gradients_are_not_finite():
    gradient, record = torch.tensor([1.0, float("nan"), float("-inf")]), SummaryRecord()
    pairs = [(gradient, Parameter(torch.ones(3)))]
    post_process_gradients(pairs, ["gradients"], 0.1, None, None, record)
    assert record.histograms["gradients/parameter_0"].tolist() == [1.0, 0.0, 0.0]


def test_a_writer_of_tensorboard_gets_tags_values_and_the_step():
    writer, pairs = Writer(), pairs_of((3,))
    names = ["gradients", "global_gradient_norm"]
    recorder = TensorBoardRecorder(writer, 7)
    post_process_gradients(pairs, names, 0.1, None, None, recorder)
    expected = ["global_gradient_norm", "gradients/parameter_0"]
    assert [(tag, step) for tag, _, step in writer.calls] == [
        (tag, 7) for tag in expected
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"names": ["a", "b"], "recorder": SummaryRecord()}, ValueError),
        ({"summaries": ["gradient_nrm"]}, ValueError),
        ({"summaries": "gradients"}, ValueError),
        ({"summaries": 3}, TypeError),
    ],
)
def test_summaries_that_cannot_be_recorded_are_refused(options, error):
    good = {"summaries": [], "lr": 0.1, "clip_gradients": None, "larc_params": None}
    with pytest.raises(error):
        post_process_gradients(PAIRS, **(good | options))


@pytest.fixture
def split() -> Iterator[list[tuple[torch.Tensor, torch.nn.Parameter]]]:
    """Return a gradient and a parameter as DTensors of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        gradient, weight = (distribute_tensor(torch.ones(2), mesh) for _ in range(2))
        yield [(gradient, torch.nn.Parameter(weight))]
    finally:
        dist.destroy_process_group()


def test_split_gradients_are_clipped(split):
    ((clipped, _),) = post_process_gradients(split, None, 0.1, 0.5, None)
    assert torch.allclose(clipped.to_local(), torch.full((2,), 0.125**0.5))


def test_a_total_of_penalties_can_be_differentiated():
    weight = Parameter(torch.tensor([1.0, 2.0]))
    l2 = mp_regularizer_wrapper(lambda w: w.square().sum() / 2)
    half = l2(Parameter(torch.ones(2).half()))
    total = get_regularization_loss(losses={"enc/w": l2(weight), "dec/w": half})
    total.backward()
    assert torch.equal(weight.grad, weight.detach())


@pytest.mark.parametrize("count", range(2, 30))
def test_penalties_are_added_in_the_order_of_tensorflow(count):
    generator = torch.Generator().manual_seed(count)
    sizes = torch.logspace(-2, 3, count).flip(0)
    penalties = torch.randn(count, generator=generator) * sizes
    losses = {f"w{k}": penalty for k, penalty in enumerate(penalties)}
    total = get_regularization_loss(losses=losses)
    as_arrays = {name: penalty.numpy() for name, penalty in losses.items()}
    assert total.item() == reference.get_regularization_loss(losses=as_arrays).item()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ValueError),
        ({"losses": [torch.ones(())], "scope": "a"}, ValueError),
        ({"losses": 3}, TypeError),
    ],
)
def test_losses_that_cannot_be_summed_are_refused(options, error):
    with pytest.raises(error):
        get_regularization_loss(**options)
