"""Check that the default agrees with strict in all cases without a known difference.

``differences.toml`` lists the kinds of cases in which they may differ. Every other case
is replayed in both modes and must give the same bits. The entries ``between_modes`` of
``tolerances.toml`` allow exceptions, with the reason. If the modes differ in every case
of a family, an entry gives other arguments with which they must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace as changed
from itertools import zip_longest

import numpy as np

from harness.parity.cases import CannotInterpretError, Case
from harness.parity.distance import Comparison, Distance, distance
from harness.parity.drivers.protocol import Driver
from harness.parity.replay import (
    Replay,
    outcome,
    replay_states,
    row_of,
    settled_before,
    verdict,
)
from harness.parity.row import Row
from harness.parity.tables import Difference, Tolerance, differences, tolerance

UNLIKE = Distance(np.inf, np.inf, ())


def agree(case: Case, make_driver: Callable[[bool], Driver]) -> Row:
    """Replay ``case`` in strict and in default mode; ``make_driver`` takes ``strict``.

    A case that may differ in any way is measured, too, and skipped with the reason. A
    case that must agree with other arguments is replayed with these in both modes.
    """
    with closing(make_driver(True)) as driver:
        settled = settled_before(case, driver)
        if settled is not None:
            return settled
        named = [e for e in differences() if e.concerns(case, driver.backend)]
        entry = next((entry for entry in named if entry.alike_with), None)
        replayed = case if entry is None else _changed(case, entry)
        try:
            strict = replay_states(replayed, driver)
            errors = driver.expects(case.expected.get("raises", ""))
        except CannotInterpretError as unknown:
            return row_of(case, driver, "failed", f"cannot interpret {unknown}")
    if strict[1] is not None and not (
        "raises" in case.expected and isinstance(strict[1], errors)
    ):
        # If both modes fail in the same way, that is not agreement.
        return row_of(case, driver, "failed", f"under strict {outcome(strict[1])}")
    with closing(make_driver(False)) as driver:
        default = replay_states(replayed, driver)
    row = row_of(case, driver, "passed", "" if entry is None else entry.comparison)
    left = () if entry is None else tuple(entry.but_for)
    compared = [c for c in _compare(strict, default) if not c.quantity.startswith(left)]
    limit = _limit(case, driver.backend, named)
    row = verdict(row, compared, limit)
    if np.isinf(limit.ulp):
        reason = f"differs by design: {limit.reason}"
        return changed(row, status="skipped", reason=reason, first_divergence=None)
    return row if row.status == "failed" else changed(row, first_divergence=None)


def _changed(case: Case, entry: Difference) -> Case:
    """Return the case with the arguments with which the modes must agree."""
    key = "optimizer_params" if "optimizer_params" in case.inputs else "args"
    arguments = {**(case.inputs.get(key) or {}), **entry.alike_with}
    return changed(case, inputs={**case.inputs, key: arguments})


def _limit(case: Case, backend: str, named: list[Difference]) -> Tolerance:
    """Return the largest allowed distance between the modes of a backend in a case."""
    limits = [Tolerance(e.ulp, e.reason) for e in named if not e.alike_with]
    between = tolerance(case, backend, "between_modes")
    return max([between, *limits], key=lambda limit: limit.ulp)


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
