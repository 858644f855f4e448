"""Replay one case on one backend and judge every quantity after every step.

A backend with ``strict`` is compared with the recording. One without it has only its
default: :func:`judge` compares this with the recording too, and in a case to which an
entry of ``differences.toml`` applies, with the default of the reference or with the
framework's own rule. On a backend with it, :func:`agree` compares the default with
strict: a case without a listed difference must give the same bits. The entries
``between_modes`` of ``tolerances.toml`` allow exceptions, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace as changed
from itertools import zip_longest

import numpy as np

from harness.parity import drivers
from harness.parity.cases import CannotInterpretError, Case
from harness.parity.distance import (
    Comparison,
    Distance,
    State,
    compare,
    distance,
    divergence,
)
from harness.parity.drivers import framework_rules
from harness.parity.drivers.protocol import Driver
from harness.parity.families import BY_FAMILY
from harness.parity.row import Against, Row, Status
from harness.parity.tables import (
    Difference,
    Tolerance,
    differences,
    excuse,
    excused_quantities,
    floor,
    tolerance,
)
from lockstep import errors
from lockstep.registry import BACKENDS

WITHOUT_STRICT = frozenset(b.name for b in BACKENDS.values() if not b.has_strict)
"""Backends whose default is judged; the others are judged under strict."""

Replay = tuple[list[State], Exception | None]
"""The states of a replay, and the error if it ended in one."""


def judge(case: Case, backend: str, mode: str, device: str = "cpu") -> Row:
    """Replay ``case`` and judge it: under strict, or else the default.

    It must give the recording. If a difference of the default is listed, it must give
    what is documented, which may be the recording all the same.
    """
    strict = backend not in WITHOUT_STRICT
    with closing(drivers.load(backend, mode, strict, device)) as driver:
        entry = None if strict else difference_of(case, backend, mode)
        return replay(case, driver, entry)


def replay(case: Case, driver: Driver, entry: Difference | None = None) -> Row:
    """Replay ``case`` and compare it with the recording, and with what is documented.

    ``entry``: the listed difference that applies to the case, if any.
    """
    settled = settled_before(case, driver)
    if settled is not None:
        return settled
    try:
        replayed = replay_states(case, driver)
        row = changed(_as_recorded(case, driver, *replayed), against="recording")
        if entry is None:
            return row
        right = _as_documented(case, driver, *replayed, entry)
    except CannotInterpretError as unknown:
        return row_of(case, driver, "failed", f"cannot interpret {unknown}")
    return row if row.status == right.status == "passed" else right


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


def recorded(case: Case) -> Iterator[State]:
    """Yield the recorded states."""
    states: Iterator[State] = BY_FAMILY[case.family].expectations(case)
    return states


def outcome(error: Exception | None) -> str:
    """Return in words how a replay ended."""
    return "no error" if error is None else f"{type(error).__name__}: {error}"


def _as_recorded(
    case: Case, driver: Driver, states: list[State], error: Exception | None
) -> Row:
    if "raises" in case.expected:
        # The recorded exception class or a subclass.
        name = case.expected["raises"]
        if isinstance(error, driver.expects(name)):
            return row_of(case, driver, "passed")
        got = "nothing was raised" if error is None else f"got {outcome(error)}"
        return row_of(case, driver, "failed", f"expected {name}, {got}")
    if error is not None:
        return row_of(case, driver, "failed", outcome(error))
    smallest = floor(case, driver.backend)
    return _measured(case, driver, compare(case, states, recorded(case), smallest))


def difference_of(case: Case, backend: str, mode: str = "") -> Difference | None:
    """Return the listed difference that applies to a case.

    It has a rule if an entry that applies has one: the rule is that of an optimizer of
    the framework, inside the default of the reference.
    """
    entries = [e for e in differences() if e.concerns(case, backend, mode)]
    rule = next((e.rule for e in entries if e.rule), "")
    return entries[0]._replace(rule=rule) if entries else None


def documented(case: Case, entry: Difference) -> Replay:
    """Return what is right in a case to which a listed difference applies.

    It is the default of the reference, the rule or the refusal that the entry names.
    """
    if entry.refuses:
        return [], getattr(errors, entry.refuses)()
    if entry.rule:
        made = getattr(framework_rules, entry.rule)()
    else:
        made = drivers.load("reference", strict=False)
    with closing(made) as driver:
        return replay_states(case, driver)


def _as_documented(
    case: Case,
    driver: Driver,
    states: list[State],
    error: Exception | None,
    entry: Difference,
) -> Row:
    expected, refusal = documented(case, entry)
    # Another error than our own is no refusal, even if both end in it.
    refuses = refusal is None or isinstance(refusal, errors.LockstepError)
    alike = type(error) is type(refusal) and len(states) == len(expected)
    if not (refuses and alike):
        reason = f"expected {outcome(refusal)}, got {outcome(error)}"
        row = row_of(case, driver, "failed", reason)
    elif not any(expected) and (refusal is not None or "raises" in case.expected):
        # There is nothing to compare but the refusal, or that there is none now.
        row = row_of(case, driver, "passed")
    else:
        smallest = floor(case, driver.backend) if entry.rule else 0.0
        compared = compare(case, states, expected, smallest)
        row = _measured(case, driver, compared, by_rule=bool(entry.rule))
    if refusal is not None:
        return changed(row, against="refusal", difference=entry.anchor)
    against: Against = "framework rule" if entry.rule else "reference"
    return changed(row, against=against, difference=entry.anchor)


def _measured(
    case: Case, driver: Driver, everything: Iterable[Comparison], by_rule: bool = False
) -> Row:
    """Judge the distances of the quantities that the backend has."""
    compared, left_out = list(everything), []
    excused = excused_quantities(case, driver.backend, driver.mode, by_rule)
    for start, why in excused.items():
        rest = [c for c in compared if not c.quantity.startswith(start)]
        if len(rest) < len(compared):
            left_out.append(f"without {start.rstrip('/')}: {why}")
        compared = rest
    allowed = tolerance(case, driver.backend, "rule" if by_rule else "tolerance")
    return verdict(
        row_of(case, driver, "passed", "; ".join(left_out)), compared, allowed
    )


def verdict(row: Row, compared: Sequence[Comparison], allowed: Tolerance) -> Row:
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


def agree(case: Case, make_driver: Callable[[bool], Driver]) -> Row:
    """Replay ``case`` in strict and in default mode; ``make_driver`` takes ``strict``.

    A case that may differ in any way is measured, too, and skipped with the reason.
    """
    with closing(make_driver(True)) as driver:
        settled = settled_before(case, driver)
        if settled is not None:
            return settled
        try:
            strict = replay_states(case, driver)
            errors = driver.expects(case.expected.get("raises", ""))
        except CannotInterpretError as unknown:
            return row_of(case, driver, "failed", f"cannot interpret {unknown}")
    if strict[1] is not None and not (
        "raises" in case.expected and isinstance(strict[1], errors)
    ):
        # If both modes fail in the same way, that is not agreement.
        return row_of(case, driver, "failed", f"under strict {outcome(strict[1])}")
    with closing(make_driver(False)) as driver:
        default = replay_states(case, driver)
    limit = _limit(case, driver.backend)
    compared = list(_pairs_of(strict, default))
    row = verdict(row_of(case, driver, "passed"), compared, limit)
    if np.isinf(limit.ulp):
        reason = f"differs by design: {limit.reason}"
        return changed(row, status="skipped", reason=reason, first_divergence=None)
    return row if row.status == "failed" else changed(row, first_divergence=None)


def _limit(case: Case, backend: str) -> Tolerance:
    """Return the largest allowed distance between the modes of a backend in a case."""
    named = [entry for entry in differences() if entry.concerns(case, backend)]
    between = tolerance(case, backend, "between_modes")
    limits = [between, *(Tolerance(entry.ulp, entry.reason) for entry in named)]
    return max(limits, key=lambda limit: limit.ulp)


def _pairs_of(strict: Replay, default: Replay) -> Iterator[Comparison]:
    """Yield a comparison of the replays' errors, then one for each quantity."""
    ends = [np.array(outcome(e).partition(":")[0]) for _, e in (default, strict)]
    yield Comparison(0, "the error", ends[0], ends[1], distance(ends[0], ends[1]))
    for step, (right, left) in enumerate(zip_longest(strict[0], default[0])):
        for name in {**(right or {}), **(left or {})}:
            ours, expected = (left or {}).get(name), (right or {}).get(name)
            if ours is None or expected is None:
                nothing = np.array("nothing")
                apart = Distance(np.inf, np.inf, ())
                yield Comparison(step, name, ours, nothing, apart)
            else:
                apart = distance(ours, expected)
                yield Comparison(step, name, ours, expected, apart)
