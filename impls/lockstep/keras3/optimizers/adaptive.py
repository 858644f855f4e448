"""Adagrad, RMSProp and Ftrl: optimizers with a separate rate for every element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import densify, value_of
from lockstep.keras3.base.slots import preserved
from lockstep.keras3.optimizers.rule_optimizer import RuleOptimizer
from lockstep.keras3.optimizers.widened import WidenedRule
from lockstep.messages.optimizers import refusals
from lockstep.optimizers import OPTIMIZERS

__all__ = ["AdagradOptimizer", "FtrlOptimizer", "RMSPropOptimizer"]

registered = keras.saving.register_keras_serializable(package="lockstep")


@documented
@registered
class AdagradOptimizer(RuleOptimizer, keras.optimizers.Adagrad):
    """``keras.optimizers.Adagrad`` with epsilon 0, which is TensorFlow 1's rule.

    ...

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
    """

    spec = OPTIMIZERS["Adagrad"]
    renamed: ClassVar = {"initial_accumulator_value": "initial_accumulator_value"}
    fixed: ClassVar = {"epsilon": 0.0}

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
        **options: Any,
    ) -> None:
        start = {"initial_accumulator_value": initial_accumulator_value}
        super().__init__({"learning_rate": learning_rate, **start}, name, options)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule; for a sparse gradient to its rows.

        Keras' own division skips duplicate indices if a divisor is NaN.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
        elif 0 not in variable.shape:
            self._update_rows(gradient, variable, learning_rate)

    def _update_rows(
        self, rows: tf.IndexedSlices, variable: Any, learning_rate: Any
    ) -> None:
        accumulator = self._accumulators[self._get_variable_index(variable)]
        indices, dense_shape = rows.indices, rows.dense_shape
        squares = tf.IndexedSlices(tf.square(rows.values), indices, dense_shape)
        self.assign_add(accumulator, squares)
        rate = tf.cast(value_of(learning_rate), rows.dtype)
        divisor = tf.sqrt(tf.gather(value_of(accumulator), indices))
        change = tf.IndexedSlices(rate * rows.values / divisor, indices, dense_shape)
        self.assign_sub(variable, change)


@documented
@registered
class RMSPropOptimizer(WidenedRule, keras.optimizers.RMSprop):
    """``keras.optimizers.RMSprop`` with a mean square that starts at one.

    ...

    Without momentum there is no momentum slot. Half precision is computed in float32,
    except under ``strict``.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
    """

    spec = OPTIMIZERS["RMSProp"]
    renamed: ClassVar = {
        "decay": "rho",
        "momentum": "momentum",
        "epsilon": "epsilon",
        "centered": "centered",
    }

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        strict: bool = False,
        **options: Any,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "decay": decay,
            "momentum": momentum,
        }
        arguments |= {"epsilon": epsilon, "centered": centered}
        super().__init__(arguments, name, options)
        self.strict = strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {**super().get_config(), "strict": self.strict}

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule to every row, as in Keras, but without Keras' row division.

        That division skips duplicate indices if a divisor is NaN.
        """
        if isinstance(gradient, tf.IndexedSlices):
            gradient = densify(gradient, variable)
        super().update_step(gradient, variable, learning_rate)


@documented
@registered
class FtrlOptimizer(RuleOptimizer, keras.optimizers.Ftrl):
    """``keras.optimizers.Ftrl`` that takes no step at a rate of 0, as in a warm-up.

    ...

    At a rate of 0 the original fails, and Keras' rule gives NaN.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        beta: TensorFlow 2's argument: l2 grows by beta / (2 lr); None: 0.
        strict: raise at a rate of 0.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
    """

    spec = OPTIMIZERS["Ftrl"]
    renamed: ClassVar = {
        name: name
        for name in (
            "learning_rate_power",
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
        )
    }
    strict = False

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
        strict: bool = False,
        **options: Any,
    ) -> None:
        values = (
            learning_rate,
            learning_rate_power,
            initial_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            l2_shrinkage_regularization_strength,
        )
        names = (parameter.name for parameter in self.spec.parameters)
        arguments = dict(zip(names, values, strict=True))
        beta = 0.0 if beta is None else float(beta)
        super().__init__(arguments, name, {**options, "beta": beta})
        self.strict = strict or type(self).strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {**super().get_config(), "strict": self.strict}

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step; strict: raise at a rate of 0, before anything has changed."""
        refused = []
        if self._quirks.ftrl_zero_rate:
            refused = refuse_zero(tf.equal(self.learning_rate, 0))
        with tf.control_dependencies(refused):
            super().apply(grads, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule; at a rate of 0 nothing changes."""
        rate = tf.cast(value_of(learning_rate), variable.dtype)
        stands = tf.equal(rate, 0)
        state = [value_of(variable), *map(value_of, self._slots.of(variable).values())]
        with preserved([state], [stands]):
            safe = tf.where(stands, tf.ones_like(rate), rate)
            super().update_step(gradient, variable, safe)


def refuse_zero(stands: tf.Tensor) -> list[tf.Operation]:
    """Raise if the rate is 0: now, or when the returned operation runs."""
    if not tf.executing_eagerly():
        text = refusals.ZERO_RATE.text(owner="FtrlOptimizer")
        return [tf.debugging.Assert(tf.logical_not(stands), [text])]
    if stands:
        raise refusals.ZERO_RATE.error(owner="FtrlOptimizer")
    return []
