"""Loss scaling and masters of :mod:`lockstep.tf.strict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep import tf as default
from lockstep.checks import require
from lockstep.errors import DtypeError, UnsupportedError, UnusableScaleError
from lockstep.scalers import DynamicPolicy
from lockstep.tf import mixed_precision
from lockstep.tf.loss_scaling import ScalingWrapper
from lockstep.tf.shared.gradients import (
    name_of,
    times_reciprocal,
)
from lockstep.tf.shared.loss_scales import scale_for
from lockstep.tf.shared.scaling import ScaledStep
from lockstep.tf.wrapper import (
    Pairs,
    as_variable,
    awaits_sums,
    builds_graph,
    make_together,
    old_name,
    require_optimizer,
    require_resources,
)

v1 = tf.compat.v1
Optimizer = v1.train.Optimizer


class FixedLossScale(default.FixedLossScale):
    """``tf.train.experimental.FixedLossScale``; any number but those below 1.

    An optimizer with this scale applies gradients that are not finite.
    """

    def __init__(self, loss_scale_value: float) -> None:
        value, owner, name = loss_scale_value, "FixedLossScale", "loss_scale_value"
        require(owner, name, value, isinstance(value, int | float), "an int or float")
        require(owner, name, value, not value < 1, "a number >= 1")
        super().__init__(1.0)
        self._value = float(value)


class DynamicLossScale(default.DynamicLossScale):
    """``tf.train.experimental.DynamicLossScale``; unchecked, and the floor is 1.

    An overflow raises a scale below 1 to 1. A sparse gradient needs a dense_shape.
    """

    _initial_loss_scale = old_name("initial_loss_scale")
    _increment_period = old_name("increment_period")
    _multiplier = old_name("multiplier")
    _current_loss_scale = old_name("current_loss_scale")
    _num_good_steps = old_name("good_steps")

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        numbers = float(initial_loss_scale), int(increment_period), float(multiplier)
        self._start(DynamicPolicy(*numbers, floor=1.0))

    @tf.autograph.experimental.do_not_convert
    def update(self, grads: Any) -> tuple[Any, tf.Tensor]:
        """Move the scale by one step; raise for rows that cannot be summed."""
        require_dense_shapes(tf.nest.flatten(grads))
        return super().update(grads)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        names = "initial_loss_scale", "increment_period", "multiplier"
        return {name: getattr(self, name) for name in names}


def require_dense_shapes(gradients: Iterable[Any]) -> None:
    """Raise for a sparse gradient without a dense shape."""
    for gradient in gradients:
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if is_sparse and gradient.dense_shape is None:
            raise UnsupportedError(
                "DynamicLossScale: expected a dense shape for a sparse gradient, got "
                "None; the original cannot sum its rows; use lockstep.tf."
            )


class AutomaticLossScaler(default.AutomaticLossScaler):
    """``AutomaticLossScaler`` of OpenSeq2Seq."""

    def __init__(
        self, algorithm: str = "Backoff", params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(algorithm, params, strict=True)


class HiddenState:
    """Hides slots and variables, as wrappers of the originals do."""

    def get_slot(self, var: Any, name: str) -> None:
        """Return None."""

    def get_slot_names(self) -> list[str]:
        """Return an empty list."""
        return []

    def variables(self) -> list[tf.Variable]:
        """Return an empty list."""
        return []


class OriginalScaling(HiddenState, ScalingWrapper):
    """What both original wrappers with a loss scale do otherwise.

    Slots and variables are hidden, skips are not counted, products with 1 / scale are
    flushed to zero, and graphs have the scopes of two conditions: one updates the
    scale, the other contains the update. Old checkpoints have ``cond_1/beta1_power``
    for the power of an Adam, and ``cond_3/beta1_power`` for that of a second one.
    """

    strict = True
    takes_wide = False
    _never_scaled = False

    skips: bool
    """Whether a step with inf or NaN in its gradients is skipped."""

    def _divide(
        self, values: list[tf.Tensor], scale: float | tf.Tensor
    ) -> list[tf.Tensor]:
        """Return v (1/s) of each value, also where 1/s is subnormal."""
        if not isinstance(scale, float):
            for value in values:
                require_float32(self.owner, "a gradient", value)
        reciprocal = 1.0 / scale
        return [times_reciprocal(value, reciprocal) for value in values]

    def _scaled(self, loss: Any, scale: float | tf.Tensor) -> Any:
        """Scale a loss; a scale that is a tensor needs float32."""
        if not callable(loss):
            loss = tf.convert_to_tensor(loss)
            if not isinstance(scale, float):
                require_float32(self.owner, "a loss", loss)
        return super()._scaled(loss, scale)

    def _prepared(self, pairs: Pairs) -> Pairs:
        """Return unscaled gradients."""
        return self._unscaled(pairs)

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients; without skips every step is taken."""
        super()._look(step)
        if not self.skips:
            step.finite = tf.constant(True)

    def _count(self, step: ScaledStep) -> tf.Operation | None:
        """Count nothing."""
        return tf.no_op()

    def _apply_together(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Step on all replicas or on none; without skips the inner optimizer sums."""
        if not self.skips:
            return self._apply(pairs, global_step, name)
        if not awaits_sums() or v1.control_flow_v2_enabled():
            return super()._apply_together(pairs, global_step, name)
        v1.get_default_graph().unique_name("cond")
        with v1.name_scope("cond"):  # The slots are made here, before the conditions.
            return super()._apply_together(pairs, global_step, name)

    def _apply_in_graph(
        self, step: ScaledStep, update: Any, counters: list[Any], name: str | None
    ) -> tf.Operation | None:
        if not self.skips:
            return step.update(update)  # The original does not name its group.
        touched = [v for g, v in step.pairs if g is not None]
        require_resources([*touched, *counters])
        with v1.name_scope("cond") as moving:
            self._look(step)

        def run() -> tf.Operation | None:
            with tf.control_dependencies([step.update(update)]):
                return tf.no_op()

        with v1.name_scope("cond") as holding:
            # Branches of control flow v2 are functions, which name slots otherwise.
            if v1.control_flow_v2_enabled():
                self.create_slots(touched)
        done = tf.cond(step.finite, run, tf.no_op, name=holding)
        with tf.control_dependencies([done]), v1.name_scope(moving):
            moved = step.move(self._scale)
        return tf.group(done, moved, name=name or self.get_name())


class MixedPrecisionLossScaleOptimizer(
    OriginalScaling, default.MixedPrecisionLossScaleOptimizer
):
    """``tf.train.experimental.MixedPrecisionLossScaleOptimizer``.

    Only a dynamic scale skips steps, and float16 is refused. Among replicas it checks
    the sums of their gradients, where the original checked each replica's own.
    """

    # The original's name: its checkpoints of objects load here, and ours there.
    tracked_as = "base_optimizer"
    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        is_multitask = isinstance(opt, default.MultitaskOptimizerWrapper)
        # The original's multitask wrapper is not an optimizer.
        wrapped = None if is_multitask and opt.strict else opt
        require_optimizer(wrapped, self.owner, errors.NotScalableError)
        scale = scale_for(loss_scale, FixedLossScale, DynamicLossScale)
        ScalingWrapper.__init__(self, opt, None, scale, scale)
        self.skips = isinstance(scale, default.DynamicLossScale)

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients; raise for rows that a strict scale cannot sum."""
        if isinstance(self.scale_object, DynamicLossScale):
            require_dense_shapes(step.present)
        super()._look(step)

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take the step of ``opt`` under the original's name, used for scopes."""
        inner_name = f"{name or self.get_name()}-wrapped" if self.skips else name
        return self.apply_inside(pairs, global_step, inner_name)


def require_float32(owner: str, what: str, tensor: Any) -> None:
    """Raise for a tensor that the original's float32 scale cannot multiply."""
    if tensor.dtype.base_dtype != tf.float32:
        raise DtypeError(
            f"{owner}: expected float32, got {what} in {tensor.dtype.name}; the "
            "original cannot scale it; use lockstep.tf."
        )


class MixedPrecisionOptimizerWrapper(
    OriginalScaling, default.MixedPrecisionOptimizerWrapper
):
    """``MixedPrecisionOptimizerWrapper`` of OpenSeq2Seq.

    Only an ``AutomaticLossScaler`` skips steps, by its own check of the gradients. Only
    float16 has masters, and a half-precision variable needs a gradient. In a graph each
    call of ``compute_gradients`` creates its own masters and adds the penalties to
    REGULARIZATION_LOSSES. Values written into a weight are overwritten. A loss scale
    that is no float, None or ``AutomaticLossScaler`` raises at its first use.
    """

    def __init__(self, optimizer: Optimizer, loss_scale: Any = None) -> None:
        require_optimizer(optimizer, self.owner, errors.NotScalableError)
        self.skips = isinstance(loss_scale, default.AutomaticLossScaler)
        if loss_scale is None or isinstance(loss_scale, float):
            loss_scale = 1.0 if loss_scale is None else float(loss_scale)
        scale = loss_scale if self.skips else default.FixedLossScale(1.0)
        self._wrap(optimizer, loss_scale, scale)

    @property
    def _factor(self) -> float | tf.Tensor:
        """The current factor of a loss; raise for one that the original cannot use."""
        if not self.skips and not isinstance(self.scale_object, float):
            raise UnusableScaleError(
                f"{self.owner}: loss_scale: expected a float or an AutomaticLossScaler,"
                f" got {self.scale_object!r}; the original fails at the first use; use "
                "lockstep.tf."
            )
        return super()._factor

    def trains_master(self, variable: tf.Variable) -> bool:
        """Whether a variable is float16."""
        return variable.dtype.base_dtype == tf.float16

    def _make_masters(self, variables: Iterable[tf.Variable]) -> None:
        """Create masters, in a graph anew in each call."""
        if builds_graph():
            half = [variable for variable in variables if self.trains_master(variable)]
            if half:
                make_together(lambda: self._make_copies(half))
        else:
            super()._make_masters(variables)

    def _at_master(
        self, gradient: Any, variable: tf.Variable, factor: Any, regularizer: Any
    ) -> tuple[Any, tf.Variable]:
        """Return the gradient of a master; raise if a float16 variable has none."""
        if gradient is None and self.trains_master(variable):
            raise UnsupportedError(
                f"{self.owner}: expected a gradient for the float16 variable "
                f"{name_of(variable)!r}, got None; the original cannot leave it out; "
                "use lockstep.tf."
            )
        return super()._at_master(gradient, variable, factor, regularizer)

    def _follow(self, variable: tf.Variable, master: tf.Variable) -> list[Any]:
        """Leave the master as it is."""
        return []

    def _look(self, step: ScaledStep) -> None:
        """Let the scaler's own check of the gradients decide."""
        if not self.skips:
            super()._look(step)
            return
        step.look(None)
        step.largest = self.scale_object.check_grads(step.pairs)
        has_nan, largest = step.largest
        step.finite = tf.logical_not(tf.logical_or(has_nan, tf.math.is_inf(largest)))


def mp_regularizer_wrapper(regularizer: Any) -> Any:
    """Regularize float32 masters instead of float16 weights, as OpenSeq2Seq does.

    bfloat16 weights are regularized directly, float16 tensors that are not variables
    are registered too, and every call adds a pair.
    """

    def collected(weight: tf.Tensor) -> Any:
        penalty = regularizer(weight)
        if penalty is not None and builds_graph():
            v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, penalty)
        return penalty

    @tf.autograph.experimental.do_not_convert
    def regularize(weights: Any) -> Any:
        variable = as_variable(weights)
        if tf.as_dtype(variable.dtype).base_dtype != tf.float16:
            return regularizer(weights)
        with tf.init_scope():
            v1.add_to_collection(mixed_precision.REGULARIZERS, (variable, collected))
        return None

    return regularize
