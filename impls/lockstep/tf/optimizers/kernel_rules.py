"""TensorFlow's Adam and RMSProp, with a check of the variables' dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.messages import tf as words
from lockstep.quirks import quirks_of
from lockstep.tf.base.pairs import name_of
from lockstep.tf.shared.tensors.gradients import HALF

__all__ = ["AdamOptimizer", "RMSPropOptimizer"]

v1 = tf.compat.v1


class AdamOptimizer(v1.train.AdamOptimizer):
    """TensorFlow's Adam; raises for variables whose dtype would make it divide by 0.

    TensorFlow's kernels round the hyper-parameters to the dtype of the variable. If
    1 - beta1, 1 - beta2 or epsilon becomes 0, weights reach 1e20 or NaN in a few steps.

    Args:
        learning_rate, beta1, beta2, epsilon: as in TensorFlow's AdamOptimizer.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        use_own_namescope_for_non_slot_vars: as in TensorFlow 2.
        strict: as in the original, raise for no dtype.

    Raises:
        UnsupportedError: a ValueError, from ``apply_gradients``; such a variable.

    Example:
        >>> w = tf.Variable([1.0])
        >>> _ = AdamOptimizer(0.5).apply_gradients([(tf.ones([1]), w)])
        >>> w.numpy().round(4).tolist()
        [0.5]
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable[[], Any] = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
        strict: bool = False,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            use_locking,
            name,
            use_own_namescope_for_non_slot_vars,
        )
        self.strict = strict

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        if not quirks_of(self.strict).half_precision_scalars:
            rests = {"1 - beta1": self._beta1, "1 - beta2": self._beta2}
            require_scalars(type(self).__name__, var_list, rests, self._epsilon)
        super()._create_slots(var_list)


class RMSPropOptimizer(v1.train.RMSPropOptimizer):
    """TensorFlow's RMSProp; raises if a variable's dtype rounds its scalars to 0.

    TensorFlow's kernels round the hyper-parameters to the dtype of the variable. If
    1 - decay becomes 0, the mean square never changes. If epsilon becomes 0, zero
    gradients eventually give NaN.

    Args:
        learning_rate, decay, momentum, epsilon: as in TensorFlow's RMSPropOptimizer.
        use_locking: lock a variable while it is updated.
        centered: subtract the square of the mean from the mean square.
        name: name of the operations, and of the slots in checkpoints.
        strict: as in the original, raise for no dtype.

    Raises:
        UnsupportedError: a ValueError, from ``apply_gradients``; such a variable.

    Example:
        >>> w = tf.Variable([1.0])
        >>> _ = RMSPropOptimizer(0.5).apply_gradients([(tf.ones([1]), w)])
        >>> w.numpy().tolist()
        [0.5]
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable[[], Any],
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        strict: bool = False,
    ) -> None:
        super().__init__(
            learning_rate, decay, momentum, epsilon, use_locking, centered, name
        )
        self.strict = strict

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        if not quirks_of(self.strict).half_precision_scalars:
            rests = {"1 - decay": self._decay}
            require_scalars(type(self).__name__, var_list, rests, self._epsilon)
        super()._create_slots(var_list)


def require_scalars(
    owner: str,
    var_list: Iterable[tf.Variable],
    rests: Mapping[str, Any],
    epsilon: Any,
) -> None:
    """Raise for a variable whose dtype rounds a scalar that is not 0 to 0.

    Args:
        owner: the class name in messages.
        var_list: the variables.
        rests: name of 1 - beta -> beta.
        epsilon: the term that is added to a denominator.
    """
    by_dtype = {variable.dtype.base_dtype: variable for variable in var_list}
    for dtype in [dtype for dtype in HALF if dtype in by_dtype]:
        lost = lost_scalar(dtype.as_numpy_dtype, rests, epsilon)
        if lost is not None:
            scalar, value = lost
            raise words.LOST_SCALAR.error(
                owner=owner,
                scalar=scalar,
                value=value,
                variable=name_of(by_dtype[dtype]),
                dtype=dtype.name,
            )


def lost_scalar(
    kind: Any, rests: Mapping[str, Any], epsilon: Any
) -> tuple[str, float] | None:
    """Return the name and the value of a scalar that a dtype rounds to 0, or None."""
    for name, beta in rests.items():
        known = known_value(beta)
        if known is not None and known < 1 and kind(1) - kind(known) == 0:
            return name, 1 - known
    known = known_value(epsilon)
    if known and kind(known) == 0:
        return "epsilon", known
    return None


def known_value(number: Any) -> float | None:
    """Return the value of a hyper-parameter, or None if it is not known yet."""
    number = number() if callable(number) else number
    known = tf.get_static_value(number) if tf.is_tensor(number) else number
    return None if known is None else float(np.asarray(known, np.float64))
