"""Default and strict agree in every case of which no row says otherwise."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product

import pytest

from harness.parity import drivers, replay
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.command import plan_backend
from harness.parity.replay import WITHOUT_STRICT, agree
from harness.parity.row import Row
from harness.parity.tables import differences
from lockstep import registry

BACKENDS = [name for name in registry.BACKENDS if name not in WITHOUT_STRICT]
CASES = read_cases(GOLDEN)


def few() -> list[Case]:
    """Return a case of every third kind, and some that each difference concerns.

    At least one case of each family is alike in both modes on every backend.
    """
    firsts = {(case.family, case.kind): case for case in reversed(CASES)}.values()
    chosen, alike = {case.id for case in list(firsts)[::3]}, {c.id: c for c in CASES}
    for entry, backend in product(differences(), BACKENDS):
        concerned = [case.id for case in CASES if entry.concerns(case, backend)]
        chosen |= {*concerned[:6]}
        alike = {id_: case for id_, case in alike.items() if id_ not in concerned}
    chosen |= {*{case.family: case.id for case in alike.values()}.values()}
    return [case for case in CASES if case.id in chosen]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The rows of few cases. The command ``parity --default`` compares them all."""
    found: list[Row] = []
    with warnings.catch_warnings():
        # As in the processes of the command.
        warnings.simplefilter("ignore")
        for name in BACKENDS:
            mode = registry.BACKENDS[name].modes[0]
            plan, _ = plan_backend(few(), registry.BACKENDS[name], [mode], False)
            make_driver = partial(drivers.load, name, mode)
            found += [agree(case, make_driver) for case in plan[mode]]
    return found


@pytest.mark.slow
def test_default_and_strict_agree_on_every_backend(rows: list[Row]) -> None:
    assert {row.backend for row in rows} == set(BACKENDS)
    assert [r for r in rows if r.status == "failed"] == []


def test_something_of_every_family_is_compared_on_every_backend(
    rows: list[Row],
) -> None:
    compared = {(row.family, row.backend) for row in rows if row.status == "passed"}
    # The published rule of NovoGrad is another, see test_novograd.
    trained = {(row.family, row.backend) for row in rows if row.family != "novograd"}
    assert compared - {("novograd", name) for name in BACKENDS} == trained


def test_every_difference_is_one(rows: list[Row]) -> None:
    cases = {case.id: case for case in CASES}
    for entry in differences():
        concerned = [r for r in rows if entry.concerns(cases[r.id], r.backend)]
        measured = [row.max_ulp for row in concerned if row.max_ulp is not None]
        # Nothing is measured of a kind that only other modes can express.
        assert any(measured) or not measured, (entry.family, entry.kind)


def test_a_difference_that_is_not_listed_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_driver = partial(drivers.load, "reference", "numpy")
    (case,) = [c for c in CASES if c.id == "loss_scale_dynamic-p-018"]
    assert agree(case, make_driver).status == "skipped"
    monkeypatch.setattr(replay, "differences", list)
    row = agree(case, make_driver)
    assert row.status == "failed"
    assert "got 0.25" in row.reason
    assert "expected 1.0" in row.reason
