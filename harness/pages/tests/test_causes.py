"""Each tolerance above zero has a cause, and the page has its largest."""

from __future__ import annotations

from harness.pages.parity.causes import CAUSES, cause_of, causes_insert
from harness.pages.parity.matrices import tolerances


def test_the_reason_of_every_tolerance_has_a_cause_and_every_cause_a_tolerance() -> (
    None
):
    allowed = [entry for entry in tolerances() if entry["ulp"]]
    assert {cause_of(entry["reason"]) for entry in allowed} == set(CAUSES)


def test_a_reason_without_a_known_sign_has_no_cause() -> None:
    assert cause_of("only additions and multiplications") is None


def test_the_table_has_the_largest_distance_that_a_cause_allows() -> None:
    insert = causes_insert()
    for name in CAUSES:
        ulps = [e["ulp"] for e in tolerances() if cause_of(e["reason"]) == name]
        [row] = [line for line in insert.split("<tr>") if f">{name}<" in line]
        assert f">{max(ulps)} ULP<" in row
