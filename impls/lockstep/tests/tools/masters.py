"""Float32 masters."""

from __future__ import annotations

from lockstep import errors
from lockstep.tests.kit import WHOLE_ONLY, Cells, Mistake, Wrap

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES", "WRAPPERS"]

SIGNATURES = {
    "MixedPrecisionOptimizerWrapper": "optimizer, loss_scale=None",
    "mp_regularizer_wrapper": "regularizer",
}

WRAPPERS: dict[str, Wrap] = {
    "masters": lambda k, w: k.ls.MixedPrecisionOptimizerWrapper(k.base(w), 4.0),
}

MISTAKES: dict[str, Mistake] = {
    "no optimizer for masters": (
        lambda k: k.ls.MixedPrecisionOptimizerWrapper(3),
        errors.NotScalableError,
        "ptimizer, got int; pass the optimizer that is to train",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`MixedPrecisionOptimizerWrapper`": WHOLE_ONLY,
}
