"""The errors of AGN's workers, getter and center."""

from __future__ import annotations

from lockstep.errors import (
    GetterError,
    NoGradientsError,
    NotFromGetterError,
    OutOfRangeError,
    Refusal,
    UnsupportedError,
)

MASTERS_INSIDE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer of the worker's own variables, "
    "got MixedPrecisionOptimizerWrapper; "
    "AGNOptimizer shares what it trains: let that be float32, with "
    "MixedPrecisionLossScaleOptimizer around AGNOptimizer if the loss is to be scaled.",
)
SCALE_INSIDE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer of unscaled gradients, got {got}; "
    "wrap the other way round: the loss scale around AGNOptimizer.",
)
SHARED_ALREADY = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected the optimizer that a worker trains with, "
    "got AGNOptimizer; its weights are shared already; make one for each worker.",
)
MASTERS_AROUND = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected an optimizer that can be given masters, "
    "got AGNOptimizer; "
    "AGNOptimizer shares what it trains: let that be float32, with "
    "MixedPrecisionLossScaleOptimizer around AGNOptimizer if the loss is to be scaled.",
)
ROW_CLIPPING_AROUND = Refusal(
    UnsupportedError,
    "VariableClippingOptimizer: expected an optimizer of the listed variables alone, "
    "got AGNOptimizer; "
    "put the row clipping inside of AGNOptimizer: it cuts the shared rows too.",
)
COMMIT_UNDER_STRICT = Refusal(
    UnsupportedError,
    "AGNOptimizer: commit: expected 'gradient', got {got!r}; "
    "the original has no other; leave strict off.",
)
NOT_A_COUNT = Refusal(
    OutOfRangeError,
    "AGNOptimizer: {name}: expected an integer >= {least}, got {got!r}; {remedy}.",
)
NOT_A_GETTER = Refusal(
    GetterError,
    "AGNOptimizer: custom_getter: expected an AGNCustomGetter, got {got}; "
    "pass the AGNCustomGetter that made the worker's variables.",
)
NOT_FROM_GETTER = Refusal(
    NotFromGetterError,
    "AGNOptimizer: expected variables made through the AGNCustomGetter, got {name!r}; "
    "hand it to the getter first, and again if it was frozen then.",
)
NOTHING_TO_START = Refusal(
    NoGradientsError,
    "AGNOptimizer.get_init_op: expected at least one trainable variable, got none; "
    "make the variables through the AGNCustomGetter first.",
)
ITERATOR_UNDER_STRICT = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected a list of pairs, got a one-shot {got}; "
    "make it a list, or leave strict off.",
)
OTHER_CENTER = Refusal(
    UnsupportedError,
    "AGNCustomGetter: expected {name!r} to be {shared}, as the shared one, got {own}; "
    "use another name.",
)
NOT_A_CENTER = Refusal(
    GetterError,
    "AGNCustomGetter: center: expected the center of another worker's getter, "
    "got {got}; pass its attribute, center=getter.center.",
)
UNKNOWN_NAMES = Refusal(
    UnsupportedError,
    "AGNCustomGetter: expected names that the center has, {known}, got {got}; "
    "give each worker's variables the same names: name models and layers alike or "
    "pass pairs (name, variable); only the first worker adds names.",
)
NOT_VARIABLES = Refusal(
    GetterError,
    "AGNCustomGetter: expected {expected}, got {got}; {remedy}.",
)
