"""Flat buffers of float32 masters."""

from __future__ import annotations

import torch

from lockstep.pytorch.masters.buffers import FlatMasters


def test_only_values_on_the_cpu_are_read_before_they_are_clamped() -> None:
    weight = torch.zeros(3, dtype=torch.float16)
    flat = FlatMasters([weight], [torch.nn.Parameter(torch.zeros(3))])
    small, large = torch.tensor([1.0, -65504.0]), torch.tensor([1.0, -65520.0])
    assert flat.fits(small) and not flat.fits(large)
    elsewhere = torch.empty(3, device="meta")  # no value of it can be read
    assert not flat.fits(elsewhere)
