"""The fixed and the dynamic loss scale, and the wrapper that scales the loss."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep import errors, scalers
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.tf import wrapper as base
from lockstep.tf.shared import loss_scales as shared
from lockstep.tf.shared import scaling
from lockstep.tf.shared.gradients import (
    Gradient,
    as_tensor,
    divided,
    in_float32,
    replica_number,
    require_floats,
    values_of,
    with_values,
)
from lockstep.tf.wrapper import Pairs

Update = Callable[[Pairs], tf.Operation | None]
Optimizer = tf.compat.v1.train.Optimizer

SCALED = "scaled"
"""The mark of a replica whose scaled loss waits for ``unscale_gradients``."""


@base.with_strict
class FixedLossScale(shared.FixedLossScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """


@base.with_strict
class DynamicLossScale(shared.DynamicLossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: steps from one growth to the next, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the smallest scale, not above the initial one; None: 1, or the initial
            scale if that is smaller.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([tf.constant([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """


class ScalingWrapper(scaling.Scaling, base.Wrapper):
    """The base of both wrappers that scale the loss and skip non-finite steps.

    If a step is skipped, weights, slots, shared powers and ``global_step`` do not
    change. The scale is updated after the step, so one that raises does not change it.
    """

    takes_wide: Any = True
    _steps_in_functions = False

    def __init__(
        self, optimizer: Optimizer, name: str | None, scale_object: Any, scale: Any
    ) -> None:
        locking = getattr(optimizer, "_use_locking", False)
        super().__init__(optimizer, name, locking)
        self.scale_object = scale_object
        if isinstance(scale_object, tf.Module):
            self._track_trackable(scale_object, "loss_scale")
        self._scale = scale
        # Replica -> SCALED, or the graph, None if eager, that unscaled its gradients.
        self._by_hand: dict[int, Any] = {}
        self.last_step: StepReport = scalers.ScaledStepReport(*NO_EAGER_STEP)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.scale_object!r})"

    @property
    def _factor(self) -> float | tf.Tensor:
        """The current factor of a loss: float32, 0-d."""
        return self.loss_scale

    def variables(self) -> list[tf.Variable]:
        """Return the state: wrapped optimizer, loss scale and counts of skips."""
        return [*super().variables(), *self._scale.variables, *self._counts]

    # -- the loss and its gradients ----------------------------------------------------

    def _differentiate(self, loss: Any, *options: Any) -> Pairs:
        """Differentiate the scaled loss, and unscale the gradients."""
        self._by_hand.clear()
        # Read once: the loss and its gradients must use the same scale.
        factor = self._factor
        pairs = super()._differentiate(self._scaled(loss, factor), *options)
        return self._divided(self._regularized(pairs, factor), factor)

    def _regularized(self, pairs: Pairs, factor: float | tf.Tensor) -> Pairs:
        """Return scaled gradients with those of regularizers, times the factor."""
        return pairs

    def _scaled(self, loss: Any, scale: float | tf.Tensor) -> Any:
        """Return loss times scale in the loss' dtype; for a callable a callable."""
        if callable(loss):
            return lambda: self._scaled(tf.convert_to_tensor(loss()), scale)
        loss = tf.convert_to_tensor(loss)
        return loss * as_tensor(scale, loss.dtype)

    def _divide(
        self, values: list[tf.Tensor], scale: float | tf.Tensor
    ) -> list[tf.Tensor]:
        """Return v (1/s) of each value."""
        return divided(values, scale)

    def _divided(self, pairs: Pairs, scale: float | tf.Tensor) -> Pairs:
        """Return pairs of g (1/s), computed in float32 for half precision."""
        present = require_floats("loss scaling", [gradient for gradient, _ in pairs])
        quotients = iter(self._divide([values_of(g) for g in present], scale))
        return [
            (g if g is None else with_values(g, next(quotients)), v) for g, v in pairs
        ]

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> Any:
        """Return ``loss`` times the loss scale, for a gradient tape.

        :meth:`unscale_gradients` divides its gradients by the scale, before
        ``apply_gradients`` takes them.

        Args:
            loss: a tensor, or a callable without arguments. For a callable a callable
                is returned.
        """
        product = self._scaled(loss, self._factor)
        self._by_hand[replica_number()] = SCALED
        return product

    @tf.autograph.experimental.do_not_convert
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        Half precision becomes float32, None stays None, and sparse gradients stay
        sparse.

        Args:
            gradients: the gradients that a tape returned for a list of variables. They
                are divided even if ``scale_loss`` was not called.

        Raises:
            UnscaledTwiceError: a RuntimeError; a second call before the step.
            DtypeError: a TypeError; gradients that are not real.
        """
        graph, number = tf.compat.v1.get_default_graph(), replica_number()
        here = None if tf.executing_eagerly() else weakref.ref(graph)
        # Python does not see later calls of a function that takes steps.
        unseen_step = here is None and self._steps_in_functions
        if self._by_hand.get(number, SCALED) == here and not unseen_step:
            raise errors.UnscaledTwiceError(
                f"{self.owner}.unscale_gradients: expected one unscaling of the "
                "gradients before each step, got a second one; take the step first, or "
                "call scale_loss(loss) to begin again."
            )
        wide = [(in_float32(gradient), None) for gradient in gradients]
        pairs = self._divided(wide, self._factor)
        self._by_hand[number] = here
        return [gradient for gradient, _ in pairs]

    def _unscaled(self, pairs: Pairs) -> Pairs:
        """Return the pairs of a step; raise if their scaled loss was not unscaled."""
        if self._by_hand.get(replica_number()) == SCALED:
            raise errors.UnsupportedError(
                f"{self.owner}.apply_gradients: expected unscaled gradients, got some "
                "of which scale_loss scaled the loss and unscale_gradients was not "
                "called; pass them through unscale_gradients first."
            )
        self._steps_in_functions |= not tf.executing_eagerly()
        self._by_hand.pop(replica_number(), None)
        return pairs

    # -- steps -------------------------------------------------------------------------

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take the step of the wrapped optimizer."""
        return self.apply_inside(pairs, global_step, name)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        step = scaling.ScaledStep(pairs)

        def update(pairs: Pairs) -> tf.Operation | None:
            return self._take_step(pairs, global_step, name)

        if tf.executing_eagerly():
            return self._apply_eagerly(step, update)
        self.last_step = scalers.ScaledStepReport(*NO_EAGER_STEP)
        counters = [] if global_step is None else [global_step]
        return base.as_train_op(
            lambda: self._apply_in_graph(step, update, counters, name)
        )

    def _apply_in_graph(
        self,
        step: scaling.ScaledStep,
        update: Update,
        counters: list[tf.Variable],
        name: str | None,
    ) -> tf.Operation:
        touched = [v for g, v in step.pairs if g is not None]
        base.require_resources([*touched, *counters])
        self._look(step)

        def run() -> tf.Operation | None:
            with tf.control_dependencies([step.update(update)]):
                return tf.no_op()

        self.create_slots(touched)
        done = tf.cond(step.finite, run, tf.no_op)
        with tf.control_dependencies([done]):
            moved = step.move(self._scale)
        with tf.control_dependencies([moved]):
            counted = self._count(step)
        return tf.group(done, moved, counted, name=name or self.get_name())

    def _apply_eagerly(
        self, step: scaling.ScaledStep, update: Update
    ) -> tf.Operation | None:
        before = float(self._scale())
        self._look(step)
        applied = bool(step.finite)
        if applied:
            done = step.update(update)
        else:
            # As in a graph: the slots exist even if the first step is skipped.
            done = self.create_slots([v for g, v in step.pairs if g is not None])
        step.move(self._scale)
        after = float(self._scale())
        self.last_step = step.report(self.inner_optimizer, applied, before, after)
        self._count(step)
        return done


@base.with_strict
class MixedPrecisionLossScaleOptimizer(ScalingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients``: g = d(s loss)/dw (1/s), where s is the loss scale and 1/s is
    rounded to float32. ``apply_gradients``: if every element of every gradient is
    finite, the gradients are passed to ``opt``, clipped if ``clip_norm`` is given.
    Otherwise weights, slots, shared powers and ``global_step`` do not change. Then the
    scale is updated. ``apply_gradients`` neither scales nor unscales.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        at_floor: what to do once ``floor_patience`` steps in a row were skipped and the
            scale is at its floor: ``warn`` once (in a graph, print to stderr);
            ``raise`` (in a graph an assertion, which raises
            ``tf.errors.InvalidArgumentError`` when it runs); ``ignore``. Code compiled
            by XLA only counts skips.
        floor_patience: steps.
        clip_norm: the largest global norm of the unscaled gradients, > 0. n is that
            norm in float32; if n > clip_norm, each gradient g becomes g clip_norm / n.
            If n is not finite, the step is skipped. inf: only measure the norm. None:
            no clipping, no norm.

    Attributes:
        inner_optimizer: ``opt``.
        scale_object: the loss scale as an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.scalers.ScaledStepReport`. Steps in graphs and inside of a
            ``tf.function`` are not reported.
        skipped_steps, skipped_in_a_row: all skipped steps, and those since the last
            step that was not skipped: int64 tensors, saved.

    Raises:
        NotScalableError: a ValueError and TypeError; ``opt`` is no v1 optimizer.
        MissingLossScaleError: a TypeError and ValueError; ``loss_scale`` is None.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.
        UnsupportedError: a ValueError; ``opt`` scales the loss itself.

    Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15.

    Example:
        >>> w = tf.Variable([1.0, 2.0])
        >>> opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(0.5), 8.0)
        >>> _ = opt.minimize(lambda: tf.reduce_sum(w * w), var_list=[w])
        >>> w.numpy().tolist(), opt.last_step.applied
        ([0.0, 0.0], True)
    """

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: float | str | shared.LossScale,
        at_floor: str = "warn",
        floor_patience: int = scaling.PATIENCE,
        *,
        clip_norm: float | None = None,
    ) -> None:
        base.require_optimizer(opt, self.owner, errors.NotScalableError)
        scale = shared.scale_for(loss_scale, FixedLossScale, DynamicLossScale)
        super().__init__(opt, None, scale, scale)
        self._set_options(clip_norm, at_floor, floor_patience)

    def _prepared(self, pairs: Pairs) -> Pairs:
        """Return unscaled gradients in the dtypes of their variables."""
        return scaling.narrowed(self._unscaled(pairs))
