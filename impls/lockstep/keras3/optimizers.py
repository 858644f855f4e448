"""The optimizers of TensorFlow 1 by name, with Keras' rules.

They are Keras' own optimizers with the constructors of ``tf.compat.v1.train``. Epsilons
and first values of slots are set so that the two rules coincide wherever Keras' has
room for it; each class says whether they do. All take the options of every optimizer of
Keras (``clipnorm``, ``use_ema``, ...) as keyword arguments, and as ``learning_rate`` a
number, a ``LearningRateSchedule`` or a callable. ``use_locking`` has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from lockstep.keras3.gradients import value_of, without_duplicates
from lockstep.keras3.preserved import preserved
from lockstep.keras3.slots import Slots
from lockstep.keras3.train_v1 import StateList, TrainV1
from lockstep.spec import keras_host as words
from lockstep.spec.optimizers import OPTIMIZERS, OptimizerSpec

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "RMSPropOptimizer",
]

registered = keras.saving.register_keras_serializable(package="lockstep")


class RuleOptimizer(TrainV1):
    """What the optimizers of this module have in common, beside a class of Keras.

    ``renamed`` maps the arguments to Keras' names, ``fixed`` holds Keras' arguments
    that TensorFlow 1 does not have.
    """

    spec: OptimizerSpec
    renamed: Mapping[str, str]
    fixed: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self, given: dict[str, Any], name: str, options: Mapping[str, Any]
    ) -> None:
        rate = given.pop("learning_rate")
        numbers = given if callable(rate) else {**given, "learning_rate": rate}
        bound = self.spec.bind((), {"learning_rate": 0.0, **numbers})
        values = {
            self.renamed[key]: value if isinstance(value, bool) else float(value)
            for key, value in bound.items()
            if key in self.renamed
        }
        rate = rate if callable(rate) else float(rate)
        super().__init__(
            learning_rate=rate, name=name, **values, **self.fixed, **options
        )
        vars(self).update(_slots=Slots(), bound=bound)

    @property
    def variables(self) -> StateList:
        """All state; Keras' property and TensorFlow 1's method at once."""
        return StateList(super().variables)

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Make a slot, filled as TensorFlow 1 fills it."""
        classes = [cls.__name__ for cls in type(self).__mro__]
        tf_name = words.tf_slot_name(classes, name or "var")
        for slot in self.spec.active_slots(self.bound):
            if slot.name == tf_name:
                first = self.spec.initial_value(slot, self.bound)
                initializer = keras.initializers.Constant(first)
        made = super().add_variable_from_reference(
            reference_variable, name, initializer
        )
        self._slots.add(reference_variable, tf_name, made)
        return made

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step as Keras does, with the duplicate rows of slices summed first."""
        super().apply([without_duplicates(g) for g in grads], trainable_variables)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        named = {ours: config.pop(theirs) for ours, theirs in self.renamed.items()}
        return {k: v for k, v in config.items() if k not in self.unnamed()} | named

    def unnamed(self) -> set[str]:
        """Return Keras' arguments that the constructor here does not have."""
        return {*self.fixed, *self.renamed.values()}


@registered
class GradientDescentOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """w -= lr g. The rule of ``keras.optimizers.SGD`` is TensorFlow 1's."""

    spec = OPTIMIZERS["GradientDescent"]
    renamed: ClassVar = {}
    fixed: ClassVar = {"momentum": 0.0, "nesterov": False}

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
        **options: Any,
    ) -> None:
        super().__init__({"learning_rate": learning_rate}, name, options)


@registered
class MomentumOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """m = mu m - lr g; w += m (Nesterov: w += mu m - lr g).

    The rule of ``keras.optimizers.SGD``. At a constant rate the variables are those of
    TensorFlow 1, whose slot is a = mu a + g: here it holds -lr a, so that after a
    change of the rate old gradients keep their old one. Without momentum there is no
    slot.
    """

    spec = OPTIMIZERS["Momentum"]
    renamed: ClassVar = {"momentum": "momentum", "use_nesterov": "nesterov"}

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "momentum": momentum}
        super().__init__({**given, "use_nesterov": use_nesterov}, name, options)


@registered
class AdamOptimizer(RuleOptimizer, keras.optimizers.Adam):
    """m += (1-b1)(g-m); v += (1-b2)(g^2-v); w -= lr c m / (sqrt(v) + eps).

    c = sqrt(1 - b2^t) / (1 - b1^t), t = ``iterations`` + 1. The rule of
    ``keras.optimizers.Adam``, which is TensorFlow 1's with other roundings: 1-b1 and
    1-b2 are taken in float64, the powers from t instead of step by step. A sparse
    gradient moves every row, as in TensorFlow 1.
    """

    spec = OPTIMIZERS["Adam"]
    renamed: ClassVar = {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"}
    fixed: ClassVar = {"amsgrad": False}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2}
        super().__init__({**given, "epsilon": epsilon}, name, options)


@registered
class AdamWOptimizer(RuleOptimizer, keras.optimizers.AdamW):
    """w -= lr weight_decay w, then Adam.

    The rule of ``keras.optimizers.AdamW``. TensorFlow 1's decay is not multiplied by
    the rate: for its strength give ``weight_decay / learning_rate``, at a constant
    rate.
    """

    spec = OPTIMIZERS["AdamW"]
    renamed: ClassVar = {
        "weight_decay": "weight_decay",
        "beta1": "beta_1",
        "beta2": "beta_2",
        "epsilon": "epsilon",
    }
    fixed: ClassVar = {"amsgrad": False}

    def __init__(
        self,
        weight_decay: float,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "weight_decay": weight_decay}
        given |= {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        super().__init__(given, name, options)


@registered
class AdagradOptimizer(RuleOptimizer, keras.optimizers.Adagrad):
    """acc += g^2; w -= lr g / sqrt(acc).

    The rule of ``keras.optimizers.Adagrad`` with epsilon 0, which is TensorFlow 1's.
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
        given = {"initial_accumulator_value": initial_accumulator_value}
        super().__init__({"learning_rate": learning_rate, **given}, name, options)


@registered
class RMSPropOptimizer(RuleOptimizer, keras.optimizers.RMSprop):
    """s = d s + (1-d) g^2; m = mu m + lr g / sqrt(s + eps); w -= m.

    The rule of ``keras.optimizers.RMSprop`` with s starting at one, which is TensorFlow
    1's; ``centered`` takes the square of the mean gradient from s. Without momentum
    there is no slot m.
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
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "decay": decay, "momentum": momentum}
        given |= {"epsilon": epsilon, "centered": centered}
        super().__init__(given, name, options)


@registered
class FtrlOptimizer(RuleOptimizer, keras.optimizers.Ftrl):
    """FTRL-proximal with l1, l2 and l2 shrinkage.

    The rule of ``keras.optimizers.Ftrl``, which is TensorFlow 1's. At rate 0 (the first
    step of a warm-up, say) the original fails and Keras' gives NaN; here the variable
    and its slots stay as they are. ``accum_name`` and ``linear_name`` have no effect.

    # Quirk: docs/differences.md#ftrl-zero-rate. ``strict`` raises at rate 0.
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
    fixed: ClassVar = {"beta": 0.0}
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
        given = dict(zip(names, values, strict=True))
        super().__init__(given, name, options)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule; at rate 0 nothing changes."""
        rate = tf.cast(value_of(learning_rate), variable.dtype)
        stands = tf.equal(rate, 0)
        if self.strict:
            refuse_zero(stands)
        state = [value_of(variable), *map(value_of, self._slots.of(variable).values())]
        with preserved([state], [stands]):
            safe = tf.where(stands, tf.ones_like(rate), rate)
            super().update_step(gradient, variable, safe)


def refuse_zero(stands: tf.Tensor) -> None:
    """Raise where the rate is 0: now, or when the graph runs."""
    if not tf.executing_eagerly():
        tf.debugging.assert_equal(stands, False, str(words.zero_rate("FtrlOptimizer")))
    elif stands:
        raise words.zero_rate("FtrlOptimizer")
