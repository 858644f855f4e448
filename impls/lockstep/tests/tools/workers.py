"""Accumulated gradient normalization."""

from __future__ import annotations

from typing import Any

from lockstep import errors
from lockstep.tests.kit import WHOLE_ONLY, Cells, Kit, Mistake

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES"]


def worker(kit: Kit, *period: int, **wrong: Any) -> Any:
    """Make an ``AGNOptimizer``."""
    base = wrong.get("optimizer", kit.base(kit.variable()))
    getter = wrong.get("getter", kit.ls.AGNCustomGetter(kit.device))
    return kit.ls.AGNOptimizer(base, 1, getter, *period)


SIGNATURES = {
    "AGNCustomGetter": "worker_device",
    "AGNOptimizer": "optimizer, num_worker, custom_getter, communication_period=10, "
    "use_locking=True, name='AGNOptimizer'",
}

MISTAKES: dict[str, Mistake] = {
    "no optimizer for a worker": (
        lambda k: worker(k, optimizer=3),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer of this worker",
    ),
    "no getter": (
        lambda k: worker(k, getter=3),
        errors.GetterError,
        "got int",
    ),
    "a period of 0": (
        lambda k: worker(k, 0),
        errors.OutOfRangeError,
        "communication_period: expected an integer >= 1, got 0",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`AGNOptimizer`": WHOLE_ONLY,
}
