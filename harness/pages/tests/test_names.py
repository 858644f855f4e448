"""The table of arguments is complete, and every difference in it is explained."""

from __future__ import annotations

from harness.pages.names import REASONS, arguments
from lockstep.registry import BACKENDS
from lockstep.tests.original_signatures import SIGNATURES


def test_each_argument_of_the_originals_is_on_each_backend() -> None:
    rows = arguments()
    assert {row.tool for row in rows} == set(SIGNATURES)
    assert {tuple(row.backends) for row in rows} == {tuple(BACKENDS)}
    originals = [row for row in rows if row.original is not None]
    assert [
        (row.tool, row.name) for row in originals if None in row.backends.values()
    ] == []


def test_every_difference_has_its_reason_and_every_reason_a_difference() -> None:
    assert {row.name for row in arguments() if row.differs} == set(REASONS)
