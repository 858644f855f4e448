"""The loss-scaling wrapper, for v1-style optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.nouns import TF
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.multitask import MultitaskOptimizerWrapper
from lockstep.tf.replicas import Pairs, awaits_sums, name_of, refuse_cross_replica
from lockstep.tf.scaling.loss_scale import (
    DynamicLossScale,
    LossScale,
    get,
)
from lockstep.tf.scaling.scaled_gradients import narrowed, unscaled
from lockstep.tf.scaling.skipping import SkippingWrapper
from lockstep.tf.shared.gradients import Gradient
from lockstep.tf.shared.scaling.dynamic_scale import check_present, refuse_half
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.wrapper import Optimizer, as_counter, check_pairs, is_keras

__all__ = ["MixedPrecisionLossScaleOptimizer"]


@documented
class MixedPrecisionLossScaleOptimizer(SkippingWrapper):
    """Differentiate a scaled loss, and skip steps whose gradients are not finite.

    ``compute_gradients``: g = d(s loss)/dw (1/s), where s is the loss scale and 1/s is
    rounded to float32. ``apply_gradients``: if every element of every gradient is
    finite, the gradients are passed to ``opt``, clipped if ``clip_norm`` is given.
    Otherwise weights, slots, shared powers and ``global_step`` do not change. Then the
    scale is updated. ``apply_gradients`` neither scales nor unscales.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.

    Raises:
        ...
        NotScalableError: a ValueError and TypeError; ``opt`` is no v1 optimizer.

    Example:
        >>> w = tf.Variable([1.0, 2.0])
        >>> opt = MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(0.5), 8.0)
        >>> _ = opt.minimize(lambda: tf.reduce_sum(w * w), var_list=[w])
        >>> w.numpy().tolist(), opt.last_step.applied
        ([0.0, 0.0], True)
    """

    owner = words.WRAPPER

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: float | str | LossScale,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
        *,
        clip_norm: float | None = None,
    ) -> None:
        quirks = quirks_of(strict)
        refuse_others(opt, quirks)
        if loss_scale is None:
            raise refusals.MISSING_LOSS_SCALE.error()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, quirks.arguments_unchecked)
        self.scale_object = get(loss_scale, strict)
        if strict:
            # The original's name: its checkpoints of objects load here, and ours there.
            self.tracked_as = "base_optimizer"
        scale = self.scale_object
        super().__init__(opt, None, scale, at_floor, floor_patience, clip_norm, strict)

    @tf.autograph.experimental.do_not_convert
    @documented
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: tf.Tensor | None = None,
    ) -> Pairs:
        """Differentiate the scaled ``loss`` and unscale: (gradient or None, variable).

        Args:
            loss: in a graph a tensor; in any mode a callable without arguments.
            var_list: the variables, or None: see
                :class:`~lockstep.tf.wrapper.Wrapper`.
            grad_loss: the upstream gradient of ``loss``, unscaled.

        Raises:
            EagerLossError: a RuntimeError; ``loss`` cannot be called in eager mode.
            DtypeError: a TypeError; strict, a loss or a variable in float16.
        """
        pairs, scale = self._differentiate(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        for gradient, variable in pairs if self._quirks.loss_scale_float16 else []:
            if gradient is not None:
                refuse_half(repr(name_of(variable)), gradient.dtype)
        return unscaled(pairs, scale, self._quirks)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Call the wrapped optimizer if all gradients are finite; update the scale.

        Args:
            grads_and_vars: iterable of (gradient, variable), gradients unscaled.
            global_step: integer variable, incremented if the step is not skipped.
            name: name of the operation in a graph.

        Returns:
            In a graph the operation of both updates; not useful in eager mode.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable; DtypeError:
                ``global_step`` cannot count.
            UnsupportedError: reference variables under control flow v2; strict: a
                sparse gradient without dense_shape.
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER, self.takes_wide)
        unchecked = self._quirks.arguments_unchecked
        global_step = as_counter(global_step, words.WRAPPER, unchecked)
        pairs = narrowed(self.unscaled_once(pairs))
        if not self.strict:
            return self.apply_together(self._apply_or_skip, pairs, global_step, name)
        # As in the original: its scopes in a graph, and its sums over replicas.
        refuse_cross_replica(words.WRAPPER)
        if self.skips and awaits_sums():
            return self._apply_among_replicas(pairs, global_step, name)
        return self._apply_or_skip(pairs, global_step, name)

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take the step of the wrapped optimizer."""
        return self.apply_inside(pairs, global_step, self._inner_name(name))

    def _inner_name(self, name: str | None) -> str | None:
        """Strict: return the original's name, which inner wrappers use for scopes."""
        is_original = self.strict and self.skips
        return f"{name or self.get_name()}-wrapped" if is_original else name

    def _apply_among_replicas(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Strict: step on all replicas or on none; each checks its own gradients."""
        # All replicas must pass the identical object; an equal one is not enough.
        inner_name = self._inner_name(name)

        def update(pairs: Pairs) -> tf.Operation | None:
            return self.apply_inside(pairs, global_step, inner_name)

        def flag(pairs: Pairs) -> tf.Tensor:
            step = ScaledStep(pairs, [])
            self._look(step)
            return tf.cast(step.finite, tf.float32)

        def step(strategy: Any, pairs: Pairs) -> tf.Operation | None:
            replicas = strategy.extended
            with self._old_scope():
                flags = replicas.call_for_each_replica(flag, args=(pairs,))
                count = strategy.reduce(tf.distribute.ReduceOp.SUM, flags, axis=None)
                finite = tf.equal(count, float(strategy.num_replicas_in_sync))

            def run() -> tf.Operation | None:
                done = replicas.call_for_each_replica(update, args=(pairs,))
                with tf.control_dependencies([strategy.group(done)]):
                    return tf.no_op()

            with self._old_scope() as holding:
                done = tf.cond(finite, run, tf.no_op, name=holding)
            with tf.control_dependencies([done]):
                moved = self.scale_object.move(finite)
            return tf.group(done, moved, name=name or self.get_name())

        context = tf.distribute.get_replica_context()
        return context.merge_call(step, args=(tuple(pairs),))

    def check_loss(self, dtype: tf.DType) -> None:
        """Strict: raise for a loss that the original could not scale."""
        if self._quirks.loss_scale_float16:
            refuse_half("a loss", dtype)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_dynamic = isinstance(self.scale_object, DynamicLossScale)
        return is_dynamic or not self._quirks.loss_scale_fixed

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients of a step; raise for integers, which cannot be scaled."""
        scale = self.scale_object
        is_dynamic = isinstance(scale, DynamicLossScale)
        needs_shape = is_dynamic and quirks_of(scale.strict).dynamic_scale_dense_shape
        check_present(step.present, needs_shape)
        super()._look(step)

    def variables(self) -> list[tf.Variable]:
        """Return the state: wrapped optimizer, scale and skip count; strict: none."""
        if self._hides_slots:
            return []
        own = [*self.scale_object.variables, *self._counters]
        return [*super().variables(), *own]


def refuse_others(opt: Any, quirks: Quirks) -> None:
    """Raise unless ``opt`` can be wrapped.

    The original's multitask wrapper is not an optimizer.
    """
    fine = isinstance(opt, Optimizer)
    if quirks.multitask_nesting and isinstance(opt, MultitaskOptimizerWrapper):
        fine = not opt.strict
    if is_keras(opt) or not fine:
        raise not_an_optimizer(words.WRAPPER, opt, TF)
