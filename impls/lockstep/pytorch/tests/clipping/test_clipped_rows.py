"""Where a clipped row lands: at the limit or just below, and there it stays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.messages.clipping.variable_clipping import MARGINS
from lockstep.pytorch.clipping.clip_rows import clip_rows
from lockstep.pytorch.tests.clipping.models import clipping, rows

LIMIT = 0.3


def held(dtype: torch.dtype) -> float:
    """Return the limit as rows of ``dtype`` see it."""
    return LIMIT if dtype == torch.float64 else torch.tensor(LIMIT).item()


def long_rows(length: float, width: int, dtype: torch.dtype) -> Tensor:
    """Return [500, width] rows of about this length."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randn(500, width, generator=generator, dtype=torch.float64)
    return (drawn * length / drawn.norm(dim=1, keepdim=True)).to(dtype)


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("length", [0.31, 1.0, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("width", [1, 2, 4, 64])
def test_a_clipped_row_is_at_the_limit_or_just_below_and_stays(
    name: str, length: float, width: int
) -> None:
    dtype = getattr(torch, name)
    clipped, too_large = clip_rows(long_rows(length, width, dtype), [1], LIMIT)
    norms = clipped.double().norm(dim=1)
    assert too_large.all()
    assert norms.max() <= held(dtype)
    # Twice the margin: rounding takes as much again, at the most.
    assert norms.min() >= held(dtype) * (1 - 2 * MARGINS[name])
    again, still = clip_rows(clipped, [1], LIMIT)
    assert torch.equal(again, clipped)
    assert not still.any()


@pytest.mark.parametrize("axes", [[], [0], [1], [0, 1]], ids=str)
def test_over_any_axes_nothing_is_left_above(axes: list[int]) -> None:
    values = long_rows(3.0, 5, torch.float32)
    clipped, too_large = clip_rows(values, axes, LIMIT)
    again, still = clip_rows(clipped, axes, LIMIT)
    assert too_large.any()
    assert not still.any()
    assert torch.equal(again, clipped)


def test_squares_beyond_float32_are_clipped_all_the_same() -> None:
    clipped, _ = clip_rows(torch.tensor([[3e30, 4e30]]), [1], 5.0)
    torch.testing.assert_close(clipped, torch.tensor([[3.0, 4.0]]))


@pytest.mark.parametrize("gradient", [None, rows([1], [[0.0, 0.0]], height=2)])
def test_a_row_exactly_at_the_limit_is_not_clipped(gradient: Tensor | None) -> None:
    parameter = Parameter(torch.tensor([[5.0, 0.0], [3.0, -4.0]]))
    before = parameter.detach().clone()
    optimizer = clipping(parameter, [1], 5.0)
    parameter.grad = torch.zeros_like(before) if gradient is None else gradient
    optimizer.step()
    assert torch.equal(parameter, before)
    assert "; 0 of " in optimizer.last_step.reason


def test_a_complex_row_has_the_norm_of_its_magnitudes() -> None:
    table = Parameter(torch.tensor([[3 + 4j, 0j], [0.25 + 0j, 0.25j]]))
    table.grad = torch.zeros_like(table)
    clipping(table, [1], rate=0.0).step()
    norms = table.detach().abs().square().sum(1).sqrt()
    assert norms.tolist() == pytest.approx([1.0, 0.125**0.5], abs=1e-6)
    assert table[1].tolist() == [0.25 + 0j, 0.25j]
