"""The errors of float32 masters of half-precision weights."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    Refusal,
    UnknownNameError,
    UnsupportedError,
    UnusableScaleError,
)

BAD_LOSS_SCALE = Refusal(
    UnknownNameError,
    "MixedPrecisionOptimizerWrapper: loss_scale: expected a number, None, 'dynamic', "
    "an AutomaticLossScaler or a loss scale, got {loss_scale!r}; "
    "for OpenSeq2Seq's scalers pass AutomaticLossScaler('Backoff').",
)
# quirks.masters_scale_type
UNUSABLE = Refusal(
    UnusableScaleError,
    "MixedPrecisionOptimizerWrapper: loss_scale: expected a float or an "
    "AutomaticLossScaler, got {loss_scale!r}; "
    "the original fails at the first use; leave strict off.",
)
REGULARIZER_NOT_CALLABLE = Refusal(
    DtypeError,
    "mp_regularizer_wrapper: regularizer: expected a callable of a weight, got {got}; "
    "pass a function that returns the penalty.",
)
# quirks.masters_absent
ABSENT_HALF = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected a gradient for the float16 variable "
    "{name!r}, got None; the original cannot leave it out; leave strict off.",
)
CLIPS_OUTSIDE = Refusal(
    UnsupportedError,
    "VariableClippingOptimizer: expected an optimizer that updates {name!r} itself, "
    "got MixedPrecisionOptimizerWrapper, which updates its master; "
    "put the row clipping inside of the masters' wrapper, with the same keys.",
)
