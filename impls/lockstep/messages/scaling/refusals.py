"""The errors of loss scales, automatic scalers and the loss-scaling wrappers."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    MalformedPairsError,
    MissingLossScaleError,
    OutOfRangeError,
    Refusal,
    ScaleStalledError,
    UnknownNameError,
    UnscaledTwiceError,
    UnsupportedError,
)

# Loss scales: numbers, FixedLossScale and DynamicLossScale.

NOT_A_SCALE = Refusal(
    OutOfRangeError,
    "{subject}: expected > 0, finite in float32, got {got!r}; "
    "give the factor for the loss, 1 for none.",
)
TWO_KINDS_OF_PATIENCE = Refusal(
    OutOfRangeError,
    "DynamicLossScale: expected hysteresis or tolerance, which count overflows "
    "differently, got hysteresis={hysteresis} and tolerance={tolerance:g}; "
    "leave one of them out.",
)
OPTION_UNDER_STRICT = Refusal(
    UnsupportedError,
    "DynamicLossScale: expected no {name} under strict, got {got!r}; "
    "the original has no such option; leave strict off.",
)
CONFIG_NOT_A_DICT = Refusal(
    DtypeError,
    "{owner}.from_config: expected a dict, got {got!r}; "
    "pass what get_config() returned.",
)
BAD_IDENTIFIER = Refusal(
    UnknownNameError,
    "loss_scale: expected a number, 'dynamic' or a loss scale, got {got}; {remedy}.",
)
INTEGER_GRADIENTS = Refusal(
    DtypeError,
    "DynamicLossScale: expected floating-point gradients, got {got}; "
    "cast the gradients.",
)
# quirks.dynamic_scale_dense_shape
WITHOUT_DENSE_SHAPE = Refusal(
    UnsupportedError,
    "DynamicLossScale: expected a dense shape for {name}, got None; "
    "the original cannot sum its rows; leave strict off.",
)

# AutomaticLossScaler.

PARAMS_NOT_A_DICT = Refusal(
    OutOfRangeError,
    "AutomaticLossScaler: params: expected a dict or None, got {got!r}; "
    "write {{{example!r}: 1.0}}, for example.",
)
PARAMETER_TYPE = Refusal(
    OutOfRangeError,
    "AutomaticLossScaler: {name}: expected {expected:a}, got {got!r}; "
    "convert it with {expected}(...).",
)
SEVERAL_DTYPES = Refusal(
    DtypeError,
    "AutomaticLossScaler.check_grads: expected gradients of one dtype, got {got}; "
    "cast them to one dtype first.",
)
AMAX_DTYPE = Refusal(
    DtypeError,
    "AutomaticLossScaler.update_op: expected a float32 amax, got {got}; "
    "cast it, or leave strict off.",
)

# The wrapper that scales the loss; `owner` may be the masters' wrapper, too.

MISSING_LOSS_SCALE = Refusal(
    MissingLossScaleError,
    "MixedPrecisionLossScaleOptimizer: expected a loss scale, got None; "
    "give a number or 'dynamic'.",
)
SCALED_TWICE = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer whose loss is not scaled yet, got {got}; "
    "let one of the two scale, and give it the loss scale.",
)
UNSCALED_TWICE = Refusal(
    UnscaledTwiceError,
    "{owner}: expected one unscaling of the gradients before each step, "
    "got a second one; {remedy}.",
)
GRADIENTS_NOT_LISTED = Refusal(
    MalformedPairsError,
    "{owner}.unscale_gradients: expected a list of gradients, got {got}; "
    "pass what the tape returned for a list of variables.",
)
GRADIENTS_IN_PAIRS = Refusal(
    MalformedPairsError,
    "{owner}.unscale_gradients: expected gradients, got a tuple; "
    "pass the gradients alone, without their variables.",
)
BAD_AT_FLOOR = Refusal(
    OutOfRangeError,
    "{owner}: at_floor: expected {expected}, got {got!r}; "
    "say what a stalled run is to do.",
)
CLIP_NORM_UNDER_STRICT = Refusal(
    UnsupportedError,
    "{owner}: expected no clip_norm under strict, got {got!r}; "
    "the original does not clip; leave strict off.",
)
# quirks.loss_scale_float16
HALF_PRECISION = Refusal(
    DtypeError,
    "MixedPrecisionLossScaleOptimizer: expected float32, got {what} in float16; "
    "the original cannot scale it; leave strict off.",
)
STALLED = Refusal(
    ScaleStalledError,
    "{owner}: expected a finite step now and then, "
    "got {skips} skipped in a row at loss scale {scale}, not finite: {names}; "
    "look at these gradients, or lower the floor.",
)
