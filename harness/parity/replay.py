"""Replay one case on one backend and judge every quantity after every step.

What is right is, in :func:`judge`, the recording for a backend with ``strict``. One
without it has only its default: it must give the recording too, or, in a case to which
an entry of ``differences.toml`` applies, what is documented there. In :func:`agree`,
what is right for the default of a backend is what its ``strict`` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from dataclasses import replace as changed

import numpy as np

from harness.parity import drivers
from harness.parity.cases import CannotInterpretError, Case, State
from harness.parity.distance import Comparison, compare, divergence
from harness.parity.drivers import framework_rules
from harness.parity.drivers.protocol import Driver
from harness.parity.families import BY_FAMILY
from harness.parity.row import Against, Row, Status
from harness.parity.tables import (
    Entry,
    differences,
    excuse,
    excused_quantities,
    tolerance,
)
from lockstep import errors
from lockstep.registry import BACKENDS

WITHOUT_STRICT = frozenset(b.name for b in BACKENDS.values() if not b.has_strict)
"""Backends whose default is judged; the others are judged under strict."""

Replay = tuple[list[State], Exception | None]
"""The states of a replay, and the error if it ended in one."""
Judged = tuple[Row, Sequence[Comparison]]
"""The row of a case, and all comparisons behind it."""


@dataclass(frozen=True)
class Right:
    """What is right in a case, and how near to it a replay must be.

    Attributes:
        states: after each step; None if it only matters how the replay ends.
        error: the classes of error in which it ends; none if it ends without one.
        allowed: the tolerance.
        smallest: the absolute difference up to which two values are equal.
        excused: prefixes of quantities that do not count, with the reasons.
        against, difference: see :class:`Row`.
    """

    states: Sequence[State] | None
    error: tuple[type[BaseException], ...]
    allowed: Entry
    smallest: float = 0.0
    excused: Mapping[str, str] = field(default_factory=dict)
    against: Against = ""
    difference: str = ""


def judge(case: Case, backend: str, mode: str, device: str = "cpu") -> Judged:
    """Replay ``case`` and judge it: under strict, or else the default."""
    strict = backend not in WITHOUT_STRICT
    entry = None if strict else difference_of(case, backend, mode)
    with closing(drivers.load(backend, mode, strict, device)) as driver:
        return replay(case, driver, entry)


def replay(case: Case, driver: Driver, entry: Entry | None = None) -> Judged:
    """Replay ``case`` and compare it with the recording, and with what is documented.

    ``entry``: the listed difference that applies to the case, if any.
    """
    settled = settled_before(case, driver)
    if settled is not None:
        return settled, []
    try:
        replayed = replay_states(case, driver)
        judged = compared(case, driver, replayed, recording(case, driver))
        if entry is None:
            return judged
        as_documented = compared(
            case, driver, replayed, documented(case, driver, entry)
        )
    except CannotInterpretError as unknown:
        return row_of(case, driver, "failed", f"cannot interpret {unknown}"), []
    passed = judged[0].status == as_documented[0].status == "passed"
    return judged if passed else as_documented


def settled_before(case: Case, driver: Driver) -> Row | None:
    """Return the row of a case that cannot be replayed, else None."""
    if case.family not in BY_FAMILY:
        reason = f"cannot interpret the family {case.family!r}"
        return row_of(case, driver, "failed", reason)
    family = BY_FAMILY[case.family]
    # A key that the replay would ignore.
    unknown = set(case.inputs) - set(family.INPUTS)
    unknown |= set(case.expected) - set(family.EXPECTED)
    if unknown:
        reason = f"cannot interpret the key {min(unknown)!r}"
        return row_of(case, driver, "failed", reason)
    excused = excuse(case, driver.backend, driver.mode)
    return row_of(case, driver, "skipped", excused) if excused else None


def replay_states(case: Case, driver: Driver) -> Replay:
    """Replay ``case`` to its end, or until it raises an error."""
    states: list[State] = []
    try:
        for state in BY_FAMILY[case.family].replay(case, driver):
            # Copies, because a backend may change an array in its next step.
            states.append({name: np.array(value) for name, value in state.items()})
    except CannotInterpretError:
        raise
    except Exception as error:
        return states, error
    return states, None


def recording(case: Case, driver: Driver) -> Right:
    """Return the recorded states or error. A subclass of that error will do."""
    raises = case.expected.get("raises")
    return Right(
        states=None if raises else list(BY_FAMILY[case.family].expectations(case)),
        error=driver.expects(raises) if raises else (),
        allowed=tolerance(case, driver.backend),
        smallest=tolerance(case, driver.backend, "floor").size,
        excused=excused_quantities(case, driver.backend, driver.mode),
        against="recording",
    )


def difference_of(case: Case, backend: str, mode: str = "") -> Entry | None:
    """Return the listed difference that applies to a case.

    It has a rule if an entry that applies has one: the rule is that of an optimizer of
    the framework, inside the default of the reference.
    """
    entries = [e for e in differences() if e.concerns(case, backend, mode)]
    rule = next((e.rule for e in entries if e.rule), "")
    return changed(entries[0], rule=rule) if entries else None


def documented(case: Case, driver: Driver, entry: Entry) -> Right:
    """Return what is right in a case to which a listed difference applies.

    It is the default of the reference, the rule or the refusal that the entry names.
    """
    states, refusal = list[State](), None
    if entry.refuses:
        refusal = getattr(errors, entry.refuses)()
    else:
        rule = getattr(framework_rules, entry.rule) if entry.rule else None
        with closing(
            rule() if rule else drivers.load("reference", strict=False)
        ) as made:
            states, refusal = replay_states(case, made)
    if not isinstance(refusal, errors.LockstepError | None):
        # Another error is no refusal: two replays that are broken alike are not right.
        raise CannotInterpretError(f"what is documented: {outcome(refusal)}")
    backend, by_rule = driver.backend, bool(entry.rule)
    return Right(
        states,
        error=() if refusal is None else (type(refusal),),
        allowed=tolerance(case, backend, "rule" if by_rule else "tolerance"),
        smallest=tolerance(case, backend, "floor").size if by_rule else 0.0,
        excused=excused_quantities(case, backend, driver.mode, by_rule),
        against="refusal" if refusal else "framework rule" if by_rule else "reference",
        difference=entry.anchor,
    )


def agree(case: Case, make_driver: Callable[[bool], Driver]) -> Row:
    """Replay ``case`` in strict and in default mode; ``make_driver`` takes ``strict``.

    A case that may differ in any way is measured, too, and skipped with the reason.
    """
    with closing(make_driver(True)) as driver:
        settled = settled_before(case, driver)
        if settled is not None:
            return settled
        try:
            states, error = replay_states(case, driver)
        except CannotInterpretError as unknown:
            return row_of(case, driver, "failed", f"cannot interpret {unknown}")
        raises = case.expected.get("raises")
        expected = driver.expects(raises) if raises else ()
    if error is not None and not isinstance(error, expected):
        # If both modes fail in the same way, that is not agreement.
        return row_of(case, driver, "failed", f"under strict {outcome(error)}")
    limit = _between_modes(case, driver.backend)
    strict = Right(states, () if error is None else (type(error),), limit)
    with closing(make_driver(False)) as driver:
        row, _ = compared(case, driver, replay_states(case, driver), strict)
    if row.max_ulp is None:  # Both refuse it.
        row = changed(row, max_ulp=0.0, max_ulp_raw=0.0)
    if np.isinf(limit.ulp):
        reason = f"differs by design: {limit.reason}"
        row = changed(row, status="skipped", reason=reason)
    return row if row.status == "failed" else changed(row, first_divergence=None)


def _between_modes(case: Case, backend: str) -> Entry:
    """Return the largest allowed distance between the modes of a backend in a case."""
    named = [entry for entry in differences() if entry.concerns(case, backend)]
    limits = [tolerance(case, backend, "between_modes"), *named]
    return max(limits, key=lambda limit: limit.ulp)


def compared(case: Case, driver: Driver, replayed: Replay, right: Right) -> Judged:
    """Compare a replay with what is right: how it ended, then every quantity."""
    states, error = replayed
    row = changed(
        row_of(case, driver, "passed"),
        against=right.against,
        difference=right.difference,
    )
    expected = right.states
    ends_right = isinstance(error, right.error) if right.error else error is None
    # Without an error both took every step.
    count_differs = error and expected is not None and len(states) != len(expected)
    if not ends_right or count_differs:
        names = " or ".join(kind.__name__ for kind in right.error) or "no error"
        reason = f"expected {names}, got {outcome(error)} after {len(states)} steps"
        far = changed(row, status="failed", reason=reason)
        return changed(far, max_ulp=np.inf, max_ulp_raw=np.inf), []
    if expected is None:
        return row, []
    if not any(expected) and (error or "raises" in case.expected):
        # There is nothing to compare but the refusal, or that there is none now.
        return row, []
    everything = list(compare(case, states, expected, right.smallest))
    left, notes = everything, []
    for start, why in right.excused.items():
        rest = [c for c in left if not c.quantity.startswith(start)]
        if len(rest) < len(left):
            notes.append(f"without {start.rstrip('/')}: {why}")
        left = rest
    row = changed(row, reason="; ".join(notes))
    return verdict(row, left, right.allowed), everything


def verdict(row: Row, compared: Sequence[Comparison], allowed: Entry) -> Row:
    """Complete a row. It passes if no distance is beyond the tolerance."""

    def size(comparison: Comparison) -> float:
        return comparison.carried if allowed.carried else comparison.distance.ulp

    beyond = next((c for c in compared if not size(c) <= allowed.ulp), None)
    first = next((c for c in compared if c.distance.ulp > 0), None)
    failure = "" if compared else "nothing was recorded that could be compared"
    if beyond is not None:
        where = divergence(beyond)
        failure = (
            f"{beyond.quantity} after step {beyond.step + 1}, element {where.index}: "
            f"got {where.got}, expected {where.expected}; {beyond.distance.ulp:g} ULP, "
            f"allowed {allowed.ulp:g} ({allowed.reason})"
        )
    return changed(
        row,
        status="failed" if failure else "passed",
        reason=failure or row.reason,
        max_ulp=float(max((c.distance.ulp for c in compared), default=np.inf)),
        max_ulp_raw=float(max((c.distance.raw for c in compared), default=np.inf)),
        first_divergence=None if first is None else divergence(first),
    )


def row_of(case: Case, driver: Driver, status: Status, reason: str = "") -> Row:
    """Return the row of a case that was not compared."""
    fields = (case.id, case.family, case.kind, driver.backend, driver.mode)
    return Row(*fields, status, reason)


def outcome(error: Exception | None) -> str:
    """Return in words how a replay ended."""
    return "no error" if error is None else f"{type(error).__name__}: {error}"
