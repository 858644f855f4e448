"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

Old code only needs to change its import line. The arguments are exactly the
originals'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep import tf as default
from lockstep.checks import require
from lockstep.errors import DtypeError, UnsupportedError, UnusableScaleError
from lockstep.interface import NO_EAGER_STEP
from lockstep.pipeline import strictly_ordered
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.scalers import DynamicPolicy
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import (
    agn,
    loss_scales,
    loss_scaling,
    mixed_precision,
    multitask,
    novograd,
    variable_clipping,
)
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.clipping import as_entries, processed
from lockstep.tf.loss_scaling import ScalingWrapper
from lockstep.tf.optimize_loss import TrainingStep as DefaultStep
from lockstep.tf.optimize_loss import start
from lockstep.tf.replicas import (
    Pairs,
    awaits_sums,
    make_together,
    name_of,
    refuse_cross_replica,
)
from lockstep.tf.shared import clipping
from lockstep.tf.shared import novograd as moments
from lockstep.tf.shared import optimize_loss as shared_step
from lockstep.tf.shared.accumulators import Accumulators
from lockstep.tf.shared.gradients import Values, is_all_zero, own_copy, with_values
from lockstep.tf.shared.gradients import times_reciprocal as times
from lockstep.tf.shared.scaling import AutomaticScale, ScaledStep, StaticScale
from lockstep.tf.shared.summaries import Entry
from lockstep.tf.wrapper import (
    as_counter,
    as_gradient,
    as_pairs,
    as_variable,
    builds_graph,
    check_pairs,
    is_reference,
    make_conditional,
    old_name,
    refuse_keras,
    require_optimizer,
    require_resources,
)

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].public_names(strict=True))


v1 = tf.compat.v1
Optimizer = v1.train.Optimizer


class MultitaskOptimizerWrapper(default.MultitaskOptimizerWrapper):
    """``tf.contrib.opt.MultitaskOptimizerWrapper``, which replaces hooks of ``opt``.

    This has no effect around another wrapper. Shared powers advance on every call.
    """

    strict = True
    _opt = old_name("inner_optimizer")

    def __init__(self, opt: Optimizer) -> None:
        if isinstance(opt, default.MultitaskOptimizerWrapper):
            raise errors.NotAnOptimizerError(
                "MultitaskOptimizerWrapper: expected a tf.compat.v1.train.Optimizer, "
                "got a MultitaskOptimizerWrapper, which the original refuses; use "
                "lockstep.tf.MultitaskOptimizerWrapper to nest them."
            )
        super().__init__(opt)
        # Gradient descent does not sum duplicate rows and calls neither of the sparse
        # hooks, so its sparse gradients are never tested.
        dense = "_apply_dense", "_resource_apply_dense"
        sparse = "_apply_sparse", "_resource_apply_sparse"
        make_conditional(opt, (*dense, *sparse), self._is_zero)

    @staticmethod
    def _is_zero(gradient: Values, variable: tf.Variable) -> tf.Tensor:
        """Whether a gradient, in which duplicate rows are summed, is all zero.

        The original makes the sparse gradient of a reference variable dense.
        """
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if is_sparse and gradient.dense_shape is None:
            raise errors.UnsupportedError(
                "MultitaskOptimizerWrapper: expected a sparse gradient with "
                f"dense_shape for the reference variable {name_of(variable)!r}, got "
                "one without, which the original cannot test; give dense_shape, or use "
                "a resource variable."
            )
        return is_all_zero(gradient)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Pass all gradients to the wrapped optimizer, whose hooks test them."""
        pairs = check_pairs(grads_and_vars, self.owner, self.takes_wide)
        global_step = as_counter(global_step, self.owner, any_dtype=True)
        refuse_cross_replica(self.owner)
        if not tf.executing_eagerly():
            self.last_step = NO_EAGER_STEP
            return self.apply_inside(pairs, global_step, name)
        self.last_step, _ = multitask.report(pairs)
        return self._apply_reported(pairs, global_step, name)


class VariableClippingOptimizer(default.VariableClippingOptimizer):
    """``tf.contrib.opt.VariableClippingOptimizer``, which subtracts from rows.

    ``opt`` may be any object with the methods that are called.
    """

    strict = True
    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")

    @property
    def _vars_to_clip_dims(self) -> agn.VariableMap:
        axes = agn.VariableMap()
        for variable, limit in self.rows.items():
            axes[variable] = list(limit.axes)
        return axes

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | tf.Tensor,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        methods = "compute_gradients apply_gradients get_slot get_slot_names".split()
        refuse_keras(opt, self.owner)
        if isinstance(opt, type) or any(not hasattr(opt, name) for name in methods):
            raise errors.NotAnOptimizerError(
                f"{self.owner}: expected an object with the methods "
                f"{', '.join(methods)}, got {opt!r}; pass the optimizer whose steps "
                "come first."
            )
        axes_of = variable_clipping.listed_axes(vars_to_clip_dims)
        limits = dict.fromkeys(axes_of, max_norm)
        options = use_locking, colocate_clip_ops_with_vars, name
        self._set_up(opt, axes_of, limits, *options)
        self.max_norm = max_norm

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Let ``opt`` update the variables, then clip their rows.

        A one-shot iterator is exhausted by the update, so that nothing is clipped. The
        wrapped optimizer sums the gradients over the replicas.
        """
        once = isinstance(grads_and_vars, Iterator)
        pairs = check_pairs(grads_and_vars, self.owner, self.takes_wide)
        counter = as_counter(global_step, self.owner, any_dtype=True)
        refuse_cross_replica(self.owner)
        listed = [] if once else self._listed(pairs)
        for _, variable in listed:
            axes = self.rows[variable.ref()].axes
            variable_clipping.resolved_axes(variable, axes)
        return self._update_and_clip(pairs, listed, counter, name, once)

    def _clip_now(
        self,
        variable: tf.Variable,
        indices: tf.Tensor | None,
        limit: variable_clipping.RowLimit,
        too_large: list[tf.Tensor],
    ) -> tf.Operation | None:
        """Subtract each row's excess, also below the limit, for each of its indices."""
        variable, (axes, max_norm) = own_copy(variable), limit
        values = variable_clipping.read_rows(variable, indices)
        squares = tf.square(values)
        norms = tf.sqrt(tf.reduce_sum(squares, list(axes), keepdims=True))
        excess = values - values * max_norm / tf.maximum(norms, max_norm)
        if tf.executing_eagerly():
            too_large.append(norms > max_norm)
        locking = self.use_locking
        if indices is None:
            return variable.assign_sub(excess, use_locking=locking, read_value=False)
        if is_reference(variable):
            rows = tf.IndexedSlices(excess, indices)
            return variable.scatter_sub(rows, use_locking=locking).op
        return tf.raw_ops.ResourceScatterSub(
            resource=variable.handle, indices=indices, updates=excess
        )

    def variables(self) -> list[tf.Variable]:
        """Return an empty list, as the original."""
        return []


class FixedLossScale(default.FixedLossScale):
    """``tf.train.experimental.FixedLossScale``; any number but those below 1."""

    def __init__(self, loss_scale_value: float) -> None:
        value, owner, name = loss_scale_value, "FixedLossScale", "loss_scale_value"
        require(owner, name, value, isinstance(value, int | float), "an int or float")
        require(owner, name, value, not value < 1, "a number >= 1")
        tf.Module.__init__(self)
        self.least = float(loss_scale_value)


class DynamicLossScale(default.DynamicLossScale):
    """``tf.train.experimental.DynamicLossScale``; unchecked, and the floor is 1."""

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
        self._set_up(DynamicPolicy(*numbers, floor=1.0))

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


class OriginalScaling(ScalingWrapper):
    """What both original wrappers with a loss scale do otherwise.

    Slots and variables are hidden, skips are not counted, products with 1 / scale are
    flushed to zero, and graphs have the scopes of two conditions: one updates the
    scale, the other contains the update. Old checkpoints have ``cond_1/beta1_power``
    for the power of an Adam, and ``cond_3/beta1_power`` for that of a second one.
    """

    strict = True
    takes_wide = False
    _never_scaled = False

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        raise NotImplementedError

    def _divided(self, pairs: Pairs, scale: float | tf.Tensor) -> Pairs:
        """Return pairs of g (1/s), also where 1/s is subnormal."""
        reciprocal = 1.0 / scale
        return [
            (g if g is None else with_values(g, over(g, reciprocal)), v)
            for g, v in pairs
        ]

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients; without skips every step is taken."""
        super()._look(step)
        if not self.skips:
            step.finite = tf.constant(True)

    def _count(self, step: ScaledStep) -> tf.Operation | None:
        """Count nothing."""
        return tf.no_op()

    def _apply_in_graph(
        self, step: ScaledStep, update: Any, counters: list[Any], name: str | None
    ) -> tf.Operation | None:
        if not self.skips:
            return step.update(update)
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
            moved = self._move_scale(step)
        return tf.group(done, moved, name=name or self.get_name())

    def get_slot(self, var: Any, name: str) -> None:
        """Return None."""

    def get_slot_names(self) -> list[str]:
        """Return an empty list."""
        return []

    def variables(self) -> list[tf.Variable]:
        """Return an empty list."""
        return []


def over(gradient: Any, reciprocal: float | tf.Tensor) -> tf.Tensor:
    """Return the values of a gradient times 1 / scale."""
    return times(getattr(gradient, "values", gradient), reciprocal)


class MixedPrecisionLossScaleOptimizer(
    OriginalScaling, default.MixedPrecisionLossScaleOptimizer
):
    """``tf.train.experimental.MixedPrecisionLossScaleOptimizer``.

    Only a dynamic scale skips steps. Among replicas each checks its own gradients, and
    ``opt`` sums them.
    """

    # The original's name: its checkpoints of objects load here, and ours there.
    tracked_as = "base_optimizer"
    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        is_multitask = isinstance(opt, default.MultitaskOptimizerWrapper)
        # The original's multitask wrapper is not an optimizer.
        wrapped = None if is_multitask and opt.strict else opt
        role = "whose loss is to be scaled"
        require_optimizer(wrapped, self.owner, role, errors.NotScalableError)
        scale = loss_scaling.required_scale(loss_scales.get(loss_scale, strict=True))
        self._set_up(opt, None, scale, scale)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        return isinstance(self.scale_object, default.DynamicLossScale)

    def _scaled(self, loss: Any, scale: float | tf.Tensor) -> Any:
        """Scale a float32 loss."""
        if not callable(loss):
            loss = tf.convert_to_tensor(loss)
            require_float32("a loss", loss)
        return super()._scaled(loss, scale)

    def _divided(self, pairs: Pairs, scale: float | tf.Tensor) -> Pairs:
        """Divide float32 gradients."""
        for gradient, variable in pairs:
            if gradient is not None:
                require_float32(repr(name_of(variable)), gradient)
        return super()._divided(pairs, scale)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take a step, or skip it, under the original's names."""
        pairs = check_pairs(grads_and_vars, self.owner)
        counter = as_counter(global_step, self.owner, any_dtype=True)
        pairs = self._unscaled(pairs)
        refuse_cross_replica(self.owner)
        if self.skips and awaits_sums():
            return self._apply_among_replicas(pairs, counter, name)
        return self._apply_or_skip(pairs, counter, name)

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

    def _apply_among_replicas(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Step on all replicas or on none; each checks its own gradients."""
        # All replicas must pass the identical object; an equal one is not enough.
        inner_name = f"{name or self.get_name()}-wrapped"

        def update(pairs: Pairs) -> tf.Operation | None:
            return self.apply_inside(pairs, global_step, inner_name)

        def flag(pairs: Pairs) -> tf.Tensor:
            step = ScaledStep(pairs, [])
            self._look(step)
            return tf.cast(step.finite, tf.float32)

        def step(strategy: Any, pairs: Pairs) -> tf.Operation | None:
            replicas = strategy.extended
            with v1.name_scope("cond"):
                flags = replicas.call_for_each_replica(flag, args=(pairs,))
                count = strategy.reduce(tf.distribute.ReduceOp.SUM, flags, axis=None)
                finite = tf.equal(count, float(strategy.num_replicas_in_sync))

            def run() -> tf.Operation | None:
                done = replicas.call_for_each_replica(update, args=(pairs,))
                with tf.control_dependencies([strategy.group(done)]):
                    return tf.no_op()

            with v1.name_scope("cond") as holding:
                done = tf.cond(finite, run, tf.no_op, name=holding)
            with tf.control_dependencies([done]):
                moved = self.scale_object.move(finite)
            return tf.group(done, moved, name=name or self.get_name())

        context = tf.distribute.get_replica_context()
        return context.merge_call(step, args=(tuple(pairs),))


def require_float32(what: str, tensor: Any) -> None:
    """Raise for a tensor that the original's float32 scale cannot multiply."""
    if tensor.dtype.base_dtype != tf.float32:
        raise DtypeError(
            f"MixedPrecisionLossScaleOptimizer: expected float32, got {what} in "
            f"{tensor.dtype.name}; the original cannot scale it; use lockstep.tf."
        )


class UnusableScale:
    """A loss scale that the original's constructor accepts, but that it cannot use."""

    variables: Sequence[Any] = ()

    def __init__(self, argument: Any) -> None:
        self.argument = argument

    def __call__(self) -> tf.Tensor:
        """Raise."""
        raise UnusableScaleError(
            "MixedPrecisionOptimizerWrapper: loss_scale: expected a float or an "
            f"AutomaticLossScaler, got {self.argument!r}; the original fails at the "
            "first use; use lockstep.tf."
        )


class MixedPrecisionOptimizerWrapper(
    OriginalScaling, default.MixedPrecisionOptimizerWrapper
):
    """``MixedPrecisionOptimizerWrapper`` of OpenSeq2Seq.

    Only an ``AutomaticLossScaler`` skips steps, by its own check of the gradients.
    """

    def __init__(self, optimizer: Optimizer, loss_scale: Any = None) -> None:
        role = "that is to train"
        require_optimizer(optimizer, self.owner, role, errors.NotScalableError)
        scale: Any = UnusableScale(loss_scale)
        if isinstance(loss_scale, default.AutomaticLossScaler):
            scale = AutomaticScale(loss_scale)
        elif loss_scale is None or isinstance(loss_scale, float):
            loss_scale = 1.0 if loss_scale is None else float(loss_scale)
            scale = StaticScale(loss_scale)
        self._wrap(optimizer, loss_scale, scale)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        return isinstance(self.scale_object, default.AutomaticLossScaler)

    def _scaled(self, loss: Any, scale: float | tf.Tensor) -> Any:
        """Scale a loss; an automatic scale needs float32."""
        if not callable(loss):
            loss = tf.convert_to_tensor(loss)
            if not isinstance(scale, float) and loss.dtype != tf.float32:
                raise DtypeError(
                    f"{self.owner}: expected a float32 loss for an automatic scale, "
                    f"got {loss.dtype.name}; cast the loss to float32."
                )
        return super()._scaled(loss, scale)

    def trains_master(self, variable: tf.Variable) -> bool:
        """Whether a variable is float16."""
        return variable.dtype.base_dtype == tf.float16

    def _make_masters(self, variables: Iterable[tf.Variable]) -> None:
        """Create masters, in a graph anew in each call."""
        if builds_graph():
            half = [variable for variable in variables if self.trains_master(variable)]
            if half:
                make_together(lambda: self._make_these(half))
        else:
            super()._make_masters(variables)

    def _make_these(self, variables: list[tf.Variable]) -> None:
        """Create masters, whose rows are not clipped."""
        self._make_copies(variables)

    def _at_master(
        self, gradient: Any, variable: tf.Variable, factor: Any, regularizer: Any
    ) -> tuple[Any, tf.Variable]:
        """Return the gradient of a master; raise if a float16 variable has none."""
        if gradient is None and self._master_of(variable) is not variable:
            raise UnsupportedError(
                f"{self.owner}: expected a gradient for the float16 variable "
                f"{name_of(variable)!r}, got None; the original cannot leave it out; "
                "use lockstep.tf."
            )
        return super()._at_master(gradient, variable, factor, regularizer)

    def _follow(self, variable: tf.Variable, master: tf.Variable) -> list[Any]:
        """Leave the master as it is."""
        return []

    def _share_of(self, factor: float | tf.Tensor) -> float | tf.Tensor:
        """Return the whole factor on each replica."""
        return factor

    def _penalty_gradient(self, regularizer: Any, weight: tf.Tensor) -> Any:
        """Return the gradient of a penalty, which a graph collects as a loss."""

        def collected(weight: tf.Tensor) -> Any:
            penalty = regularizer(weight)
            if tf.is_tensor(penalty) and builds_graph():
                v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, penalty)
            return penalty

        return super()._penalty_gradient(collected, weight)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Update the masters of pairs that ``compute_gradients`` returned."""
        pairs = check_pairs(grads_and_vars, self.owner)
        refuse_cross_replica(self.owner)
        counter = as_counter(global_step, self.owner, any_dtype=True)
        pairs = self._unscaled(pairs)
        if not self.skips:
            return self._apply_or_skip(pairs, counter, name)
        # The original's condition cannot be built on replicas.
        return self.apply_together(self._apply_or_skip, pairs, counter, name)

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
    """Regularize float32 masters instead of float16 weights, as OpenSeq2Seq does."""
    mixed_precision.require_callable(regularizer)

    @tf.autograph.experimental.do_not_convert
    def regularize(weights: Any) -> Any:
        variable = as_variable(weights)
        if tf.as_dtype(variable.dtype).base_dtype != tf.float16:
            return regularizer(weights)
        with tf.init_scope():
            v1.add_to_collection(mixed_precision.REGULARIZERS, (variable, regularizer))
        return None

    return regularize


class AGNCustomGetter(default.AGNCustomGetter):
    """``tf.contrib.opt.AGNCustomGetter``; workers of one process share the ``center``.

    An accumulator starts at its variable's value, a regularizer is applied to all three
    variables, and reference variables may be in another process.
    """

    def __init__(self, worker_device: Any, center: Any = None) -> None:
        super().__init__(worker_device, center)

    def _options_beside(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the regularizer."""
        return dict(kwargs)

    def _enter(self, new: Mapping[str, tf.Variable], make: Any) -> None:
        """Let accumulators have the values of their variables."""
        super()._enter(new, lambda prefix, zeros: make(prefix, False))

    def _check_placement(self, own: tf.Variable, shared: tf.Variable) -> None:
        """Accept any."""


class AGNOptimizer(default.AGNOptimizer):
    """``tf.contrib.opt.AGNOptimizer``.

    Replicas step alone, ``local_step`` is on the current device, row clipping inside
    clips no shared rows, and slots and variables are not listed.
    """

    strict = True

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None:
        super().__init__(
            optimizer,
            num_worker,
            custom_getter,
            communication_period,
            use_locking,
            name,
        )

    def _check_counts(self, num_worker: Any, communication_period: Any) -> None:
        """Accept any."""

    def _counting_place(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take a local step; raise for pairs that can be read only once."""
        if isinstance(grads_and_vars, Iterator):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected a list of pairs, got a one-shot "
                f"{type(grads_and_vars).__name__}; make it a list."
            )
        return super().apply_gradients(grads_and_vars, global_step, name)

    def apply_together(
        self, apply: Any, pairs: Any, global_step: Any, name: str | None
    ) -> tf.Operation | None:
        """Let the wrapped optimizer sum the gradients of the replicas."""
        refuse_cross_replica("AGNOptimizer")
        return apply(pairs, global_step, name)

    def _share_row_limits(self, variables: Any) -> None:
        """Leave shared rows as they are."""

    def get_slot(self, var: Any, name: str) -> None:
        """Return None."""

    def get_slot_names(self) -> list[str]:
        """Return an empty list."""
        return []

    def variables(self) -> list[tf.Variable]:
        """Return an empty list."""
        return []


class AdamOptimizer(default.AdamOptimizer):
    """``tf.train.AdamOptimizer``, for any dtype."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class RMSPropOptimizer(default.RMSPropOptimizer):
    """``tf.train.RMSPropOptimizer``, for any dtype."""

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        arguments = decay, momentum, epsilon, use_locking, centered, name
        super().__init__(learning_rate, *arguments)

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class AdamWOptimizer(default.AdamWOptimizer):
    """``tf.contrib.opt.AdamWOptimizer``, with any arguments and for any dtype."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        arguments = beta1, beta2, epsilon, use_locking, name
        default.AdamOptimizer.__init__(self, learning_rate, *arguments)
        self._weight_decay = weight_decay

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class FtrlOptimizer(default.FtrlOptimizer):
    """``tf.train.FtrlOptimizer``: a rate of 0 fails, and a NaN makes a weight 0."""

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
    ) -> None:
        v1.train.FtrlOptimizer.__init__(
            self,
            learning_rate,
            learning_rate_power,
            initial_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            use_locking,
            name,
            accum_name,
            linear_name,
            l2_shrinkage_regularization_strength,
        )

    def _prepare(self) -> None:
        super()._prepare()
        rate = self._learning_rate_tensor
        message = "FtrlOptimizer: expected learning_rate > 0, as the original"
        positive = tf.debugging.assert_positive(rate, message=message)
        with tf.control_dependencies([positive]):
            self._learning_rate_tensor = tf.identity(rate)

    def _keep_nan(self, hook: Any, grad: tf.Tensor, var: tf.Variable) -> Any:
        return hook(grad, var)

    def _unless_idle(
        self, hook: Any, grad: Any, var: tf.Variable, *indices: tf.Tensor
    ) -> Any:
        return hook(grad, var, *indices)


class NovoGrad(default.NovoGrad):
    """OpenSeq2Seq's NovoGrad, whose second moment is |g|^2 of the step, for any b2.

    The pairs must be a list, into which normalized gradients are written. All gradients
    must be present, and variables float32.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
    ) -> None:
        if tf.is_tensor(weight_decay):
            raise errors.DtypeError(
                "NovoGrad: weight_decay: expected a number, as the original, got a "
                "tensor; leave strict off, or give a number."
            )
        v1.train.MomentumOptimizer.__init__(
            self, learning_rate, beta1, use_locking, name
        )
        rule = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        rule |= {"weight_decay": weight_decay, "grad_averaging": grad_averaging}
        self._arguments = rule
        self._unwritten: list[tf.Variable] = []
        self._of_last_call: list[tf.Tensor | tf.Variable] = []
        self._positions: dict[Any, int] = {}

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: list[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> tf.Operation | None:
        """Normalize the gradients in the list of pairs, then take a momentum step."""
        if not isinstance(grads_and_vars, list):
            raise errors.MalformedPairsError(
                "NovoGrad: expected a list of (gradient, variable), as the original, "
                f"got {type(grads_and_vars).__name__}; leave strict off, or pass "
                "list(pairs)."
            )
        pairs = check_pairs(grads_and_vars, "NovoGrad")
        absent = [name_of(variable) for gradient, variable in pairs if gradient is None]
        if absent:
            raise errors.NoGradientsError(
                "NovoGrad: expected a gradient for every variable, as the original, "
                f"got None for {', '.join(absent)}; leave strict off, or leave such "
                "variables out."
            )
        for _, variable in pairs:
            if variable.dtype.base_dtype != tf.float32:
                raise errors.DtypeError(
                    f"NovoGrad: expected float32 for {name_of(variable)!r}, as the "
                    f"original, got {variable.dtype.base_dtype.name}; leave strict "
                    "off, or train float32 masters."
                )
        grads_and_vars[:] = self._normalized(pairs)
        return v1.train.MomentumOptimizer.apply_gradients(
            self, grads_and_vars, global_step, name, skip_gradients_aggregation
        )

    def _normalized(self, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the pairs with the original's gradients.

        The original keeps this call's tensor instead of the variable, so it never
        writes the second moment back. A later call in a graph averages with it.
        """
        self._make_unwritten(len(pairs))
        directions = []
        for position, (gradient, variable) in enumerate(pairs):
            self._positions[variable.ref()] = position
            gradient = novograd.densify(gradient, variable)
            square = moments.square_norm(gradient)
            earlier = tf.convert_to_tensor(self._of_last_call[position])
            average = moments.average(self._arguments["beta2"], earlier, square)
            moment = tf.where(tf.not_equal(earlier, 0), average, square)
            if not v1.executing_eagerly_outside_functions():
                self._of_last_call[position] = moment
            given = self._arguments, moment, variable, gradient
            directions.append((moments.direction_of(*given), variable))
        return directions

    def _make_unwritten(self, count: int) -> None:
        """Create the variables for the original's averages, which it never writes.

        Their names conflict with those of another instance in the same graph.
        """
        zeros = v1.zeros_initializer()
        with tf.init_scope():
            for position in range(len(self._unwritten), count):
                name = f"nvgrad2_ema{position}"
                variable = v1.get_variable(name, [], tf.float32, zeros, trainable=False)
                self._unwritten.append(variable)
                self._of_last_call.append(variable)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot; a variable that is always 0 as ``second_moment``."""
        if name != novograd.MOMENT:
            return super().get_slot(var, name)
        position = self._positions.get(as_variable(var).ref())
        return None if position is None else self._unwritten[position]

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        v1.train.MomentumOptimizer._create_slots(self, var_list)

    def _move(self, momentum_step: Any, grad: tf.Tensor, var: tf.Variable) -> Any:
        return momentum_step(grad, var)


OPTIMIZER_CLS_NAMES = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}


class Processing(clipping.Processing):
    """Clipping and LARC of OpenSeq2Seq; arguments are not checked."""

    def check(self, entries: Sequence[Entry], owner: str = clipping.OWNER) -> None:
        """Raise if a gradient is None, unless the pairs are only returned."""
        reads_norm = clipping.GLOBAL_NORM in self.asked.names
        if self.limit is None and self.policy is None and not reads_norm:
            return
        for entry in entries:
            if entry.gradient is None:
                raise errors.UnsupportedError(
                    f"{owner}: expected a gradient for {entry.name!r}, got None; the "
                    "original cannot leave it out; leave strict off."
                )

    def norm(self, entries: Sequence[Entry]) -> tf.Tensor:
        """Return the global norm in float32; duplicate rows are not summed first."""
        gradients = [entry.gradient for entry in entries]
        slices = tf.IndexedSlices
        values = [g.values if isinstance(g, slices) else g for g in gradients]
        return clipping.norm_in_float32(values)

    def clip(
        self, entries: Sequence[Entry], norm: tf.Tensor | None = None
    ) -> list[Any]:
        """Clip by the norm; a scalar gets the shape [1]."""
        clipped = super().clip(entries, norm)
        return [tf.reshape(g, [1]) if g.shape.rank == 0 else g for g in clipped]

    def rate(self, lr: Any) -> tf.Tensor:
        """Return the learning rate; a tensor must be float32."""
        rate = tf.convert_to_tensor(lr)
        if not isinstance(lr, int | float) and rate.dtype != tf.float32:
            raise errors.DtypeError(
                "LARC: expected lr to be a number or a float32 tensor, got "
                f"{rate.dtype.name}; cast it, or leave strict off."
            )
        return tf.cast(rate, tf.float32)

    def scale(
        self,
        policy: clipping.LarcPolicy,
        entries: Sequence[Entry],
        rate: tf.Tensor,
    ) -> list[Any]:
        """Scale by LARC; sparse gradients become dense."""
        dense = [
            entry._replace(gradient=as_dense(entry.gradient, entry.variable.shape[0]))
            if isinstance(entry.gradient, tf.IndexedSlices)
            else entry
            for entry in entries
        ]
        return super().scale(policy, dense, rate)

    def raw_ratio(
        self,
        policy: clipping.LarcPolicy,
        rate: tf.Tensor,
        weight: tf.Tensor,
        gradient: tf.Tensor,
    ) -> tf.Tensor:
        """Return LARC's ratios, also where a norm or the rate is 0."""
        divisor = gradient + policy.epsilon
        if policy.larc_mode == "clip":
            divisor = rate * divisor
        return tf.maximum(policy.larc_eta * weight / divisor, policy.min_update)


def as_dense(gradient: tf.IndexedSlices, rows: int) -> tf.Tensor:
    """Return slices as a tensor with this number of rows."""
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any, name: str | None = None
) -> tuple[list[Any], tf.Tensor]:
    """Clip tensors by a given norm, as OpenSeq2Seq does; a scalar gets shape [1]."""
    tensors = clipping.as_tensors(t_list)
    with tf.name_scope(name or "clip_by_global_norm"):
        norm = clipping.as_norm(use_norm)
        factor = tf.reshape(clipping.clip_scale(norm, clip_norm), [1])
        return clipping.scale_in_float32(tensors, factor), norm


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]], clip_norm: Any = 20.0
) -> tuple[list[tuple[Any, Any]], tf.Tensor]:
    """Clip by the global norm in the dtype of the gradients, as ``tf.contrib.opt``.

    In a graph the results have the names that the original gave them.
    """
    owner = "clip_gradients_by_global_norm"
    pairs = as_pairs(gradients_variables, owner)
    gradients = [as_gradient(g, v, owner) for g, v in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in present):
        raise errors.UnsupportedError(
            f"{owner}: expected dense gradients, got a sparse one; the original cannot "
            "clip them; leave strict off."
        )
    dtypes = {gradient.dtype for gradient in present} or {tf.float32}
    if len(dtypes) > 1:
        raise errors.DtypeError(
            f"{owner}: expected gradients of one dtype, got "
            f"{' and '.join(sorted(dtype.name for dtype in dtypes))}; the original "
            "cannot mix them; leave strict off."
        )
    with tf.name_scope("global_norm"):
        norm = clipping.global_norm(present, *dtypes)
    with tf.name_scope("clip_by_global_norm") as scope:
        factor = clipping.clip_factor(norm, rounded_limit(clip_norm, norm.dtype))
        clipped = clipping.scale_gradients(gradients, factor)
        if not tf.executing_eagerly():
            clipped = [
                None if g is None else tf.identity(g, f"{scope[:-1]}/_{place}")
                for place, g in enumerate(clipped)
            ]
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm


def rounded_limit(clip_norm: Any, dtype: tf.DType) -> tf.Tensor:
    """Return ``clip_norm`` rounded once to ``dtype``; infinite if it is too large.

    Eager TensorFlow 2 raises for a number that is too large. The original did not.
    """
    is_text = isinstance(clip_norm, str | bytes)
    if is_text or clip_norm is None or isinstance(clip_norm, list | tuple):
        kind = errors.DtypeError if is_text else errors.OutOfRangeError
        raise kind(
            "clip_gradients_by_global_norm: clip_norm: expected a number or a 0-d "
            f"tensor, got {clip_norm!r}; give the largest global norm that is to be "
            "left as it is."
        )
    if isinstance(clip_norm, Real):
        with np.errstate(over="ignore"):
            clip_norm = np.asarray(clip_norm).astype(dtype.as_numpy_dtype)
    return tf.cast(clip_norm, dtype)


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_gradients: Any
) -> list[tuple[Any, Any]]:
    """Clip by the global norm in float32, as OpenSeq2Seq does."""
    entries, variables = as_entries(grads_and_vars, clipping.BY_NORM)
    process = Processing(limit=clip_gradients)
    process.check(entries, clipping.BY_NORM)
    return list(zip(process.clip(entries), variables, strict=True))


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: Any,
    clip_gradients: Any,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
) -> list[tuple[Any, Any]]:
    """Clip gradients and scale them by LARC, as OpenSeq2Seq does.

    ``recorder`` receives the summaries outside of a graph.
    """
    asked, policy = clipping.requested(summaries, recorder), None
    if larc_params is not None:
        policy = clipping.larc_policy(larc_params, check_ranges=False)
    return processed(Processing(asked, clip_gradients, policy), grads_and_vars, lr)


_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm


class Task(shared_step.Task):
    """The arguments of OpenSeq2Seq's ``optimize_loss``, most of them unchecked."""

    process = Processing

    def check(self) -> None:
        """Raise for a missing flag, and for a scale that cannot be used."""
        if self.accumulates and self.skip_update_ph is None:
            raise errors.UnsupportedError(
                "optimize_loss: expected skip_update_ph with iter_size > 1, got None; "
                "give it, or leave strict off: the steps are counted then."
            )
        scale = self.loss_scaling
        is_number = isinstance(scale, int) or hasattr(scale, "dtype")
        if self.mixed and is_number and not isinstance(scale, float):
            raise errors.UnusableScaleError(
                "optimize_loss: loss_scaling: expected a float or the name of a "
                f"scaler, got {scale!r}; the original fails at the first use."
            )
        self.asked, self.larc  # noqa: B018

    @cached_property
    def larc(self) -> clipping.LarcPolicy | None:
        """The parameters of LARC, whose ranges are not checked."""
        params = self.larc_params
        return None if params is None else clipping.larc_policy(params, False)

    @property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated: only with ``on_horovod``."""
        return self.iter_size > 1 and bool(self.on_horovod)

    def pipeline(self, optimizer: Any) -> tuple[str, ...]:
        """Return the stages in the original's order: the finite check is late."""
        return strictly_ordered(super().pipeline(optimizer))

    def rate(self, global_step: tf.Tensor) -> Any:
        """Return the rate after ``global_step`` steps."""
        return self.learning_rate_decay_fn(global_step)

    def fits(
        self, skips: bool, records: bool, gradients: Sequence[Any]
    ) -> bool | tf.Tensor:
        """Whether all gradients are finite. They are clipped even if they are not."""
        finite = super().fits(skips, records, gradients)
        return tf.constant(False) if finite is False else finite

    def scale_of(self, optimizer: Any, scaler: Any) -> Any:
        """Return the named scaler, with any dtype."""
        return scaler

    def check_flag(self, flag: Any) -> None:
        """Accept any."""

    def check_variables(self, variables: Iterable[Any], name_of: Any) -> None:
        """Accept any."""

    def check_optimizer(self, optimizer: Any) -> None:
        """Accept any."""


class TrainingStep(DefaultStep):
    """The training step of OpenSeq2Seq, with strict optimizers and scalers."""

    classes = OPTIMIZER_CLS_NAMES
    make_scaler = AutomaticLossScaler
    make_masters = MixedPrecisionOptimizerWrapper

    def make_optimizer(self) -> Optimizer:
        """Create the optimizer; refuse an instance."""
        if isinstance(self.task.optimizer, Optimizer):
            raise errors.NotAnOptimizerError(
                "optimize_loss: optimizer: expected a name or a class, got an instance "
                f"of {type(self.task.optimizer).__name__}; pass its class, and its "
                "arguments as optimizer_params."
            )
        return super().make_optimizer()

    def check_rule(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Accept any."""

    def current_decay(self) -> Any:
        """Return AdamW's decay, and write it into the caller's dict."""
        decay = super().current_decay()
        entry = DecayNow(decay) if callable(decay) else decay
        self.task.optimizer_params["weight_decay"] = entry
        return decay

    def add_up(
        self, sums: Accumulators, pairs: list[tuple[Any, Any]], skip_update: Any
    ) -> tf.Operation | None:
        """Add a micro-batch; raise for absent and sparse gradients."""
        for gradient, variable in pairs:
            expected = f"expected a dense gradient for {name_of(variable)!r}"
            remedy = "with iter_size > 1, as the original; leave strict off."
            if gradient is None:
                raise errors.AbsentAccumulatedError(
                    f"optimize_loss: {expected}, got None {remedy}"
                )
            if isinstance(gradient, tf.IndexedSlices):
                raise errors.UnsupportedError(
                    f"optimize_loss: {expected}, got a sparse one {remedy}"
                )
        return super().add_up(sums, pairs, skip_update)


class DecayNow:
    """The entry of "AdamW" in the caller's dict: current rate x weight decay.

    It behaves like a number with the current value in ``float`` and in products, as the
    tensor in a graph does. Calling it returns this value.
    """

    __array_ufunc__ = None
    """Makes NumPy use this class's methods for products."""

    def __init__(self, product: Any) -> None:
        self.product = product

    def __call__(self) -> Any:
        return self.product()

    def __float__(self) -> float:
        return float(self.product())

    def __mul__(self, factor: Any) -> Any:
        return self.product() * factor

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(float(self))


@tf.autograph.experimental.do_not_convert
def optimize_loss(
    loss: Any,
    optimizer: Any,
    optimizer_params: Any,
    learning_rate_decay_fn: Any,
    var_list: Iterable[Any] | None = None,
    dtype: Any = tf.float32,
    clip_gradients: float | None = None,
    summaries: Sequence[str] | None = None,
    larc_params: Mapping[str, Any] | None = None,
    loss_scaling: Any = 1.0,
    loss_scaling_params: Mapping[str, Any] | None = None,
    on_horovod: bool = False,
    iter_size: int = 1,
    skip_update_ph: Any = None,
    model: Any = None,
    *,
    reduction: Any = None,
) -> Any:
    """Build or run the training step of OpenSeq2Seq.

    ``reduction`` averages over the ranks instead of Horovod.
    """
    return start(Task(**locals()), TrainingStep)


lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")
