"""Check that the default agrees with strict in all cases without a known difference.

``differences.toml`` lists the kinds of cases in which they may differ. Every other case
is replayed in both modes and must give the same bits. The entries ``between_modes`` of
``tolerances.toml`` allow exceptions, with the reason. If the modes differ in every case
of a family, an entry gives other arguments with which they must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from harness.parity.cases import CannotInterpretError, Case
from harness.parity.distance import Comparison, Distance, distance, divergence
from harness.parity.drivers.protocol import Driver
from harness.parity.replay import Replay, outcome, replay_states, settled_before
from harness.parity.row import Row, Status
from harness.parity.tables import Difference, Tolerance, differences, tolerance

UNLIKE = Distance(np.inf, np.inf, ())


def allowed(case: Case, backend: str) -> Tolerance:
    """Return the largest allowed distance between the modes of a backend in a case."""
    driver = tolerance(case, backend, "between_modes")
    named = [e for e in _named(case, backend) if not e.alike_with]
    loosest = max(named, key=lambda entry: entry.ulp, default=None)
    if loosest is None or loosest.ulp <= driver.ulp:
        return driver
    return Tolerance(loosest.ulp, loosest.reason)


def _named(case: Case, backend: str) -> list[Difference]:
    return [entry for entry in differences() if entry.concerns(case, backend)]


def _changed(case: Case, entry: Difference) -> Case:
    """Return the case with the arguments with which the modes must agree."""
    key = "optimizer_params" if "optimizer_params" in case.inputs else "args"
    arguments = {**(case.inputs.get(key) or {}), **entry.alike_with}
    return replace(case, inputs={**case.inputs, key: arguments})


def agree(case: Case, make_driver: Callable[[bool], Driver]) -> Row:
    """Replay ``case`` in strict and in default mode; ``make_driver`` takes ``strict``.

    A case that may differ in any way is measured, too, and skipped with the reason. A
    case that must agree with other arguments is replayed with these in both modes.
    """
    with closing(make_driver(True)) as driver:
        fields = (case.id, case.family, case.kind, driver.backend, driver.mode)
        settled, why = settled_before(case, driver)
        if settled is not None:
            return Row(*fields, settled, why)
        named = _named(case, driver.backend)
        entry = next((entry for entry in named if entry.alike_with), None)
        replayed = case if entry is None else _changed(case, entry)
        try:
            strict = replay_states(replayed, driver)
            errors = driver.expects(case.expected.get("raises", ""))
        except CannotInterpretError as unknown:
            return Row(*fields, "failed", f"cannot interpret {unknown}")
    if strict[1] is not None and not (
        "raises" in case.expected and isinstance(strict[1], errors)
    ):
        # If both modes fail in the same way, that is not agreement.
        return Row(*fields, "failed", f"under strict {outcome(strict[1])}")
    with closing(make_driver(False)) as driver:
        default = replay_states(replayed, driver)
    return _judged(fields, strict, default, allowed(case, driver.backend), entry)


def _judged(
    fields: tuple[str, str, str, str, str],
    strict: Replay,
    default: Replay,
    limit: Tolerance,
    entry: Difference | None,
) -> Row:
    """Compare two replays. ``entry`` names the changed arguments, if there are any."""
    left = () if entry is None else tuple(entry.but_for)
    comparisons = [
        comparison
        for comparison in _compare(strict, default)
        if not comparison.quantity.startswith(left)
    ]
    first = next((c for c in comparisons if c.distance.ulp > limit.ulp), None)
    worst = max((c.distance.ulp for c in comparisons), default=0.0)
    raw = max((c.distance.raw for c in comparisons), default=0.0)
    status: Status = "passed" if first is None else "failed"
    reason = "" if entry is None else entry.comparison
    if first is not None:
        reason = _explain(first, limit, strict, default)
    if np.isinf(limit.ulp):
        status, reason = "skipped", f"differs by design: {limit.reason}"
    place = None if first is None else divergence(first)
    return Row(*fields, status, reason, float(worst), float(raw), place)


def _compare(strict: Replay, default: Replay) -> Iterator[Comparison]:
    """Yield a comparison of the replays' errors, then one for each quantity."""
    ends = [np.array(outcome(e).partition(":")[0]) for _, e in (default, strict)]
    yield Comparison(0, "the error", ends[0], ends[1], distance(ends[0], ends[1]))
    for step, (right, left) in enumerate(zip_longest(strict[0], default[0])):
        for name in {**(right or {}), **(left or {})}:
            ours, expected = (left or {}).get(name), (right or {}).get(name)
            if ours is None or expected is None:
                nothing = np.array("nothing")
                yield Comparison(step, name, ours, nothing, UNLIKE)
            else:
                apart = distance(ours, expected)
                yield Comparison(step, name, ours, expected, apart)


def _explain(
    first: Comparison, limit: Tolerance, strict: Replay, default: Replay
) -> str:
    if first.quantity == "the error":
        ends = [outcome(error) for _, error in (default, strict)]
        return f"by default {ends[0]}; under strict {ends[1]}"
    where = divergence(first)
    return (
        f"{first.quantity} after step {first.step + 1}, element {where.index}: by "
        f"default {where.got}, under strict {where.expected}; "
        f"{first.distance.ulp:g} ULP, allowed {limit.ulp:g} ({limit.reason})"
    )
