"""Lists of tensors in few launches."""

from __future__ import annotations

import torch

from lockstep.pytorch.tensors import foreach


def test_tensors_are_grouped_by_device_and_dtype() -> None:
    on_cpu, elsewhere = torch.zeros(2), torch.zeros(2, device="meta")
    half = torch.zeros(2, dtype=torch.float16, device="meta")
    assert foreach.alike([elsewhere]) == [[0]]
    assert foreach.alike([elsewhere, elsewhere]) == [[0, 1]]
    mixed = [elsewhere, on_cpu, half, elsewhere]
    assert foreach.alike(mixed) == [[0, 3], [1], [2]]
