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
PENALTY = Refusal(
    DtypeError,
    "mp_regularizer_wrapper: regularizer: expected a penalty that is a scalar tensor "
    "with a gradient for the weight, got {got}; "
    "compute it from the weight in tensors, and sum it.",
)
# quirks.masters_absent
ABSENT_HALF = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected a gradient for the float16 variable "
    "{name!r}, got None; the original cannot leave it out; leave strict off.",
)
# quirks.masters_half_loss
HALF_LOSS = Refusal(
    DtypeError,
    "MixedPrecisionOptimizerWrapper: expected a float32 loss for an automatic scale, "
    "got {dtype}; cast the loss to float32, or leave strict off.",
)
CLIPS_OUTSIDE = Refusal(
    UnsupportedError,
    "VariableClippingOptimizer: expected an optimizer that updates {name!r} itself, "
    "got MixedPrecisionOptimizerWrapper, which updates its master; "
    "put the row clipping inside of the masters' wrapper, with the same keys.",
)
MASTERS_INSIDE = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer that updates the model's parameters itself, "
    "got MixedPrecisionOptimizerWrapper, which updates masters; "
    "put the wrapper inside, as in MixedPrecisionOptimizerWrapper({owner}(...)).",
)
TWICE = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected each parameter in one group, "
    "got one of shape {shape} in two; leave it out of the new group.",
)
WITHOUT_MASTERS = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected a state with the masters of every "
    "half-precision parameter, got {got}; "
    "load the optimizer's state before it is wrapped, or save it again.",
)
