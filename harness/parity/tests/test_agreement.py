"""Default and strict agree in every recorded case that no row says otherwise of."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from harness.parity import agreement
from harness.parity.agreement import agree, differences
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.command import Request, run_parity
from harness.parity.row import Row
from lockstep import registry
from lockstep.reference.host import NumpyHost

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    faces = {name: backend.faces[0] for name, backend in registry.BACKENDS.items()}
    request = Request(tuple(faces), tuple(faces.values()), default=True)
    return run_parity(request, lambda row: None).rows


def test_default_and_strict_agree_on_every_backend(rows: list[Row]) -> None:
    assert {row.backend for row in rows} == set(registry.BACKENDS)
    assert [
        f"{r.id} {r.backend}: {r.reason}" for r in rows if r.status == "failed"
    ] == []


def test_every_difference_is_one(rows: list[Row]) -> None:
    cases = {case.id: case for case in read_cases(GOLDEN)}
    for entry in differences():
        concerned = [r for r in rows if entry.concerns(cases[r.id], r.backend)]
        measured = [row.max_ulp for row in concerned if row.max_ulp is not None]
        # Nothing is measured of a kind that only other faces can express.
        assert any(measured) or not measured, (entry.family, entry.kinds)


def test_every_difference_is_a_row_of_the_catalogue() -> None:
    catalogue = (DOCS / "differences.md").read_text("utf-8")
    anchors = set(re.findall(r"\{ #([\w-]+) \}", catalogue))
    assert {entry.anchor for entry in differences()} <= anchors


def test_a_difference_that_is_not_listed_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_host = partial(registry.host, "reference", "numpy")
    (case,) = [c for c in read_cases(GOLDEN) if c.id == "loss_scale_dynamic-p-018"]
    assert agree(case, make_host).status == "skipped"
    monkeypatch.setattr(agreement, "differences", list)
    row = agree(case, make_host)
    assert row.status == "failed"
    assert "by default 0.25" in row.reason
    assert "under strict 1.0" in row.reason


def test_two_modes_that_are_broken_alike_do_not_agree() -> None:
    class Broken(NumpyHost):
        def optimizer(self, *args: object) -> object:
            raise AttributeError("nothing is here")

    (case,) = [c for c in read_cases(GOLDEN) if c.id == "multitask-p-000"]
    row = agree(case, lambda strict: Broken("numpy", registry.load("reference")))
    assert row.status == "failed"
    assert "nothing is here" in row.reason
