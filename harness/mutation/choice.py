"""Choose the cases and tests for a mutant: those that enter its function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.mutation.mutant import Mutant
from harness.mutation.nearest import SIGNATURES, Check, nearest_checks
from harness.mutation.reach import Reach, place_of

Killer = tuple[str, str]
"""Kind and name of a case or test that killed a mutant."""

ENOUGH = 60
"""Seconds of checks per mutant. No further check is started after that.

Hundreds of checks enter the code that all wrappers share. Most mutants are killed
early.
"""


@dataclass(frozen=True)
class Choice:
    """The checks for one mutant.

    Attributes:
        checks: in the order in which they are run.
        seconds: their time on the unchanged code; None if unknown.
    """

    checks: Sequence[Check]
    seconds: float | None = None


def choose(
    mutant: Mutant,
    reach: Reach,
    killers: Sequence[Killer] = (),
    enough: float = ENOUGH,
) -> Choice:
    """Return the cases and tests that enter the function of a mutant, cheapest first.

    Checks that killed other mutants of the module come first. Then follow one case of
    each mode, family and kind, the tests, and the other cases, up to ``enough``
    seconds. If nothing enters the function, the nearest checks are run.

    Code outside of function bodies may change a public signature, so the test of
    signatures comes first. Such code may also be a decorator that raises before the
    function is entered, so the nearest tests are added.

    A check may depend on a function that it does not enter, for example one whose
    result is cached. A mutant may then survive although the check would have killed it.
    The same happens if the check comes too late. So the reported share killed is never
    too large.
    """
    place = place_of(mutant)
    names = reach.entering(mutant.path, place)
    signatures = SIGNATURES.format(mutant.path.split("/")[2])
    first = [] if place.function else [Check("test", [signatures])]
    if not names:
        known = named_checks(killers)
        return Choice([*first, *known, *nearest_checks(mutant.path)])
    if not place.function:
        names |= _nearest_tests(mutant.path, reach)
    old = {name for _, name in killers}
    ordered = sorted(names, key=lambda name: (reach.seconds[name], name))
    known = named_checks((reach.kinds[name], name) for name in ordered if name in old)
    rest = [name for name in ordered if name not in old]
    cases = [name for name in rest if reach.kinds[name] == "case"]
    tests = [name for name in rest if reach.kinds[name] == "test"]
    early = _first_of_each(cases)
    late = [name for name in cases if name not in early]
    others = (("case", early), ("test", tests), ("case", late))
    return _short([*first, *known, *(Check(*each) for each in others)], reach, enough)


def named_checks(names: Iterable[Killer]) -> list[Check]:
    """Return the single cases, then the single tests, of pairs (kind, name)."""
    pairs = list(names)
    checks = [
        Check(kind, [name for each, name in pairs if each == kind])
        for kind in ("case", "test")
    ]
    return [check for check in checks if check.names]


def _nearest_tests(path: str, reach: Reach) -> set[str]:
    """Return the single tests of the nearest files."""
    checks = [check for check in nearest_checks(path) if check.kind == "test"]
    files = {name for check in checks for name in check.names}
    return {name for name in reach.seconds if name.split("::", 1)[0] in files}


def _short(checks: Iterable[Check], reach: Reach, enough: float) -> Choice:
    """Drop the checks that would start after ``enough`` seconds."""
    short, seconds = [], 0.0
    for check in checks:
        names = []
        for name in check.names:
            if seconds < enough:
                names.append(name)
                seconds += reach.seconds.get(name, 0.0)
        short += [Check(check.kind, names)] if names else []
    return Choice(short, seconds)


def _first_of_each(cases: Iterable[str]) -> list[str]:
    """Return the first case of each kind. A kind's names differ only in a number."""
    first: dict[str, str] = {}
    for name in cases:
        first.setdefault(name.rsplit("-", 1)[0], name)
    return list(first.values())
