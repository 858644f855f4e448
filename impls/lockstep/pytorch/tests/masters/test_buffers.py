"""Flat buffers of float32 masters."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.masters import buffers
from lockstep.pytorch.masters.buffers import (
    ALIGNMENT,
    FlatMasters,
    in_chunks,
    lay_out,
)


def test_only_values_on_the_cpu_are_read_before_they_are_clamped() -> None:
    weight = torch.zeros(3, dtype=torch.float16)
    flat = FlatMasters([weight], [torch.nn.Parameter(torch.zeros(3))])
    small, large = torch.tensor([1.0, -65504.0]), torch.tensor([1.0, -65520.0])
    assert flat.fits(small) and not flat.fits(large)
    elsewhere = torch.empty(3, device="meta")  # no value of it can be read
    assert not flat.fits(elsewhere)


def test_gradients_that_are_not_split_over_ranks_are_one_piece() -> None:
    weights = [torch.zeros(3, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)]
    flat = FlatMasters(weights, [torch.nn.Parameter(w.float()) for w in weights])
    assert len(flat.pieces) == 1
    flat.take([torch.ones(3), torch.ones(2)])
    assert flat.pieces[0].sum() == 5


def test_tensors_lie_one_after_the_other_at_aligned_places() -> None:
    sizes = [3, ALIGNMENT, ALIGNMENT + 1, 5]
    starts, size = lay_out(sizes)
    assert [start % ALIGNMENT for start in starts] == [0] * len(sizes)
    ends = [start + length for start, length in zip(starts, sizes, strict=True)]
    assert all(
        end <= start for end, start in zip(ends, [*starts[1:], size], strict=True)
    )


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_chunks_hold_every_tensor_and_every_place_once(chunk, monkeypatch) -> None:
    monkeypatch.setattr(buffers, "CHUNK", chunk)
    starts, size = lay_out([3, 70, 1, 1, 200, 5])
    chunks = in_chunks(starts, size)
    positions = [k for run, _ in chunks for k in range(run.start, run.stop)]
    places = [k for _, run in chunks for k in range(run.start, run.stop)]
    assert positions == list(range(len(starts)))
    assert places == list(range(size))
