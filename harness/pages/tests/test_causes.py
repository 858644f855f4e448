"""Each tolerance above zero has a cause, and the page has its largest."""

from __future__ import annotations

from harness.pages.parity.causes import CAUSES, cause_of
from harness.pages.parity.matrices import tolerances


def test_the_reason_of_every_tolerance_has_a_cause_and_every_cause_a_tolerance() -> (
    None
):
    allowed = [entry for entry in tolerances() if entry["ulp"]]
    assert {cause_of(entry["reason"]) for entry in allowed} == set(CAUSES)
