"""Training of half-precision variables through float32 masters (Keras 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import (
    Gradient,
    Pairs,
    TrainV1,
    merge,
    refuse_unbuilt,
    replica_count,
    value_of,
    without_duplicates,
)
from lockstep.keras3.loss_scaling import ScalingWrapper
from lockstep.tf.shared.gradients import (
    HALF,
    MODEL,
    follow,
    key_of,
    name_of,
    saturating_cast,
    times,
    widen,
)
from lockstep.tf.shared.loss_scales import (
    AutomaticLossScaler,
    DynamicLossScale,
    LossScale,
    scale_of,
)
from lockstep.tf.shared.scaling import PATIENCE, ScaledStep, penalty_gradient

OWNER = "MixedPrecisionOptimizerWrapper"

Regularizer = Callable[[Any], Any]
registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class MixedPrecisionOptimizerWrapper(ScalingWrapper):
    """Train half-precision variables through float32 masters, with a scaled loss.

    A step: g = (float32(d(s loss)/dw) + s d reg(m)/dm) (1/s), where s is the loss
    scale, m the master of w, and reg the regularizer of w from
    ``mp_regularizer_wrapper``. If every gradient is finite, ``optimizer`` updates the
    masters, and w = max(min(m, L), -L) rounded, L = 65504 for float16. Otherwise
    weights, masters, slots and ``iterations`` do not change. Then the scale is updated,
    once. Variables of other dtypes are their own masters; with the policy
    ``mixed_float16`` these are all.

    ``fit`` and ``scale_loss`` scale as in
    :class:`~lockstep.keras3.MixedPrecisionLossScaleOptimizer`. As there, make this the
    outermost wrapper. ``compute_gradients`` returns (float32 gradient, master) with the
    complete g; gradients of the model's variables become g when they are applied. If w
    changes between steps, by ``model.load_weights`` for example, m is updated from it.

    Args:
        optimizer: any Keras optimizer, or a wrapper; it may already be built only if no
            variable has a master. Row clipping goes inside, with the model's variables
            or their paths as keys.
        loss_scale: a number > 0, None for 1, ``dynamic``, an ``AutomaticLossScaler`` or
            a loss scale.
        clip_norm, at_floor, floor_patience: as in
            :class:`~lockstep.keras3.MixedPrecisionLossScaleOptimizer`. A number never
            changes, so it is always at its floor.

    Attributes:
        inner_optimizer: ``optimizer``; its slots belong to the masters.
        scale_object: the scale: a float, or an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.scalers.ScaledStepReport`. Steps in graphs and inside of a
            ``tf.function``, where ``fit`` takes its own, are not reported.
        skipped_steps, skipped_in_a_row: all skipped steps, and those since the last
            step that was not skipped: int64 tensors, saved.

    Raises:
        NotScalableError: a ValueError and TypeError; ``optimizer`` is no Keras
            optimizer.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.

    State: masters (slots named ``master``), scale and counts are in ``variables`` and
    in ``.keras`` files.

    Origin: OpenSeq2Seq, ``MixedPrecisionOptimizerWrapper``; P. Micikevicius et al.,
    "Mixed Precision Training".

    Example:
        >>> w = keras.Variable([1.0, 2.0], dtype="float16")
        >>> sgd = keras.optimizers.SGD(2**-12)
        >>> opt = MixedPrecisionOptimizerWrapper(sgd, 8.0)
        >>> for _ in range(3):
        ...     _ = opt.minimize(lambda: keras.ops.sum(w), var_list=[w])
        >>> w.numpy().tolist(), opt.master(w).numpy().tolist()
        ([0.9990234375, 1.9990234375], [0.999267578125, 1.999267578125])
    """

    argument = "optimizer"
    sums_duplicates = False

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        loss_scale: float | str | AutomaticLossScaler | LossScale | None = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
    ) -> None:
        scales = scale_of(loss_scale, DynamicLossScale)
        super().__init__(optimizer, *scales, clip_norm, at_floor, floor_patience)

    @property
    def masters(self) -> list[keras.Variable]:
        """The masters that exist, in the order of the variables."""
        return [] if self._slots is None else list(self._slots.masters.values())

    def master(self, variable: Any) -> Any:
        """Return the variable that is updated: the master of ``variable``, or itself.

        Raises:
            UnsupportedError: a ValueError; the optimizer is not built.
        """
        if self._slots is None:
            refuse_unbuilt(OWNER)
        return self._slots.master_of(variable)

    def trains_master(self, variable: Any) -> bool:
        """Whether a variable is trained through a master of its own."""
        return value_of(variable).dtype in HALF

    def build_inner(self, variables: list[Any]) -> stack.Slots:
        """Create the masters, and build the wrapped optimizer for them."""
        half = [variable for variable in variables if self.trains_master(variable)]
        base = self.base_optimizer
        if half:
            stack.refuse_several(base, OWNER, "make the variables float32")
        if half and base.built:
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer that is not built yet, for the masters"
                f" of {name_of(half[0])!r}, got one that is built; wrap the optimizer "
                "before it is built."
            )
        masters = {key_of(variable): self._make_master(variable) for variable in half}
        for variable in half:
            # The user may have excluded it, by name or by identity.
            decays = base._use_weight_decay(variable)
            key = base._var_key(masters[key_of(variable)])
            base._exclude_from_weight_decay_cache[key] = decays
        slots = super().build_inner([masters.get(key_of(v), v) for v in variables])
        for variable in half:
            slots.add_master(variable, masters[key_of(variable)])
        return slots

    def _make_master(self, variable: Any) -> keras.Variable:
        """Create a float32 variable with the value and the constraint of another."""
        wide = tf.cast(value_of(variable).read_value(), tf.float32)
        master = self.add_variable(
            shape=variable.shape,
            initializer=lambda shape, dtype=None: wide,
            dtype="float32",
            name=f"{name_of(variable).replace('/', '_')}_master",
        )
        # Reports name the variable, and row clipping inside finds it.
        vars(master)[MODEL] = variable
        master.constraint = getattr(variable, "constraint", None)
        return master

    def _differentiate(self, loss: Any, variables: list[Any], grad_loss: Any) -> Pairs:
        """Return unscaled float32 gradients of the scaled loss, with the masters.

        A sparse gradient stays sparse unless a regularizer adds a dense one. float64
        stays float64. The first call builds the optimizer with these variables.
        """
        pairs = TrainV1._differentiate(self, loss, variables, grad_loss)

        def prepare(*shares: Any) -> None:
            self.ensure_built(variables)
            self._follow_models(variables)

        merge(OWNER, [], prepare)
        masters = list(map(self._slots.master_of, variables))
        return self._of_masters(pairs, masters, replica_count())

    def _follow_models(self, variables: Iterable[Any]) -> list[Any]:
        """Return the masters; where a variable was written outside, they follow it."""
        variables = list(variables)
        masters = list(map(self._slots.master_of, variables))
        pairs = [
            (value_of(master), value_of(variable))
            for master, variable in zip(masters, variables, strict=True)
            if master is not variable
        ]

        def is_rounded(own: tf.Variable, model: tf.Variable) -> tf.Tensor:
            rounded = saturating_cast(own.read_value(), model.dtype)
            return tf.reduce_all(tf.equal(rounded, model.read_value()))

        def write() -> tf.Tensor:
            for own, model in pairs:
                values = follow(own.read_value(), model.read_value())
                own.assign(values, read_value=False)
            return tf.constant(True)

        if pairs:
            alike = tf.reduce_all([is_rounded(*pair) for pair in pairs])
            tf.cond(alike, lambda: tf.constant(False), write)
        return masters

    def _of_masters(self, pairs: Pairs, masters: list[Any], sharers: int = 1) -> Pairs:
        """Return (unscaled float32 gradient, master); ``sharers`` will be summed."""
        factor = self._divisor.look(self._iterations.value)
        factor = factor if sharers == 1 else factor / sharers
        of_masters: Pairs = []
        for (gradient, variable), master in zip(pairs, masters, strict=True):
            if master is not variable:
                wide = None if gradient is None else widen(gradient)
                gradient = regularized(wide, master, variable, factor)
            of_masters.append((gradient, master))
        return self.unscaled(of_masters)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Update the masters and round them into the model, if all are finite."""
        masters = self._follow_models(variables)
        pairs = self._of_masters(list(zip(gradients, variables, strict=True)), masters)
        summed = [(without_duplicates(g), v) for g, v in pairs]
        values = [getattr(g, "values", g) for g, _ in summed if g is not None]
        step = ScaledStep(summed, values)
        self._look(step)
        if isinstance(self.scale_object, AutomaticLossScaler):
            step.look_at_largest(pairs, self.scale_object.check_grads)
        self.step_or_skip(step)

    def _take_step(self, pairs: Pairs) -> None:
        """Update the masters with the wrapped optimizer; round them into the model."""
        masters = [master for gradient, master in pairs if gradient is not None]
        overwrites = self.use_ema and self.ema_overwrite_frequency
        if overwrites or self.gradient_accumulation_steps:
            # Averages, and sums of earlier gradients, also change other masters.
            masters = self._follow_models(self._trainable_variables)
        super()._take_step(pairs)
        self._round(masters)

    def _round(self, masters: Iterable[Any]) -> None:
        """Round the values of masters into their variables."""
        for master in masters:
            variable = self._slots.model_of(master)
            if variable is not master:
                own, model = value_of(master), value_of(variable)
                values = saturating_cast(own.read_value(), model.dtype)
                model.assign(values, read_value=False)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """After training, assign the wrapped optimizer's moving averages."""
        masters = list(map(self._slots.master_of, var_list))
        super().finalize_variable_values(masters)
        self._round(masters)


# -- regularizers ----------------------------------------------------------------------


@registered
class MasterRegularizer(keras.regularizers.Regularizer):
    """The regularizer that :func:`mp_regularizer_wrapper` returns."""

    def __init__(self, regularizer: Regularizer) -> None:
        self.regularizer = regularizer

    @tf.autograph.experimental.do_not_convert
    def __call__(self, weights: Any) -> Any:
        """Return the penalty of ``weights``; 0 if the optimizer adds its gradient."""
        # While a layer is called, Keras' dtype of a weight is that of its arithmetic.
        has_master = tf.as_dtype(value_of(weights).dtype) in HALF
        if not has_master or not isinstance(weights, keras.Variable | tf.Variable):
            return self.regularizer(weights)
        weights.regularizer = self
        return tf.zeros(())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"regularizer": keras.saving.serialize_keras_object(self.regularizer)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MasterRegularizer:
        """Create a regularizer from the result of ``get_config``."""
        return cls(keras.saving.deserialize_keras_object(config["regularizer"]))


def mp_regularizer_wrapper(regularizer: Regularizer) -> MasterRegularizer:
    """Leave the regularization of half-precision weights to the optimizer.

    ``MixedPrecisionOptimizerWrapper`` adds d regularizer(master)/d master to the
    gradient of the master, because in half precision a gradient such as 1e-4 w would
    underflow.

    float32 weight w: returns regularizer(w). float16 or bfloat16 variable: returns 0,
    which Keras can add to a loss. The weight stores it as its ``regularizer``, as with
    ``kernel_regularizer`` of a layer; the last one is used.

    Args:
        regularizer: weight -> penalty, 0-d, or None.

    Origin: OpenSeq2Seq, ``mp_regularizer_wrapper``, which returns None instead of 0.

    Example:
        >>> half = keras.Variable([1.0, 2.0], dtype="float16")
        >>> regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
        >>> full = keras.ops.array([1.0, 2.0])
        >>> float(regularizer(half)), float(regularizer(full))
        (0.0, 2.5)
    """
    return MasterRegularizer(regularizer)


def regularized(
    gradient: Gradient, master: Any, variable: Any, factor: tf.Tensor
) -> Gradient:
    """Return gradient + factor d regularizer(m)/dm, m the master, dense if both are."""
    known = getattr(variable, "regularizer", None)
    if not isinstance(known, MasterRegularizer):
        return gradient
    slope = penalty_gradient(known.regularizer, value_of(master).read_value())
    if slope is None:
        return gradient
    slope = times(slope, factor)
    return slope if gradient is None else tf.convert_to_tensor(gradient) + slope
