"""Replay one case on one backend and compare every quantity after every step.

A backend with ``strict`` is compared with the recording. One without it has only its
default: :func:`judge` compares this with the recording too, and in a case to which an
entry of ``differences.toml`` applies, with the default of the reference or with the
framework's own rule.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from harness.parity import drivers
from harness.parity.cases import FAMILIES, CannotInterpretError, Case
from harness.parity.distance import Distance, distance, magnitude, spacing
from harness.parity.drivers.protocol import Driver
from harness.parity.families import BY_FAMILY
from harness.parity.operands import largest_weights, operands
from harness.parity.row import Against, Divergence, Row, Status
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
from lockstep.interface import Array, Rows
from lockstep.registry import BACKENDS

__all__ = [
    "WITHOUT_STRICT",
    "Comparison",
    "Replay",
    "State",
    "compare",
    "difference_of",
    "divergence",
    "documented",
    "element",
    "judge",
    "outcome",
    "recorded",
    "replay",
    "replay_states",
    "settled_before",
]

WITHOUT_STRICT = frozenset(b.name for b in BACKENDS.values() if not b.has_strict)
"""Backends whose default is judged; the others are judged under strict."""
COPY = re.compile("/(local|global|worker [0-9]+ at last)/")
"""The copy of a variable in a quantity of AGN. Rounding errors move between copies."""


State = Mapping[str, Array]
Replay = tuple[list[State], Exception | None]
"""The states of a replay, and the error if it ended in one."""


class Comparison(NamedTuple):
    """One quantity after one step: both values and their distance.

    ``carried`` is the distance in spacings of the largest recorded value of the
    quantity so far, or of one of its operands. Their rounding errors have this size.
    """

    step: int
    quantity: str
    got: Array | None
    expected: Array
    distance: Distance
    carried: float = np.inf


def judge(case: Case, backend: str, mode: str, device: str = "cpu") -> Row:
    """Replay ``case`` and judge it: under strict, or else the default.

    It must give the recording. If a difference of the default is listed, it must give
    what is documented, which may be the recording all the same.
    """
    strict = backend not in WITHOUT_STRICT
    with closing(drivers.load(backend, mode, strict, device)) as driver:
        row = replay(case, driver)
    entry = difference_of(case, backend, mode)
    if strict or entry is None or row.status == "skipped":
        return row
    with closing(drivers.load(backend, mode, strict, device)) as driver:
        right = _as_documented(case, driver, entry)
    return row if row.status == right.status == "passed" else right


def difference_of(case: Case, backend: str, mode: str = "") -> Difference | None:
    """Return the listed difference that applies to a case.

    It has a rule if an entry that applies has one: the rule is that of an optimizer of
    the framework, inside the default of the reference.
    """
    entries = [e for e in differences() if e.concerns(case, backend, mode)]
    rule = next((e.rule for e in entries if e.rule), "")
    return entries[0]._replace(rule=rule) if entries else None


def replay(case: Case, driver: Driver) -> Row:
    """Compare ``case`` on ``driver`` with the recording. An error is a failure."""
    status, reason = settled_before(case, driver)
    if status is not None:
        return _row(case, driver, status, reason)
    try:
        if "raises" in case.expected:
            row = _replay_error(case, driver)
        else:
            states = BY_FAMILY[case.family].replay(case, driver)
            smallest = floor(case, driver.backend)
            compared = list(compare(case, states, recorded(case), smallest))
            row = _judge(case, driver, compared)
    except CannotInterpretError as unknown:
        row = _row(case, driver, "failed", f"cannot interpret {unknown}")
    except Exception as error:
        row = _row(case, driver, "failed", f"{type(error).__name__}: {error}")
    return replace(row, against="recording")


def _as_documented(case: Case, driver: Driver, entry: Difference) -> Row:
    """Compare ``case`` on ``driver`` with what is documented of a difference."""
    try:
        states, error = replay_states(case, driver)
        expected, refusal = documented(case, entry)
    except CannotInterpretError as unknown:
        return _row(case, driver, "failed", f"cannot interpret {unknown}")
    # Another error than our own is no refusal, even if both end in it.
    refuses = refusal is None or isinstance(refusal, errors.LockstepError)
    alike = type(error) is type(refusal) and len(states) == len(expected)
    if not (refuses and alike):
        reason = f"expected {outcome(refusal)}, got {outcome(error)}"
        row = _row(case, driver, "failed", reason)
    elif not any(expected) and (refusal is not None or "raises" in case.expected):
        # There is nothing to compare but the refusal, or that there is none now.
        row = _row(case, driver, "passed")
    else:
        table = "rule" if entry.rule else "tolerance"
        smallest = floor(case, driver.backend) if entry.rule else 0.0
        compared = list(compare(case, states, expected, smallest))
        row = _judge(case, driver, compared, table)
    against: Against = "framework rule" if entry.rule else "reference"
    if refusal is not None:
        against = "refusal"
    return replace(row, against=against, difference=entry.anchor)


def documented(case: Case, entry: Difference) -> Replay:
    """Return what is right in a case to which a listed difference applies.

    It is the default of the reference, the rule or the refusal that the entry names.
    """
    if entry.refuses:
        return [], getattr(errors, entry.refuses)()
    if entry.rule:
        rules = "harness.parity.drivers.framework_rules"
        make_driver = importlib.import_module(f"{rules}.{entry.rule}").make_driver
        with closing(make_driver()) as driver:
            return replay_states(case, driver)
    with closing(drivers.load("reference", strict=False)) as driver:
        return replay_states(case, driver)


def replay_states(case: Case, driver: Driver) -> Replay:
    """Replay ``case`` to its end, or until it raises an error."""
    states: list[State] = []
    try:
        for state in BY_FAMILY[case.family].replay(case, driver):
            states.append(dict(_copied(state)))
    except CannotInterpretError:
        raise
    except Exception as error:
        return states, error
    return states, None


def outcome(error: Exception | None) -> str:
    """Return in words how a replay ended."""
    return "no error" if error is None else f"{type(error).__name__}: {error}"


def _copied(state: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield copies, since a backend may change an array in its next step."""
    for name, value in state.items():
        if isinstance(value, Rows):
            yield f"{name}/indices", np.array(value.indices)
            yield f"{name}/values", np.array(value.values)
        else:
            yield name, np.array(value)


def recorded(case: Case) -> Iterator[State]:
    """Yield the recorded states."""
    return BY_FAMILY[case.family].expectations(case)


def compare(
    case: Case,
    states: Iterable[State],
    expectations: Iterable[State],
    smallest: float = 0.0,
) -> Iterator[Comparison]:
    """Yield a comparison for every expected quantity, step by step.

    Values that differ by at most ``smallest`` are equal.
    """
    replayed = iter(states)
    weights = {} if "variables" not in case.inputs else _initial(case)
    largest = {quantity: magnitude(value) for quantity, value in weights.items()}
    for step, expected in enumerate(expectations):
        got = next(replayed, {})
        for quantity, size in operands(case, weights, expected).items():
            largest[quantity] = max(size, largest.get(quantity, 0.0))
        weights = largest_weights(weights, expected)
        for quantity, value in expected.items():
            # A copy, because a backend may change the array in its next step.
            result = np.array(got[quantity]) if quantity in got else None
            measured = (
                Distance(np.inf, np.inf, (0,) * value.ndim)
                if result is None
                else distance(result, value, smallest)
            )
            now, base = magnitude(value), COPY.sub("/", quantity)
            largest[base] = max(now, largest.get(base, 0.0))
            grown = spacing(value.dtype, now) / spacing(value.dtype, largest[base])
            carried = measured.ulp * grown
            yield Comparison(step, quantity, result, value, measured, carried)


def _initial(case: Case) -> Mapping[str, Array]:
    """Return the initial variables; none for cases of a custom getter."""
    values = [v for v in case.inputs["variables"] if isinstance(v, Mapping)]
    variables = case.variables if values else []
    return {f"variables/{v.name}": v.value for v in variables}


def element(values: Array | None, index: tuple[int, ...]) -> str:
    """Format one element with its exact bits."""
    if values is None:
        return "nothing"
    values = np.asarray(values)
    if values.ndim != len(index) or not values.size:
        return f"an array of shape {list(values.shape)}"
    value = values[index]
    if isinstance(value, np.floating):
        return f"{value!s} ({float(value).hex()}, {value.dtype})"
    return str(value)


def settled_before(case: Case, driver: Driver) -> tuple[Status | None, str]:
    """Return the status and reason of a case that cannot be replayed, else None."""
    if case.family not in FAMILIES:
        return "failed", f"cannot interpret the family {case.family!r}"
    if case.kind not in BY_FAMILY[case.family].KINDS:
        return "failed", f"cannot interpret the kind {case.kind!r}"
    reason = excuse(case, driver.backend, driver.mode)
    return ("skipped", reason) if reason else (None, "")


def _replay_error(case: Case, driver: Driver) -> Row:
    """Expect the recorded exception class or a subclass."""
    error_name = case.expected["raises"]
    try:
        for _ in BY_FAMILY[case.family].replay(case, driver):
            pass
    except CannotInterpretError:
        raise
    except driver.expects(error_name):
        return _row(case, driver, "passed")
    except Exception as error:
        reason = f"expected {error_name}, got {type(error).__name__}: {error}"
        return _row(case, driver, "failed", reason)
    return _row(case, driver, "failed", f"expected {error_name}, nothing was raised")


def _judge(
    case: Case, driver: Driver, everything: list[Comparison], table: str = "tolerance"
) -> Row:
    by_rule = table == "rule"
    comparisons, left_out = _comparable(case, driver, everything, by_rule)
    allowed = tolerance(case, driver.backend, table)
    worst = max((c.distance.ulp for c in comparisons), default=np.inf)
    raw = max((c.distance.raw for c in comparisons), default=np.inf)
    first = next((c for c in comparisons if c.distance.ulp > 0), None)
    beyond = next((c for c in comparisons if _beyond(c, allowed)), None)
    reason = ""
    if not comparisons:
        reason = "nothing was recorded that could be compared"
    elif beyond is not None:
        reason = _explain(beyond, allowed.ulp, allowed.reason)
    return Row(
        case.id,
        case.family,
        case.kind,
        driver.backend,
        driver.mode,
        "failed" if reason else "passed",
        reason or left_out,
        float(worst),
        float(raw),
        None if first is None else divergence(first),
    )


def _beyond(comparison: Comparison, allowed: Tolerance) -> bool:
    """Whether two values differ by more than the tolerance."""
    ulp = comparison.carried if allowed.carried else comparison.distance.ulp
    return not ulp <= allowed.ulp


def _comparable(
    case: Case, driver: Driver, comparisons: list[Comparison], by_rule: bool
) -> tuple[list[Comparison], str]:
    """Return comparisons of available quantities, and why others are missing."""
    excused = excused_quantities(case, driver.backend, driver.mode, by_rule)
    parts = []
    for start, why in excused.items():
        rest = [c for c in comparisons if not c.quantity.startswith(start)]
        if len(rest) < len(comparisons):
            parts.append(f"without {start.rstrip('/')}: {why}")
        comparisons = rest
    return comparisons, "; ".join(parts)


def _explain(beyond: Comparison, allowed: float, why: str) -> str:
    where = divergence(beyond)
    return (
        f"{beyond.quantity} after step {beyond.step + 1}, element {where.index}: got "
        f"{where.got}, expected {where.expected}; {beyond.distance.ulp:g} ULP, allowed "
        f"{allowed:g} ({why})"
    )


def divergence(comparison: Comparison) -> Divergence:
    """Return the position with the largest distance."""
    index = comparison.distance.where
    return Divergence(
        comparison.step,
        comparison.quantity,
        list(index),
        element(comparison.got, index),
        element(comparison.expected, index),
    )


def _row(case: Case, driver: Driver, status: Status, reason: str = "") -> Row:
    fields = (case.id, case.family, case.kind, driver.backend, driver.mode)
    return Row(*fields, status, reason)
