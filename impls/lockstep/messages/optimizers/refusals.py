"""The errors of optimizers under strict, where the original fails."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    OutOfRangeError,
    Refusal,
)

# quirks.ftrl_zero_rate
ZERO_RATE = Refusal(
    OutOfRangeError,
    "{owner}: expected learning_rate > 0, got 0; "
    "the original fails at rate 0; leave strict off to skip the step.",
)
PAIRS_NOT_LISTED = Refusal(
    MalformedPairsError,
    "NovoGrad: expected a list of (gradient, variable), as the original, got {got}; "
    "leave strict off, or pass list(pairs).",
)
ABSENT_GRADIENT = Refusal(
    NoGradientsError,
    "NovoGrad: expected a gradient for every variable, as the original, "
    "got None for {names}; leave strict off, or leave such variables out.",
)
NOT_FLOAT32 = Refusal(
    DtypeError,
    "NovoGrad: expected float32 for {name!r}, as the original, got {got}; "
    "leave strict off, or train float32 masters.",
)
# quirks.novograd_limits
DECAY_AS_TENSOR = Refusal(
    DtypeError,
    "NovoGrad: weight_decay: expected a number, as the original, got a tensor; "
    "leave strict off, or give a number.",
)
