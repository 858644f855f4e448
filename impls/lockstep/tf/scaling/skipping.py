"""The base of both wrappers with a loss scale: skip steps and update the scale."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages.base.pipeline import refuse_second_scale
from lockstep.messages.scaling.loss_scaling import ScaledStepReport
from lockstep.quirks import quirks_of
from lockstep.tf.replicas import Pairs, name_of
from lockstep.tf.scaling.loss_scale import LossScale, state_variable
from lockstep.tf.scaling.scaled_gradients import ScaledGradients
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.shared.scaling.skips import SkipCounts, Skips
from lockstep.tf.wrapper import Optimizer, as_train_op, require_resources

__all__ = ["SkippingWrapper", "Update"]

Update = Callable[[Pairs], tf.Operation | None]


@documented
class SkippingWrapper(SkipCounts, ScaledGradients):
    """...

    Weights, slots, shared powers and ``global_step`` do not change then. The scale is
    updated after the step, so a step that fails does not change it.

    Args:
        inner_optimizer: the optimizer to wrap.
        name: name of the wrapper.
        scale: the loss scale; ``scale_object`` is the object that users passed or know.
    """

    scale_object: Any

    def __init__(
        self,
        inner_optimizer: Optimizer,
        name: str | None,
        scale: LossScale,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            refuse_second_scale(self.owner, inner_optimizer)
        locking = getattr(inner_optimizer, "_use_locking", False)
        super().__init__(inner_optimizer, name, locking)
        if isinstance(self.scale_object, tf.Module):
            self._track_trackable(self.scale_object, "loss_scale")
        self._scale = scale
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        self.strict = strict
        self.last_step: StepReport = ScaledStepReport(*NO_EAGER_STEP)
        if not strict:
            with tf.init_scope():
                skips = state_variable("skipped_in_a_row", 0, tf.int64)
            self._track_trackable(skips, "skipped_in_a_row")
            self._skips = Skips(self.owner, skips)

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self._scale()

    @property
    def factor(self) -> tf.Tensor:
        """The current factor of a loss: float32, 0-d."""
        return self._scale()

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients; strict: no."""
        return not self._quirks.loss_scale_float16

    @property
    def _hides_slots(self) -> bool:
        """Whether slots and variables are hidden."""
        return self._quirks.loss_scale_slots

    @property
    def _counters(self) -> list[tf.Variable]:
        """The variable of the skip count; none under strict."""
        return [] if self.strict else [self._skips.variable]

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        raise NotImplementedError

    def policies(self) -> list[Any]:
        """Return the loss scale, for a repr."""
        return [self.scale_object]

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients of a step."""
        step.look(self.clip_norm)

    def _move_scale(self, step: ScaledStep) -> tf.Operation | None:
        """Update the scale after a step; return the operation."""
        return self._scale.move(step.finite)

    def _count(self, step: ScaledStep) -> tf.Operation | None:
        """Count a step and report a stall; strict: do nothing."""
        if self.strict:
            return tf.no_op()
        return self._skips.count(step, self._scale, self.at_floor, self.floor_patience)

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take the step of the wrapped optimizer."""
        return self.apply_inside(pairs, global_step, name)

    def _apply_or_skip(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a step with the clipped pairs, or skip it.

        Raises:
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
            UnsupportedError: reference variables under control flow v2.
        """
        step = ScaledStep(pairs, [name_of(variable) for _, variable in pairs])

        def update(pairs: Pairs) -> tf.Operation | None:
            return self._take_step(pairs, global_step, name)

        if tf.executing_eagerly():
            return self._apply_eagerly(step, update)
        self.last_step = ScaledStepReport(*NO_EAGER_STEP)
        if not self.skips:
            if self.clip_norm is not None:
                self._look(step)
            return as_train_op(lambda: step.update(update))
        touched = [variable for gradient, variable in pairs if gradient is not None]
        require_resources(touched + ([] if global_step is None else [global_step]))
        return as_train_op(lambda: self._apply_in_graph(step, update, name))

    def _apply_in_graph(
        self, step: ScaledStep, update: Update, name: str | None
    ) -> tf.Operation:
        with self._old_scope() as moving:
            self._look(step)

        def run() -> tf.Operation | None:
            with tf.control_dependencies([step.update(update)]):
                return tf.no_op()

        with self._old_scope() as holding:
            if not self._makes_slots_late():
                self.create_slots([v for g, v in step.pairs if g is not None])
        done = tf.cond(step.finite, run, tf.no_op, name=holding)
        with tf.control_dependencies([done]), self._old_scope(moving):
            moved = self._move_scale(step)
        with tf.control_dependencies([moved]):
            counted = self._count(step)
        return tf.group(done, moved, counted, name=name or self.get_name())

    def _old_scope(
        self, name: str | None = "cond"
    ) -> contextlib.AbstractContextManager[Any]:
        """Enter the name scope of the original's next condition, or an earlier one.

        The original has two conditions: one updates the scale, the other contains the
        update. Its checkpoints have ``cond_1/beta1_power`` for the power of an Adam,
        and ``cond_3/beta1_power`` for that of a second one.
        """
        if not self.strict:
            return contextlib.nullcontext()
        return tf.compat.v1.name_scope(name)

    def _makes_slots_late(self) -> bool:
        """Whether the update creates its slots itself, in the original's condition.

        Only there inner wrappers use the original's names for them. Branches of control
        flow v2 are functions and use other names.
        """
        return self.strict and not tf.compat.v1.control_flow_v2_enabled()

    def _apply_eagerly(self, step: ScaledStep, update: Update) -> tf.Operation | None:
        before = float(self._scale())
        self._look(step)
        step.applied = bool(step.finite) or not self.skips
        if step.applied:
            done = step.update(update)
        else:
            # As in a graph: the slots exist even if the first step is skipped.
            done = self.create_slots([v for g, v in step.pairs if g is not None])
        self._move_scale(step)
        step.scales = before, float(self._scale())
        self.last_step = step.report(getattr(self.inner_optimizer, "last_step", None))
        self._count(step)
        return done

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: an empty list."""
        return [] if self._hides_slots else super().get_slot_names()
