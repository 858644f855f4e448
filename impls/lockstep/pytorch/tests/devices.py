"""Where a test runs: on the CPU, and on a GPU if there is one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["NoHostReads", "no_syncs", "on_devices"]

on_devices = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(
                    not torch.cuda.is_available(), reason="needs a CUDA GPU"
                ),
            ],
        ),
    ],
)


@contextmanager
def no_syncs(device: str) -> Iterator[None]:
    """Raise in the block for whatever waits for a GPU; without one, do nothing."""
    if device == "cpu":
        yield
        return
    with warnings.catch_warnings():
        # That the mode is a prototype.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class NoHostReads(TorchDispatchMode):
    """Raise for every number that Python asks a tensor for."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a number was read from a tensor")
        return operation(*args, **(kwargs or {}))
