"""Regularizers with the gradient at the float32 master of a weight (Keras 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import Gradient, value_of
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import quirks_of
from lockstep.tf.shared.tensors.gradients import times

__all__ = ["MasterRegularizer", "mp_regularizer_wrapper", "regularized"]

Regularizer = Callable[[Any], Any]


@keras.saving.register_keras_serializable(package="lockstep")
class MasterRegularizer(keras.regularizers.Regularizer):
    """The regularizer that :func:`mp_regularizer_wrapper` returns."""

    def __init__(self, regularizer: Regularizer, strict: bool = False) -> None:
        words.check_regularizer(regularizer)
        self.regularizer = regularizer
        self.strict = strict

    @tf.autograph.experimental.do_not_convert
    def __call__(self, weights: Any) -> Any:
        """Return the penalty of ``weights``; 0 if the optimizer adds its gradient."""
        # While a layer is called, Keras' dtype of a weight is that of its arithmetic.
        dtype = tf.as_dtype(value_of(weights).dtype).name
        is_variable = isinstance(weights, keras.Variable | tf.Variable)
        quirks = quirks_of(self.strict)
        has_master = words.has_master(dtype, quirks.half_precision_scalars)
        if not has_master or not (is_variable or quirks.masters_regularizer):
            return self.regularizer(weights)
        if is_variable:
            weights.regularizer = self
        return tf.zeros(())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        regularizer = keras.saving.serialize_keras_object(self.regularizer)
        return {"regularizer": regularizer, "strict": self.strict}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MasterRegularizer:
        """Create a regularizer from the result of ``get_config``."""
        inner = keras.saving.deserialize_keras_object(config["regularizer"])
        return cls(inner, config["strict"])


@documented
def mp_regularizer_wrapper(
    regularizer: Regularizer, strict: bool = False
) -> MasterRegularizer:
    """...

    float32 weight w: returns regularizer(w). float16 or bfloat16 variable: returns 0,
    which Keras can add to a loss.

    The weight stores it as its ``regularizer``, as with ``kernel_regularizer`` of a
    layer; the last one is used.

    Args:
        strict: as in the original: bfloat16 weights are regularized directly, and the
            penalty of float16 tensors that are not variables is 0.

    Origin: OpenSeq2Seq, ``mp_regularizer_wrapper``, which returns None instead of 0.

    Example:
        >>> half = keras.Variable([1.0, 2.0], dtype="float16")
        >>> regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
        >>> full = keras.ops.array([1.0, 2.0])
        >>> float(regularizer(half)), float(regularizer(full))
        (0.0, 2.5)
    """
    return MasterRegularizer(regularizer, strict)


def regularized(
    gradient: Gradient, master: Any, variable: Any, factor: tf.Tensor
) -> Gradient:
    """Return gradient + factor d regularizer(m)/dm, m the master; absent: 0.

    ``variable`` is the model's, which has the regularizer. A sparse gradient becomes
    dense if there is a penalty.
    """
    known = getattr(variable, "regularizer", None)
    if not isinstance(known, MasterRegularizer):
        return gradient
    slope = penalty_gradient(known.regularizer, value_of(master).read_value())
    if slope is None:
        return gradient
    slope = times(slope, factor)
    return slope if gradient is None else tf.convert_to_tensor(gradient) + slope


def penalty_gradient(regularizer: Regularizer, weight: tf.Tensor) -> tf.Tensor | None:
    """Return d regularizer(w)/dw, with w's shape; None if the regularizer returns None.

    Unlike in OpenSeq2Seq, there is no collection to which the penalty is added.
    """
    with tf.GradientTape() as tape:
        tape.watch(weight)
        penalty = regularizer(weight)
    if penalty is None:
        return None
    if not tf.is_tensor(penalty):
        raise refusals.PENALTY.error(got=repr(penalty))
    return tape.gradient(penalty, weight)
