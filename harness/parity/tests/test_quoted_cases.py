"""What docs/differences.md quotes is a difference between strict and the default."""

from __future__ import annotations

from contextlib import closing
from functools import cache

import pytest

from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import Entry, entries
from harness.parity.replay import replay

SAME_IN_BOTH = {
    "agn-race",
    "backoff-race",
    "backoff-window",
    "larc-adamw",
    "masters-absent",  # The only gradient is absent, and both fail in one class.
    "multitask-clip-nonfinite",
    "policies-poly",
    "row-clip-absent",
}
"""Sections whose cases pass in both modes."""


@cache
def recorded() -> list[Case]:
    return [case for folder in (GOLDEN, FOUND) for case in read_cases(folder)]


def quoted(entry: Entry) -> set[str]:
    return {q.case for q in entry.recorded if q.backend == "reference"}


@pytest.mark.parametrize(
    "entry", [e for e in entries() if quoted(e)], ids=lambda e: e.anchor
)
def test_a_quoted_case_is_strict_and_only_that(entry: Entry) -> None:
    cases = [case for case in recorded() if case.id in quoted(entry)]
    statuses = {}
    for strict in (True, False):
        with closing(drivers.load("reference", strict=strict)) as driver:
            statuses[strict] = {replay(case, driver).status for case in cases}
    assert statuses[True] == {"passed"}
    assert ("failed" in statuses[False]) == (entry.anchor not in SAME_IN_BOTH)
