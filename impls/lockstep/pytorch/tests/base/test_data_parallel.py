"""Every tool on two ranks: as one process trains, or refused; on all ranks alike."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep import pytorch as ls
from lockstep.interface import EXPORTS
from lockstep.pytorch.tests.base.parallel_cases import TOLERANCES, Net, assert_close
from lockstep.pytorch.tests.base.parallel_rows import CASES, PARALLEL, ROWS
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks
from lockstep.pytorch.wrapper import OptimizerWrapper

pytestmark = needs_gloo
LAYOUTS = "DDP", "FSDP2", "tensor parallel"


def train_all(rank: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return case -> layout -> what was seen; "" is the layout of one process."""
    from lockstep.pytorch.tests.base.parallel_layouts import train

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
    if cell == "refused":
        assert case.refusal in mine["refused"]
        assert_close(mine["weights"], dict(Net().to(case.dtype).named_parameters()), 0)
        return
    assert not mine["refused"], mine["refused"]
    assert (mine["applied"], mine["scales"]) == (alone["applied"], alone["scales"])
    assert_close(mine["weights"], second[layout]["weights"], 0)
    exact = layout == "DDP" or (layout == "FSDP2" and not case.takes_norms)
    tolerance = 0 if exact else TOLERANCES[case.dtype]
    assert_close(mine["weights"], alone["weights"], tolerance)


def test_every_wrapper_has_a_row() -> None:
    public = {name: getattr(ls, name) for name in EXPORTS}
    wrappers = [
        name
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, OptimizerWrapper)
    ]
    rows = " ".join(ROWS)
    assert len(wrappers) >= 5 and [name for name in wrappers if name not in rows] == []


def test_a_row_has_cases_unless_a_cell_refers_to_the_page() -> None:
    plain = [n for n, cells in PARALLEL.items() if {*cells} <= {"right", "refused"}]
    assert plain == [name for name in PARALLEL if name in CASES]
    assert set(CASES) <= set(PARALLEL)
