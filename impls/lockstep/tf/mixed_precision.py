"""The wrapper that trains half-precision variables through float32 masters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep.interface import StepReport
from lockstep.spec import mixed_precision as words
from lockstep.spec import tf_host
from lockstep.tf.core.masters import times, widen
from lockstep.tf.hooks import require_resources
from lockstep.tf.loss_scale import LossScale
from lockstep.tf.loss_scale_optimizer import nonfinite_names
from lockstep.tf.loss_scaler import AutomaticLossScaler
from lockstep.tf.master_copies import (
    MasterCopies,
    builds_graph,
    share_row_limits,
)
from lockstep.tf.pairs import (
    Gradient,
    Pairs,
    as_variable,
    check_pairs,
    name_of,
    refuse_replicas,
)
from lockstep.tf.regularizer import Regularizer, penalty_gradient, regularizers
from lockstep.tf.step_decision import Scale, clip_pairs, decide, scale_of
from lockstep.tf.wrapper import Optimizer, Wrapper, as_train_op, is_keras

__all__ = ["MixedPrecisionOptimizerWrapper"]


class MixedPrecisionOptimizerWrapper(Wrapper):
    """Train half-precision variables through float32 masters, with a scaled loss.

    ``compute_gradients``: g = (float32(d(s loss)/dw) + s d reg(m)/dm) (1/s), s the loss
    scale, m the master of w, reg what ``mp_regularizer_wrapper`` registered for w.
    ``apply_gradients``: the scale moves; if every gradient is finite, ``optimizer``
    updates the masters and w = max(min(m, L), -L) rounded, L = 65504 for float16;
    otherwise weights, masters, slots, shared powers and ``global_step`` stay as they
    are. Variables of other dtypes are their own masters. What others write into w
    between steps, a checkpoint of the model say, m takes over.

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one. Row
            clipping goes inside, with the model's variables as keys.
        loss_scale: a number > 0, None for 1, ``dynamic``, an ``AutomaticLossScaler`` or
            a loss scale.
        clip_norm: the largest global norm of the unscaled gradients, > 0; None: any.
        strict: as the original: float16 only, each needs a gradient, a static scale is
            a float and applies what is not finite, slots and variables are hidden, what
            others write into the model is lost; in a graph each ``compute_gradients``
            makes masters of its own and adds the penalties to REGULARIZATION_LOSSES.

    Attributes:
        inner_optimizer: ``optimizer``; its slots belong to the masters.
        scale_object: the scale: a float, or an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.spec.mixed_precision.MasterStepReport`; None before it,
            and in graphs.

    Raises:
        NotScalableError: a ValueError and TypeError; ``optimizer`` is no v1 optimizer.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.

    Origin: OpenSeq2Seq, ``MixedPrecisionOptimizerWrapper``; P. Micikevicius et al.,
    "Mixed Precision Training". By default we differ in what ``strict`` lists.

    Example:
        >>> w = tf.Variable([1.0, 2.0], dtype=tf.float16)
        >>> opt = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(2**-12), 8.0)
        >>> for _ in range(3):
        ...     _ = opt.minimize(lambda: tf.reduce_sum(w), var_list=[w])
        >>> w.numpy().tolist(), opt.master(w).numpy().tolist()
        ([0.9990234375, 1.9990234375], [0.999267578125, 1.999267578125])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: float | str | AutomaticLossScaler | LossScale | None = None,
        *,
        clip_norm: float | None = None,
        strict: bool = False,
    ) -> None:
        if is_keras(optimizer) or not isinstance(optimizer, Optimizer):
            raise words.not_an_optimizer(optimizer, "tf.compat.v1.train.Optimizer")
        words.check_clip_norm(clip_norm)
        self.scale_object: Scale = scale_of(loss_scale, strict)
        locking = getattr(optimizer, "_use_locking", False)
        super().__init__(optimizer, optimizer.get_name() + words.SUFFIX, locking)
        if isinstance(self.scale_object, tf.Module):
            self._track_trackable(self.scale_object, "loss_scale")
        self.clip_norm = clip_norm
        self.strict = strict
        self.last_step: StepReport | None = None
        self._copies = MasterCopies(strict, self._track_trackable)

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return tf.convert_to_tensor(self.factor(), tf.float32)

    def factor(self) -> float | tf.Tensor:
        """Return the scale of the next step: a float if it is a number.

        # Quirk: docs/differences.md#masters-scale-type
        """
        scale = self.scale_object
        if isinstance(scale, AutomaticLossScaler):
            return scale.loss_scale
        if isinstance(scale, LossScale) and not self.strict:
            return scale()
        if not isinstance(scale, float):
            raise words.unusable(scale)
        return scale

    @property
    def masters(self) -> list[tf.Variable]:
        """The masters that exist, in the order in which they were made."""
        return self._copies.variables

    def master(self, variable: Any) -> tf.Variable:
        """Return what is updated in place of ``variable``: its master, or itself.

        A master that is missing is made; it starts at the value of ``variable``.
        """
        variable = as_variable(variable)
        self._make_masters([variable])
        return self._copies.of(variable)

    def _make_masters(self, variables: Iterable[Any], anew: bool = False) -> None:
        """Make masters that are missing, or all of them ``anew``."""
        made = self._copies.make(variables, anew)
        if not self.strict:
            share_row_limits(made, self.inner_optimizer)

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
        """Differentiate the scaled ``loss``: (unscaled float32 gradient, master).

        A sparse gradient stays sparse unless a regularizer adds a dense one; an absent
        one is None; float64 stays float64.

        Args:
            loss: a tensor in a graph; a callable without arguments anywhere.
            var_list: the model's variables, or None: see
                :class:`~lockstep.tf.wrapper.Wrapper`.
            gate_gradients: how much of the graph's parallelism to allow; graphs only.
            aggregation_method: how to add up gradient terms; graphs only.
            colocate_gradients_with_ops: place gradients with their ops; graphs only.
            grad_loss: the upstream gradient of ``loss``, unscaled.

        Raises:
            EagerLossError: a RuntimeError; ``loss`` cannot be called in eager mode.
            UnusableScaleError: an AttributeError; strict, no float and no scaler.
            DtypeError: a TypeError; strict, a float16 loss at an automatic scale.
            UnsupportedError: a ValueError; strict, a float16 variable without gradient.
        """
        if tf.executing_eagerly() and not callable(loss):
            raise tf_host.eager_loss(words.WRAPPER, type(loss).__name__)
        # Read once: the loss and its gradients must see one scale.
        factor = self.factor()
        found = super().compute_gradients(
            self._scaled(loss, factor),
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        anew = self.strict and builds_graph()
        self._make_masters([variable for _, variable in found], anew)
        known, reciprocal = regularizers(), 1.0 / factor
        pairs: Pairs = []
        for gradient, variable in found:
            if self._copies.wanted(variable):
                regularizer = known.get(variable.ref())
                with tf.control_dependencies(self._follow(variable)):
                    gradient = self._widened(gradient, variable, regularizer, factor)
            unscaled = None if gradient is None else times(gradient, reciprocal)
            pairs.append((unscaled, self._copies.of(variable)))
        return pairs

    def _follow(self, variable: tf.Variable) -> list[tf.Operation]:
        """Return the operation after which the master may be read, if there is one."""
        done = None if self.strict else self._copies.follow(variable)
        return [] if done is None else [done]

    def _scaled(self, loss: Any, factor: float | tf.Tensor) -> Any:
        """Return ``loss`` times the scale; a callable becomes another one."""
        if callable(loss):
            return lambda: self._scaled(loss(), factor)
        loss = tf.convert_to_tensor(loss)
        # Quirk: docs/differences.md#masters-half-loss
        if self.strict and tf.is_tensor(factor) and loss.dtype != tf.float32:
            raise words.half_loss(loss.dtype.name)
        return times(loss, factor)

    def _widened(
        self,
        gradient: Gradient,
        variable: tf.Variable,
        regularizer: Regularizer | None,
        factor: float | tf.Tensor,
    ) -> Gradient:
        """Return the gradient of a master, still scaled, that of its penalty added."""
        # Quirk: docs/differences.md#masters-absent
        if gradient is None and self.strict:
            raise words.absent_half(name_of(variable))
        wide = None if gradient is None else widen(gradient)
        if regularizer is None:
            return wide
        weight = self._copies.of(variable).read_value()
        slope = penalty_gradient(regularizer, weight, collect=self.strict)
        if slope is None:
            return wide
        slope = times(slope, factor)
        return slope if wide is None else tf.convert_to_tensor(wide) + slope

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Move the scale, update the masters, round them into the model.

        Args:
            grads_and_vars: iterable of (unscaled gradient, variable), the variables
                masters, as ``compute_gradients`` returns them, or the model's.
            global_step: integer variable, + 1 if the step is not skipped.
            name: name of the operation in a graph.

        Returns:
            The operation of the whole step in a graph, nothing of use eagerly.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
            UnsupportedError: reference variables where control flow v2 is on.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        refuse_replicas(words.WRAPPER, self.strict)
        pairs = pairs if self.strict else self._of_masters(pairs)
        global_step = as_variable(global_step)
        clipped, norm = clip_pairs(pairs, self.clip_norm)

        def update() -> tf.Operation:
            done = self.inner_optimizer.apply_gradients(clipped, global_step, name)
            # The model may be written only after the update has written the masters.
            with tf.control_dependencies([done]):
                copies = [self._copies.copy_back(v) for g, v in pairs if g is not None]
            return tf.group(done, *[copy for copy in copies if copy is not None])

        if tf.executing_eagerly():
            return self._apply_eagerly(pairs, update, norm)
        if not self.skips:
            return as_train_op(update)
        masters = [variable for gradient, variable in pairs if gradient is not None]
        models = [self._copies.model_of(master) for master in masters]
        step = [] if global_step is None else [global_step]
        require_resources([*masters, *models, *step])
        return as_train_op(lambda: self._apply_in_graph(pairs, update, norm, name))

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out.

        # Quirk: docs/differences.md#masters-static-scale. Strict: only by a scaler.
        """
        return not self.strict or isinstance(self.scale_object, AutomaticLossScaler)

    def _of_masters(self, pairs: Pairs) -> Pairs:
        """Put masters in the place of the model's variables."""
        found: Pairs = []
        for gradient, variable in pairs:
            master = self.master(variable)
            if gradient is not None and master is not variable:
                with tf.control_dependencies(self._follow(variable)):
                    gradient = widen(gradient)
            found.append((gradient, master))
        return found

    def _apply_in_graph(
        self,
        pairs: Pairs,
        update: Callable[[], Any],
        norm: tf.Tensor | None,
        name: str | None,
    ) -> tf.Operation:
        with self._old_scope():
            moved, should_apply = decide(self.scale_object, pairs, norm, self.strict)
        with self._old_scope():
            self.create_slots([v for g, v in pairs if g is not None])

        def run() -> tf.Operation:
            with tf.control_dependencies([update()]):
                return tf.no_op()

        done = tf.cond(should_apply, run, tf.no_op)
        return tf.group(done, moved, name=name or self.get_name())

    def _old_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Name what is made as the original did, in the second of its conditions."""
        if not self.strict:
            return contextlib.nullcontext()
        return tf.compat.v1.name_scope("cond")

    def _apply_eagerly(
        self, pairs: Pairs, update: Callable[[], Any], norm: tf.Tensor | None
    ) -> tf.Operation | None:
        before, applied = float(self.loss_scale), True
        if self.skips:
            _, should_apply = decide(self.scale_object, pairs, norm, self.strict)
            applied = bool(should_apply)
        if applied:
            done = update()
        else:
            # As in a graph: what a first step makes exists after a skipped one too.
            done = self.create_slots([v for g, v in pairs if g is not None])
        models = [(g, self._copies.model_of(v)) for g, v in pairs]
        nonfinite = [] if applied and self.skips else nonfinite_names(models)
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [name_of(variable) for _, variable in models],
            nonfinite if applied else nonfinite or ["the global norm"],
            (before, float(self.loss_scale)),
            applied,
            None if norm is None else float(norm),
        )
        return done

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Make the masters of ``var_list``, and their slots, now."""
        super().create_slots([self.master(variable) for variable in var_list])

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the master of ``var``.

        # Quirk: docs/differences.md#masters-slots. Strict: None.
        """
        if self.strict:
            return None
        return super().get_slot(self._copies.of(as_variable(var)), name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: nothing."""
        return [] if self.strict else super().get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Return masters, the wrapped optimizer's state and the scale's; strict: none.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves everything.
        """
        if self.strict:
            return []
        scale = getattr(self.scale_object, "variables", ())
        return [*self.masters, *super().variables(), *scale]
