"""Replay one case on one backend and compare every quantity after every step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from harness.parity.cases import FAMILIES, CannotInterpretError, Case
from harness.parity.distance import Distance, distance, magnitude, spacing
from harness.parity.drivers.protocol import Driver
from harness.parity.families import BY_FAMILY
from harness.parity.operands import largest_weights, operands
from harness.parity.row import Divergence, Row, Status
from harness.parity.tables import (
    Tolerance,
    excuse,
    excused_quantities,
    floor,
    tolerance,
)
from lockstep.interface import Array

__all__ = [
    "Comparison",
    "compare",
    "divergence",
    "element",
    "replay",
    "settled_before",
]


COPY = re.compile("/(local|global|worker [0-9]+ at last)/")
"""The copy of a variable in a quantity of AGN. Rounding errors move between copies."""


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


def replay(case: Case, driver: Driver) -> Row:
    """Replay ``case`` with ``driver`` and judge it. An error is a failure."""
    status, reason = settled_before(case, driver)
    if status is not None:
        return _row(case, driver, status, reason)
    try:
        if "raises" in case.expected:
            return _replay_error(case, driver)
        return _judge(case, driver, list(compare(case, driver)))
    except CannotInterpretError as unknown:
        return _row(case, driver, "failed", f"cannot interpret {unknown}")
    except Exception as error:
        return _row(case, driver, "failed", f"{type(error).__name__}: {error}")


def compare(case: Case, driver: Driver) -> Iterator[Comparison]:
    """Yield a comparison for every recorded quantity, step by step."""
    family = BY_FAMILY[case.family]
    states = family.replay(case, driver)
    smallest = floor(case, driver.backend)
    weights = {} if "variables" not in case.inputs else _initial(case)
    largest = {quantity: magnitude(value) for quantity, value in weights.items()}
    for step, expected in enumerate(family.expectations(case)):
        got = next(states)
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


def _judge(case: Case, driver: Driver, everything: list[Comparison]) -> Row:
    comparisons, left_out = _comparable(case, driver, everything)
    allowed = tolerance(case, driver.backend)
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
    case: Case, driver: Driver, comparisons: list[Comparison]
) -> tuple[list[Comparison], str]:
    """Return comparisons of available quantities, and why others are missing."""
    parts = []
    for start, why in excused_quantities(case, driver.backend, driver.mode).items():
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
