"""Can the recorded cases fail? Every mutant is caught, and every case catches one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache

import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.replay import replay
from harness.parity.tests.mutants import MUTANTS
from harness.parity.tests.mutants.mutant import Mutant, planted

FAMILIES = sorted({family for mutant in MUTANTS for family in mutant.families})


@cache
def passing(family: str) -> tuple[Case, ...]:
    """The cases of a family that the unspoilt reference passes."""
    return tuple(c for c in read_cases(GOLDEN, [family]) if status(c) == "passed")


def status(case: Case) -> str:
    return replay(case, drivers.load("reference")).status


def catching(mutant: Mutant, family: str) -> Iterator[str]:
    """Yield the ids of the cases that fail while the mistake is planted."""
    cases = passing(family)
    with planted(mutant):
        yield from (case.id for case in cases if status(case) != "passed")


# The slow tests try them all.
@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            mutant, id=str(mutant), marks=[pytest.mark.slow] * (number % 8 > 0)
        )
        for number, mutant in enumerate(MUTANTS)
    ],
)
def test_every_family_that_claims_to_notice_a_mistake_does(mutant: Mutant) -> None:
    for family in mutant.families:
        with closing(catching(mutant, family)) as found:
            assert next(found, None), f"no case of {family} notices: {mutant}"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_notices_some_mistake(family: str) -> None:
    own = [mutant for mutant in MUTANTS if family in mutant.families]
    noticed = {id_ for mutant in own for id_ in catching(mutant, family)}
    silent = [case.id for case in passing(family) if case.id not in noticed]
    assert not silent, f"no mutant fails {silent}: they ask for another one"
