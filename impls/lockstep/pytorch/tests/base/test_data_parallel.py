"""Every tool on two ranks: as one process trains, or refused; on all ranks alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

from lockstep.messages.errors import LockstepError
from lockstep.pytorch.tests.base.parallel_cases import REFUSED, ROWS, Case, Net
from lockstep.pytorch.tests.ranks import on_two_ranks

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="this torch has no gloo",
)
STEPS = 4
LAYOUTS = "DDP", "FSDP2", "tensor parallel"
SINGLE = 1e-6
"""What another order of additions may change in weights of about 1."""
HALF = 2.0**-7
"""The same in bfloat16, where a sum of two ranks' terms is rounded to 8 bits."""


def batch(step: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(2, 3, generator=generator)


def train(case: Case, layout: str | None, rank: int) -> dict[str, Any]:
    """Train four steps: head b is absent from the second, the third overflows."""
    from lockstep.pytorch.tests.base import parallel_layouts as layouts

    model, called = layouts.laid_out(layout, case.dtype)
    named = list(model.named_parameters())
    parameters = [parameter for _, parameter in named]
    seen: dict[str, Any] = {"applied": [], "scales": [], "refused": ""}
    try:
        optimizer = case.make(named)
        scales = hasattr(optimizer, "scale_loss")
        for step in range(STEPS):
            optimizer.zero_grad()

            def loss_of(k: int, step: int = step) -> Tensor:
                inputs = batch(step, k).to(case.dtype)
                loss = called(inputs, 1.0, float(step != 1))
                if scales:
                    overflows = step == 2 and k == 1
                    loss = optimizer.scale_loss(loss * torch.inf if overflows else loss)
                return loss

            layouts.backward(layout, rank, parameters, loss_of)
            if case.process:
                pairs = [(parameter.grad, parameter) for parameter in parameters]
                optimizer.apply_gradients(case.process(pairs))
            else:
                optimizer.step()
            if hasattr(optimizer, "last_step"):
                seen["applied"].append(optimizer.last_step.applied)
            if scales:
                seen["scales"].append(float(optimizer.loss_scale))
    except LockstepError as error:
        seen["refused"] = str(error)
    seen["weights"] = {name: layouts.whole(parameter) for name, parameter in named}
    return seen


def train_all(rank: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return case -> layout -> what was seen; "" is the layout of one process."""
    return {
        name: {layout: train(case, layout or None, rank) for layout in ("", *LAYOUTS)}
        for row in ROWS.values()
        for name, case in row.cases.items()
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> list[dict]:
    return on_two_ranks(train_all, tmp_path_factory.mktemp("ranks"))


CELLS = [
    pytest.param(name, case, layout, cell, id=f"{name}-{layout}")
    for row in ROWS.values()
    for name, case in row.cases.items()
    for layout, cell in zip(LAYOUTS, row.cells, strict=True)
]


@pytest.mark.parametrize(("name", "case", "layout", "cell"), CELLS)
def test_two_ranks_do_as_the_table_says(seen, name, case, layout, cell) -> None:
    first, second = (rank[name] for rank in seen)
    alone, mine = first[""], first[layout]
    for key in ("applied", "scales", "refused"):
        assert mine[key] == second[layout][key]
    if cell == REFUSED:
        assert case.refusal in mine["refused"]
        assert_close(mine["weights"], dict(Net().named_parameters()), 0)
        return
    assert not mine["refused"], mine["refused"]
    assert (mine["applied"], mine["scales"]) == (alone["applied"], alone["scales"])
    assert_close(mine["weights"], second[layout]["weights"], 0)
    exact = layout == "DDP" or (layout == "FSDP2" and not case.takes_norms)
    inexact = SINGLE if case.dtype == torch.float32 else HALF
    assert_close(mine["weights"], alone["weights"], 0 if exact else inexact)


def assert_close(
    got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float
) -> None:
    assert got.keys() == expected.keys()
    for name, value in got.items():
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=tolerance, msg=lambda m, n=name: n + m
        )


def test_the_page_has_the_table() -> None:
    page = Path(__file__).parents[5] / "docs" / "data_parallel.md"
    lines = page.read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    cells = {row[0]: tuple(row[1:]) for row in rows if len(row) == 4}
    assert {name: row.cells for name, row in ROWS.items()}.items() <= cells.items()
    assert tuple(next(row for row in rows if len(row) == 4)[1:]) == LAYOUTS
