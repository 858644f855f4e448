"""Values that make no sense, which every backend but PyTorch tells alike.

PyTorch takes complex gradients and has a table of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["bad_values"]


def bad_values(
    lockstep: ModuleType, tensor: Callable[..., Any], variable: Callable[[], Any]
) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return calls by what they protect from, with words of their sentences.

    Args:
        lockstep: the backend.
        tensor: makes a tensor of values; ``dtype`` is float32 unless given.
        variable: makes a variable of two ones.
    """
    return {
        "imaginary parts are not dropped": (
            lambda: lockstep.clip_by_global_norm(
                [tensor(3 + 4j, dtype=np.complex64)], 1
            ),
            "clip_by_global_norm: expected real .*gradients, got complex64",
        ),
        "imaginary parts are not dropped by the other function": (
            lambda: lockstep.clip_gradients_by_global_norm(
                [(tensor(3 + 4j, 1, dtype=np.complex64), variable())]
            ),
            "by_global_norm: expected real .*gradients, got complex64",
        ),
        "integers are not scaled to 0": (
            lambda: lockstep.clip_gradients_by_global_norm(
                [(tensor(3, 4, dtype=np.int64), variable())]
            ),
            "floating-point gradients, got int64",
        ),
        "a limit beyond float32 does not make NaN": (
            lambda: lockstep.clip_by_global_norm([tensor(3, 4)], 1e39),
            "which float32 can divide by, got 1e[+]39",
        ),
        "a bool is no limit": (
            lambda: lockstep.clip_gradients_by_global_norm(
                [(tensor(3, 4), variable())], True
            ),
            "clip_norm: expected a finite number > 0, got True",
        ),
        "a scale that never trains": (
            lambda: lockstep.DynamicLossScale(1e300),
            "initial_loss_scale: expected > 0, finite in float32",
        ),
        "a fixed scale of NaN": (
            lambda: lockstep.FixedLossScale(math.nan),
            "loss_scale_value: expected a number >= 1, got nan",
        ),
        "a config of something else": (
            lambda: lockstep.DynamicLossScale.from_config({"foo": 1}),
            "DynamicLossScale.from_config: argument: expected one of",
        ),
        "a scaler is told a magnitude": (
            lambda: lockstep.AutomaticLossScaler().update_op(False, -1.0),
            "amax: expected a magnitude, >= 0, got -1.0",
        ),
        "a scaler is told a flag": (
            lambda: lockstep.AutomaticLossScaler().update_op(None, 1.0),
            "has_nan: expected a bool, got None",
        ),
        "tensors are not unpacked as pairs": (
            lambda: lockstep.AutomaticLossScaler.check_grads([tensor(1, math.nan)]),
            r"check_grads: expected an iterable of \(gradient, variable\) pairs",
        ),
        "a text is no flag for ranks": (
            lambda: lockstep.reduce_gradients([(tensor(3, 4), variable())], "x"),
            "on_horovod: expected True, got 'x'",
        ),
        "a loss is no list of losses": (
            lambda: lockstep.get_regularization_loss(losses=tensor(1)),
            "losses: expected a mapping or an iterable of losses",
        ),
        "a bool is no rate": (
            lambda: lockstep.lr_policies.fixed_lr(0, True),
            "fixed_lr: learning_rate: expected a finite rate >= 0, got True",
        ),
        "a step is counted in integers": (
            lambda: lockstep.lr_policies.fixed_lr(tensor(2.5), 0.1),
            "global_step: expected an integer >= 0 or a tensor of integers",
        ),
    }
