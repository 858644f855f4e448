"""What is run for a mutant: the cases and tests that enter its function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.mutation.mutant import Mutant
from harness.mutation.nearest import SIGNATURES, Check, nearest_checks
from harness.mutation.reach import Reach, place_of

__all__ = ["ENOUGH", "Choice", "Killer", "choose", "named_checks"]

Killer = tuple[str, str]
"""Kind and name of a case or test that killed a mutant."""

ENOUGH = 60
"""Seconds of checks after which no further one is begun for a mutant.

Hundreds of checks enter what all wrappers share, and most mutants are killed early.
"""


@dataclass(frozen=True)
class Choice:
    """What is run for a mutant.

    Attributes:
        checks: in their order.
        seconds: they take on the unchanged code; None if that is not known.
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

    Before all others come those that killed other mutants of the module. Then follow
    one case of each mode, family and kind, the tests, and the other cases, until they
    have taken ``enough`` seconds. If nothing enters the function, the nearest checks
    are run.

    What stands outside of the body of a function may change the signature that users
    see, so the test of signatures comes first. It may also decorate the function with
    what raises before it is entered, so the nearest tests are among the others.

    A check may depend on a function that it does not enter, such as one whose result
    is kept. Then a mutant survives that the check would have killed, as it does if the
    check comes too late. So the share that is killed is never too large.
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
    """Leave out what would begin after so many seconds."""
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
    """Return the first case of each kind, whose names differ in their numbers only."""
    first: dict[str, str] = {}
    for name in cases:
        first.setdefault(name.rsplit("-", 1)[0], name)
    return list(first.values())
