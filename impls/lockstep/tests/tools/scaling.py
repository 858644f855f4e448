"""Loss scales, and the optimizer that applies them."""

from __future__ import annotations

import math
from typing import Any

from lockstep import errors
from lockstep.tests.kit import EVERYWHERE, Cells, Kit, Mistake, Wrap

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES", "WRAPPERS"]


def scaled(kit: Kit, scale: Any, **options: Any) -> Any:
    """Make a loss-scale optimizer."""
    base = kit.base(kit.variable())
    return kit.ls.MixedPrecisionLossScaleOptimizer(base, scale, **options)


SIGNATURES = {
    "AutomaticLossScaler": "algorithm='Backoff', params=None",
    "DynamicLossScale": "initial_loss_scale=32768, increment_period=2000, "
    "multiplier=2.0",
    "FixedLossScale": "loss_scale_value",
    "MixedPrecisionLossScaleOptimizer": "opt, loss_scale",
}

WRAPPERS: dict[str, Wrap] = {
    "loss scale": lambda k, w: k.ls.MixedPrecisionLossScaleOptimizer(k.base(w), 4.0),
}

MISTAKES: dict[str, Mistake] = {
    "no optimizer for a loss scale": (
        lambda k: k.ls.MixedPrecisionLossScaleOptimizer(3, 1.0),
        errors.NotScalableError,
        "ptimizer, got int; pass the optimizer whose loss is to be scaled",
    ),
    "no loss scale": (
        lambda k: scaled(k, None),
        errors.MissingLossScaleError,
        "expected a loss scale, got None; give a number or 'dynamic'",
    ),
    "an unknown loss scale": (
        lambda k: scaled(k, "x"),
        errors.UnknownNameError,
        "loss_scale: expected a number, 'dynamic' or a loss scale, got 'x'",
    ),
    "a loss scale of 0": (
        lambda k: scaled(k, 0.0),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected a number >= 1, got 0.0",
    ),
    "a bool as a loss scale": (
        lambda k: scaled(k, True),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected an int or float, got True",
    ),
    "a loss scale of NaN": (
        lambda k: scaled(k, math.nan),
        errors.OutOfRangeError,
        "FixedLossScale: loss_scale_value: expected a number >= 1, got nan",
    ),
    "an unknown end": (
        lambda k: scaled(k, 1.0, at_floor="x"),
        errors.OutOfRangeError,
        "at_floor: expected 'warn' or 'raise' or 'ignore', got 'x'",
    ),
    "an unknown scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backof"),
        errors.UnknownNameError,
        r"got 'Backof'; did you mean 'Backoff'\?",
    ),
    "an argument of no scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backoff", {"foo": 1}),
        errors.UnknownNameError,
        "got 'foo'",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`MixedPrecisionLossScaleOptimizer`": EVERYWHERE,
    "`DynamicLossScale`, `AutomaticLossScaler`": EVERYWHERE,
}
