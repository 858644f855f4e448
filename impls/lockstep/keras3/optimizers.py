"""The optimizers of TensorFlow 1 by name, with Keras' rules.

They are Keras' own optimizers with the constructors of ``tf.compat.v1.train``. Epsilons
and initial values of slots are set so that both rules are equal where Keras' rule
allows it; each class says whether they are. All accept the options of every Keras
optimizer (``clipnorm``, ``use_ema``, ...) as keyword arguments. ``learning_rate`` is a
number, a ``LearningRateSchedule`` or a callable. ``use_locking`` has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import (
    StateList,
    TrainV1,
    for_all_replicas,
    value_of,
    without_duplicates,
)
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec
from lockstep.tf.shared.gradients import densify, name_of

registered = keras.saving.register_keras_serializable(package="lockstep")


class RuleOptimizer(TrainV1):
    """The base class of this package's optimizers, next to a class of Keras.

    Attributes:
        spec: TensorFlow 1's arguments and slots.
        renamed: its arguments -> Keras' names of them.
        fixed: Keras' arguments that TensorFlow 1 does not have.
        keeps_duplicates: whether duplicate rows of a sparse gradient stay unsummed.
        widens_half: whether half precision is computed, and has its slots, in float32.
            In bfloat16 a beta2 of 0.999 becomes 1, in float16 an epsilon of 1e-8
            becomes 0, so Keras' rules would stop there or divide 0 by 0.
    """

    spec: OptimizerSpec
    renamed: ClassVar[Mapping[str, str]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}
    keeps_duplicates = False
    widens_half = False

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Create Keras' optimizer; ``arguments``: a constructor's ``locals()``."""
        rate = arguments["learning_rate"]
        own = {p.name: arguments[p.name] for p in self.spec.parameters}
        bound = self.spec.bind(
            (), {**own, "learning_rate": 0.0 if callable(rate) else rate}
        )
        values = {
            theirs: bound[ours] if isinstance(bound[ours], bool) else float(bound[ours])
            for ours, theirs in self.renamed.items()
        }
        super().__init__(
            learning_rate=rate if callable(rate) else float(rate),
            name=arguments["name"],
            **values,
            **self.fixed,
            **arguments["options"],
        )
        vars(self).update(_slots=stack.Slots(), bound=bound)

    @property
    def variables(self) -> StateList:
        """All state; both Keras' property and TensorFlow 1's method."""
        return StateList(super().variables)

    def _widens(self, variable: Any) -> bool:
        """Whether a variable is updated in float32 instead of its own dtype."""
        return self.widens_half and tf.as_dtype(variable.dtype).size < 4

    def _slot_layout(self, variable: Any, name: str) -> tuple[Any, str] | None:
        """Return shape and dtype of a slot, unless they are those of its variable."""
        # Keras adds gradients to its accumulator, so that has their dtype.
        widens = self._widens(variable) and name != stack.ACCUMULATOR
        return (variable.shape, "float32") if widens else None

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Create a slot with TensorFlow 1's initial value."""
        name = name or "var"
        tf_name = stack.tf_slot_name(self, name)
        for slot in self.spec.active_slots(self.bound):
            if slot.name == tf_name:
                first = self.spec.initial_value(slot, self.bound)
                initializer = keras.initializers.Constant(first)
        layout = self._slot_layout(reference_variable, name)
        if layout is None:
            variable = super().add_variable_from_reference(
                reference_variable, name, initializer
            )
        else:
            path = name_of(reference_variable).replace("/", "_")
            shape, dtype = layout
            variable = self.add_variable(
                shape, initializer, dtype, name=f"{path}_{name}"
            )
        self._slots.add(reference_variable, tf_name, variable)
        return variable

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step as in Keras, but with the duplicate rows of slices summed."""
        variables = trainable_variables
        variables = self._trainable_variables if variables is None else list(variables)

        def step(gradients: list[Any]) -> None:
            if not self.keeps_duplicates:
                gradients = [without_duplicates(gradient) for gradient in gradients]
            super(RuleOptimizer, self).apply(gradients, trainable_variables)

        if tf.distribute.has_strategy():
            owner = type(self).__name__
            build = lambda _: self.ensure_built(variables)  # noqa: E731
            for_all_replicas(owner, build, step, list(grads), variables)
        else:
            step(list(grads))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply Keras' rule, unless there are no elements: its sum fails for [0, 3]."""
        variable = Wide(variable) if self._widens(variable) else variable
        if 0 not in variable.shape:
            super().update_step(gradient, variable, learning_rate)

    def assign_sub(self, variable: Any, value: Any) -> None:
        """Subtract from a variable; the rule calls this with the change."""
        if isinstance(variable, Wide):
            variable.subtract(tf.convert_to_tensor(value))
        else:
            super().assign_sub(variable, value)

    def _var_key(self, variable: Any) -> Any:
        known = variable.variable if isinstance(variable, Wide) else variable
        return super()._var_key(known)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        config = super().get_config()
        named = {ours: config.pop(theirs) for ours, theirs in self.renamed.items()}
        unnamed = {*self.fixed, *self.renamed.values()}
        return {k: v for k, v in config.items() if k not in unnamed} | named


class Wide:
    """A float32 stand-in for a half-precision variable during an update."""

    dtype = "float32"

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.shape = variable.shape

    def subtract(self, change: tf.Tensor) -> None:
        """Subtract in float32 and round once."""
        value = value_of(self.variable)
        wide = tf.cast(value.read_value(), tf.float32) - change
        value.assign(tf.cast(wide, value.dtype))


@registered
class GradientDescentOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """``keras.optimizers.SGD`` without momentum, which is TensorFlow 1's rule.

    w -= lr g. If a sparse gradient lists a row several times, it is updated each time.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.GradientDescentOptimizer``.
    """

    spec = OPTIMIZERS["GradientDescent"]
    fixed: ClassVar = {"momentum": 0.0, "nesterov": False}
    keeps_duplicates = True

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
        **options: Any,
    ) -> None:
        super().__init__(locals())


@registered
class MomentumOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """``keras.optimizers.SGD`` with momentum; the slot includes the rate.

    m = mu m - lr g; w += m (Nesterov: w += mu m - lr g). At a constant rate the
    variables equal those of TensorFlow 1, whose slot is a = mu a + g. Here the slot is
    -lr a, so after a change of the rate old gradients keep the old rate. Without
    momentum there is no slot.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        momentum: mu, in [0, 1].
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        use_nesterov: look ahead, as Nesterov did.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.MomentumOptimizer``; Sutskever et al. 2013.
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
        super().__init__(locals())


@registered
class AdamOptimizer(RuleOptimizer, keras.optimizers.Adam):
    """``keras.optimizers.Adam`` in the "epsilon hat" form of TensorFlow 1.

    m += (1 - b1) (g - m); v += (1 - b2) (g^2 - v);
    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), t = ``iterations`` + 1.

    Rounding differs from TensorFlow 1: 1 - b1 and 1 - b2 are computed in float64, and
    the powers from t instead of step by step. A sparse gradient updates every row. Half
    precision is computed in float32.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        beta1: decay of m, b1 in [0, 1).
        beta2: decay of v, b2 in [0, 1).
        epsilon: eps >= 0, added to the root of the uncorrected v.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        use_own_namescope_for_non_slot_vars: no effect, because the powers are not
            variables.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.AdamOptimizer``; Kingma and Ba 2015.
    """

    spec = OPTIMIZERS["Adam"]
    renamed: ClassVar = {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"}
    fixed: ClassVar = {"amsgrad": False}
    widens_half = True

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(locals())


@registered
class AdamWOptimizer(RuleOptimizer, keras.optimizers.AdamW):
    """``keras.optimizers.AdamW``, whose decay is multiplied by the rate.

    w -= lr weight_decay w, then as in :class:`AdamOptimizer`. TensorFlow 1's decay is
    not multiplied by the rate. To get its strength at a constant rate, pass
    ``weight_decay / learning_rate``. Half precision is computed in float32.

    Args:
        weight_decay: the fraction of a weight that an update at rate 1 subtracts, >= 0.
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        epsilon: eps >= 0, added to the root of the uncorrected v.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AdamWOptimizer``; Loshchilov and Hutter
    2019.
    """

    spec = OPTIMIZERS["AdamW"]
    renamed: ClassVar = {
        "weight_decay": "weight_decay",
        "beta1": "beta_1",
        "beta2": "beta_2",
        "epsilon": "epsilon",
    }
    fixed: ClassVar = {"amsgrad": False}
    widens_half = True

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
        super().__init__(locals())


@registered
class AdagradOptimizer(RuleOptimizer, keras.optimizers.Adagrad):
    """``keras.optimizers.Adagrad`` with epsilon 0, which is TensorFlow 1's rule.

    acc += g^2; w -= lr g / sqrt(acc), without an epsilon.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        initial_accumulator_value: of acc, > 0.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.AdagradOptimizer``; Duchi et al. 2011.
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
        super().__init__(locals())

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule; for a sparse gradient to its rows.

        Keras' own division skips duplicate indices if a divisor is NaN.
        """
        if not isinstance(gradient, tf.IndexedSlices) or 0 in variable.shape:
            super().update_step(gradient, variable, learning_rate)
            return
        accumulator = self._accumulators[self._get_variable_index(variable)]
        values, where = gradient.values, (gradient.indices, gradient.dense_shape)
        self.assign_add(accumulator, tf.IndexedSlices(tf.square(values), *where))
        rate = tf.cast(value_of(learning_rate), values.dtype)
        divisor = tf.sqrt(tf.gather(value_of(accumulator), gradient.indices))
        self.assign_sub(variable, tf.IndexedSlices(rate * values / divisor, *where))


@registered
class RMSPropOptimizer(RuleOptimizer, keras.optimizers.RMSprop):
    """``keras.optimizers.RMSprop`` with a mean square that starts at one.

    rms += (1 - d) (g^2 - rms); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.
    Centered: mg += (1 - d) (g - mg), and the root is that of rms - mg^2 + eps.

    Without momentum there is no momentum slot. Half precision is computed in float32.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        decay: d, in [0, 1].
        momentum: mu, in [0, 1].
        epsilon: eps >= 0, inside of the root.
        use_locking: without effect.
        centered: subtract the square of the mean gradient.
        name: the name that ``get_name`` returns.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.RMSPropOptimizer``; Tieleman and Hinton 2012.
    """

    spec = OPTIMIZERS["RMSProp"]
    renamed: ClassVar = {
        "decay": "rho",
        "momentum": "momentum",
        "epsilon": "epsilon",
        "centered": "centered",
    }
    widens_half = True

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
        super().__init__(locals())

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule to every row, as in Keras, but without Keras' row division.

        That division skips duplicate indices if a divisor is NaN.
        """
        if isinstance(gradient, tf.IndexedSlices):
            gradient = densify(gradient, variable)
        super().update_step(gradient, variable, learning_rate)


@registered
class FtrlOptimizer(RuleOptimizer, keras.optimizers.Ftrl):
    """``keras.optimizers.Ftrl`` that takes no step at a rate of 0, as in a warm-up.

        G = g + 2 s w;  n = accum + g^2
        linear += G - (n^-p - accum^-p) / lr w;  accum = n
        w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2), or 0 if abs(linear) <= l1

    At a rate of 0 the original fails, and Keras' rule gives NaN.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        learning_rate_power: p <= 0.
        initial_accumulator_value: of accum, >= 0.
        l1_regularization_strength: l1 >= 0.
        l2_regularization_strength: l2 >= 0.
        use_locking, accum_name, linear_name: without effect.
        name: the name that ``get_name`` returns.
        l2_shrinkage_regularization_strength: s >= 0.
        beta: TensorFlow 2's argument: l2 grows by beta / (2 lr); None: 0.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.FtrlOptimizer``; McMahan et al. 2013.
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
        **options: Any,
    ) -> None:
        options["beta"] = 0.0 if beta is None else float(beta)
        super().__init__(locals())

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule; at a rate of 0 nothing changes."""
        rate = tf.cast(value_of(learning_rate), variable.dtype)
        stands = tf.equal(rate, 0)
        state = [value_of(variable), *map(value_of, self._slots.of(variable).values())]
        with stack.preserved([state], [stands]):
            safe = tf.where(stands, tf.ones_like(rate), rate)
            super().update_step(gradient, variable, safe)
