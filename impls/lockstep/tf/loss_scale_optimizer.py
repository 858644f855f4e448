"""The loss-scaling wrapper, for v1-style optimizers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import StepReport
from lockstep.spec import loss_scaling as words
from lockstep.spec import tf_host
from lockstep.tf.core.dynamic_scale import finite_flags
from lockstep.tf.hooks import require_resources
from lockstep.tf.loss_scale import DynamicLossScale, LossScale, get
from lockstep.tf.multitask import MultitaskOptimizerWrapper
from lockstep.tf.pairs import (
    Gradient,
    Pairs,
    as_variable,
    check_pairs,
    name_of,
    refuse_replicas,
)
from lockstep.tf.wrapper import Optimizer, Wrapper, as_train_op, is_keras

__all__ = ["MixedPrecisionLossScaleOptimizer"]


class MixedPrecisionLossScaleOptimizer(Wrapper):
    """Differentiate a scaled loss, and leave steps out whose gradients are not finite.

    ``compute_gradients``: g = d(s loss)/dw (1/s), s the loss scale and 1/s rounded to
    float32. ``apply_gradients``: the scale is updated; ``opt`` is called if every
    element of every gradient is finite, otherwise weights, slots, shared powers and
    ``global_step`` stay as they are. It neither scales nor unscales.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        at_floor: ``warn`` or ``raise`` once ``floor_patience`` steps in a row were
            skipped and the scale cannot sink any more; eager steps only.
        floor_patience: steps.
        strict: as the original: non-finite gradients are applied at a fixed scale,
            float16 is refused, slots and variables are hidden, no stall is noticed.

    Attributes:
        inner_optimizer: ``opt``.
        scale_object: the loss scale as an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`; None before it, and in graphs.

    Raises:
        NotScalableError: a ValueError and TypeError; ``opt`` is no v1 optimizer.
        MissingLossScaleError: a TypeError and ValueError; ``loss_scale`` is None.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.

    Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15.
    By default we differ in what ``strict`` lists.

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
        loss_scale: float | str | LossScale,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
    ) -> None:
        refuse_others(opt, strict)
        if loss_scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        self.scale_object = get(loss_scale, strict)
        super().__init__(opt, use_locking=getattr(opt, "_use_locking", False))
        self._track_trackable(self.scale_object, "loss_scale")
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.last_step: StepReport | None = None
        self._skips = 0

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self.scale_object()

    @tf.autograph.experimental.do_not_convert
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
            loss: a tensor in a graph; a callable without arguments anywhere.
            var_list: the variables, or None: see :class:`~lockstep.tf.wrapper.Wrapper`.
            gate_gradients: how much of the graph's parallelism to allow; graphs only.
            aggregation_method: how to add up gradient terms; graphs only.
            colocate_gradients_with_ops: place gradients with their ops; graphs only.
            grad_loss: the upstream gradient of ``loss``, unscaled.

        Raises:
            EagerLossError: a RuntimeError; ``loss`` cannot be called in eager mode.
            DtypeError: a TypeError; strict, a loss or a variable in float16.
        """
        if tf.executing_eagerly() and not callable(loss):
            raise tf_host.eager_loss(words.WRAPPER, type(loss).__name__)
        # Read once: the loss and its gradients must see one scale.
        scale = self.loss_scale
        pairs = super().compute_gradients(
            self.scaled(loss, scale),
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        reciprocal = 1.0 / scale
        return [(self.unscaled(g, v, reciprocal), v) for g, v in pairs]

    def scaled(self, loss: Any, scale: tf.Tensor) -> Any:
        """Return ``loss`` times the scale; a callable becomes another one."""
        if callable(loss):
            return lambda: self.scaled(tf.convert_to_tensor(loss()), scale)
        loss = tf.convert_to_tensor(loss)
        self.refuse_half("a loss", loss.dtype)
        return loss * tf.cast(scale, loss.dtype)

    def unscaled(
        self, gradient: Gradient, variable: Any, reciprocal: tf.Tensor
    ) -> Gradient:
        """Return g (1/s), half precision by way of float32; absent stays absent."""
        if gradient is None:
            return None
        self.refuse_half(repr(name_of(variable)), gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            values = multiplied(gradient.values, reciprocal)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return multiplied(gradient, reciprocal)

    def refuse_half(self, what: str, dtype: tf.DType) -> None:
        """Raise under strict for what the float32 scale cannot multiply.

        # Quirk: docs/differences.md#loss-scale-float16
        """
        if self.strict and dtype.base_dtype != tf.float32:
            raise words.half_precision(what)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Update the scale; let the wrapped optimizer run if all is finite.

        Args:
            grads_and_vars: iterable of (gradient, variable), gradients unscaled.
            global_step: integer variable, + 1 if the step is not skipped.
            name: name of the operation in a graph.

        Returns:
            The operation of both updates in a graph, nothing of use eagerly.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
            UnsupportedError: reference variables where control flow v2 is on; strict, a
                sparse gradient without dense_shape.
            ScaleStalledError: a RuntimeError; see ``at_floor``.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        refuse_replicas(words.WRAPPER, self.strict)
        global_step = as_variable(global_step)

        def update() -> tf.Operation | None:
            return self.inner_optimizer.apply_gradients(pairs, global_step, name)

        if tf.executing_eagerly():
            return self._apply_eagerly(pairs, update)
        if not self.skips:
            return update()
        touched = [v for g, v in pairs if g is not None]
        step = [] if global_step is None else [global_step]
        require_resources([*touched, *step])
        return as_train_op(lambda: self._apply_in_graph(pairs, update, name))

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out.

        # Quirk: docs/differences.md#loss-scale-fixed. Strict: at a dynamic scale only.
        """
        return not self.strict or isinstance(self.scale_object, DynamicLossScale)

    def decide(self, pairs: Pairs) -> tuple[tf.Operation | None, Any]:
        """Update the scale, once: the operation, and whether to apply."""
        gradients = [gradient for gradient, _ in pairs]
        moved, should_apply = self.scale_object.update(gradients)
        if self.skips and not isinstance(self.scale_object, DynamicLossScale):
            present = [gradient for gradient in gradients if gradient is not None]
            finite = tf.reduce_all(finite_flags(present))
            should_apply = tf.logical_and(should_apply, finite)
        return moved, should_apply

    def _apply_in_graph(
        self, pairs: Pairs, update: Callable[[], Any], name: str | None
    ) -> tf.Operation:
        with self._old_scope():
            moved, should_apply = self.decide(pairs)
        with self._old_scope():
            self.create_slots([v for g, v in pairs if g is not None])

        def run() -> tf.Operation | None:
            with tf.control_dependencies([update()]):
                return tf.no_op()

        done = tf.cond(should_apply, run, tf.no_op)
        return tf.group(done, moved, name=name or self.get_name())

    def _old_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Name what is made as the original did, in the second of its conditions.

        Checkpoints of old code have ``cond_1/beta1_power`` for the power of an Adam.
        """
        if not self.strict:
            return contextlib.nullcontext()
        return tf.compat.v1.name_scope("cond")

    def _apply_eagerly(
        self, pairs: Pairs, update: Callable[[], Any]
    ) -> tf.Operation | None:
        before = float(self.loss_scale)
        _, should_apply = self.decide(pairs)
        applied = bool(should_apply)
        if applied:
            done = update()
        else:
            # As in a graph: what a first step makes exists after a skipped one too.
            done = self.create_slots([v for g, v in pairs if g is not None])
        nonfinite = [] if applied and self.skips else nonfinite_names(pairs)
        after = float(self.loss_scale)
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [name_of(variable) for _, variable in pairs],
            nonfinite,
            (before, after),
            applied,
        )
        self._skips = 0 if applied else self._skips + 1
        if not self.strict and after <= getattr(self.scale_object, "floor", after):
            self._notice_stall(after, nonfinite)
        return done

    def _notice_stall(self, scale: float, nonfinite: list[str]) -> None:
        """Warn once a row of skips, or raise at each, when patience has run out."""
        stalled = words.stalled(self._skips, scale, nonfinite)
        if self.at_floor == "raise" and self._skips >= self.floor_patience:
            raise stalled
        if self._skips == self.floor_patience:
            warnings.warn(str(stalled), stacklevel=4)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the wrapped optimizer.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: nothing."""
        return [] if self.strict else super().get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Return the state: the wrapped optimizer's and the scale's; strict: none."""
        if self.strict:
            return []
        return [*super().variables(), *self.scale_object.variables]


def refuse_others(opt: Any, strict: bool) -> None:
    """Raise unless ``opt`` can be wrapped.

    The original of the multitask wrapper was no optimizer.
    """
    fine = isinstance(opt, Optimizer)
    if strict and isinstance(opt, MultitaskOptimizerWrapper):
        fine = not opt.strict
    if is_keras(opt) or not fine:
        raise words.not_an_optimizer(opt, "tf.compat.v1.train.Optimizer")


def multiplied(values: tf.Tensor, reciprocal: tf.Tensor) -> tf.Tensor:
    """Return values times the float32 reciprocal, rounded to their dtype once."""
    wide = tf.float64 if values.dtype == tf.float64 else tf.float32
    product = tf.cast(values, wide) * tf.cast(reciprocal, wide)
    return tf.cast(product, values.dtype)


def nonfinite_names(pairs: Pairs) -> list[str]:
    """Return the names of the variables whose gradients are not finite."""
    present = [(g, name_of(v)) for g, v in pairs if g is not None]
    flags = np.asarray(finite_flags([gradient for gradient, _ in present]))
    return [name for (_, name), fine in zip(present, flags, strict=True) if not fine]
