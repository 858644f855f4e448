"""The wrapper that trains half-precision variables through float32 masters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base.pairs import refuse_complex
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.messages.nouns import TF
from lockstep.messages.scaling.loss_scaling import PATIENCE
from lockstep.messages.workers.agn import refuse_masters_around
from lockstep.quirks import quirks_of
from lockstep.tf.masters.copies import MasterCopies, share_row_limits
from lockstep.tf.masters.regularizer import with_regularizers
from lockstep.tf.replicas import Pairs, make_together, refuse_cross_replica
from lockstep.tf.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler
from lockstep.tf.scaling.scaled_gradients import unscaled
from lockstep.tf.scaling.skipping import SkippingWrapper
from lockstep.tf.shared.gradients import Gradient
from lockstep.tf.shared.masters.scale import Kinds
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.wrapper import (
    Optimizer,
    as_counter,
    as_variable,
    builds_graph,
    check_pairs,
    is_keras,
    listed,
)

__all__ = ["MixedPrecisionOptimizerWrapper"]

KINDS = Kinds(
    LossScale,
    AutomaticLossScaler,
    DynamicLossScale,
    state=lambda scaler: scaler.variables,
)


@documented
class MixedPrecisionOptimizerWrapper(SkippingWrapper):
    """...

    ``compute_gradients``: g = (float32(d(s loss)/dw) + s d reg(m)/dm) (1/s), where s is
    the loss scale, m the master of w, and reg the regularizer of w from
    ``mp_regularizer_wrapper``. ``apply_gradients``: the scale is updated. If every
    gradient is finite, ``optimizer`` updates the masters, and w = max(min(m, L), -L)
    rounded, L = 65504 for float16. Otherwise weights, masters, slots, shared powers and
    ``global_step`` do not change. Variables of other dtypes are their own masters. If w
    changes between steps, by loading a checkpoint for example, m is updated from it.

    In a graph under ``strict``, each call of ``compute_gradients`` creates its own
    masters and adds the penalties to REGULARIZATION_LOSSES.

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one. Row
            clipping goes inside, with the model's variables as keys.

    Raises:
        ...
        NotScalableError: a ValueError and TypeError; ``optimizer`` is no v1 optimizer.

    Example:
        >>> w = tf.Variable([1.0, 2.0], dtype=tf.float16)
        >>> opt = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(2**-12), 8.0)
        >>> for _ in range(3):
        ...     _ = opt.minimize(lambda: tf.reduce_sum(w), var_list=[w])
        >>> w.numpy().tolist(), opt.master(w).numpy().tolist()
        ([0.9990234375, 1.9990234375], [0.999267578125, 1.999267578125])
    """

    owner = words.WRAPPER

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: float | str | AutomaticLossScaler | LossScale | None = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
        strict: bool = False,
    ) -> None:
        if is_keras(optimizer) or not isinstance(optimizer, Optimizer):
            raise not_an_optimizer(words.WRAPPER, optimizer, TF)
        quirks = quirks_of(strict)
        if not quirks.arguments_unchecked:
            refuse_masters_around(optimizer)
        words.check_clip_norm(clip_norm)
        words.check_at_floor(at_floor, floor_patience)
        self.scale_object = KINDS.scale_of(loss_scale, quirks)
        scale = KINDS.as_loss_scale(self.scale_object, quirks)
        name = optimizer.get_name() + words.SUFFIX
        super().__init__(
            optimizer, name, scale, at_floor, floor_patience, clip_norm, strict
        )
        self._copies = MasterCopies(quirks, self._track_trackable)

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients; strict: no."""
        return not self._quirks.masters_slots

    @property
    def _hides_slots(self) -> bool:
        """Whether slots and variables are hidden."""
        return self._quirks.masters_slots

    @property
    def masters(self) -> list[tf.Variable]:
        """The masters that exist, in the order of their creation."""
        return self._copies.variables

    def master(self, variable: Any) -> tf.Variable:
        """Return the variable that is updated: the master of ``variable``, or itself.

        A missing master is created with the value of ``variable``.
        """
        variable = as_variable(variable)
        self._make_masters([variable])
        return self._copies.of(variable)

    def _make_masters(self, variables: Iterable[Any], anew: bool = False) -> None:
        """Create missing masters; ``anew``: new ones for all variables."""
        missing = self._copies.missing(variables, anew)
        if missing:
            make_together(lambda: self._make_these(missing))

    def _make_these(self, variables: list[tf.Variable]) -> None:
        """Create the masters of these variables."""
        masters = self._copies.make(variables)
        if not self._quirks.masters_row_clipping:
            share_row_limits(masters, self.inner_optimizer)

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
        """Differentiate the scaled ``loss``: (unscaled float32 gradient, master).

        A sparse gradient stays sparse unless a regularizer adds a dense one. An absent
        one is None. float64 stays float64.

        Args:
            loss: in a graph a tensor; in any mode a callable without arguments.
            var_list: the model's variables, or None: see
                :class:`~lockstep.tf.wrapper.Wrapper`.
            grad_loss: the upstream gradient of ``loss``, unscaled.

        Raises:
            ...
            EagerLossError: a RuntimeError; ``loss`` cannot be called in eager mode.
        """
        pairs, factor = self._differentiate(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        anew = self._quirks.masters_twice and builds_graph()
        self._make_masters([variable for _, variable in pairs], anew)
        pairs = with_regularizers(pairs, self._copies, factor)
        return unscaled(pairs, factor, self._quirks)

    @property
    def factor(self) -> float | tf.Tensor:
        """The current factor of a loss: a float if the scale is a number."""
        scale = self.scale_object
        return scale if isinstance(scale, float) else self._scale()

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for a loss that the original could not scale."""
        refuses = self._quirks.masters_half_loss
        is_number = isinstance(self.scale_object, float)
        if refuses and not is_number and dtype != tf.float32:
            raise refusals.HALF_LOSS.error(dtype=dtype.name)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Update the scale and the masters, and round the masters into the model.

        Args:
            grads_and_vars: iterable of (unscaled gradient, variable). The variables are
                masters, as ``compute_gradients`` returns them, or the model's.
            global_step: integer variable, incremented if the step is not skipped.
            name: name of the operation in a graph.

        Returns:
            In a graph the operation of the whole step; not useful in eager mode.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable; DtypeError:
                ``global_step`` cannot count.
            UnsupportedError: reference variables under control flow v2.
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER, self.takes_wide)
        refuse_cross_replica(words.WRAPPER)
        quirks = self._quirks
        global_step = as_counter(global_step, words.WRAPPER, quirks.arguments_unchecked)
        pairs = self.unscaled_once(pairs)
        if not quirks.masters_slots:
            # One at a time, so each gets its own scope in checkpoints of graphs.
            for _, variable in pairs:
                self._make_masters([variable])
            pairs = self._copies.in_float32(pairs)
        if not self.skips:
            return self._apply_or_skip(pairs, global_step, name)
        # Strict too: the original's condition cannot be built on replicas.
        return self.apply_together(self._apply_or_skip, pairs, global_step, name)

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Update the masters with the wrapped optimizer; round them into the model."""
        done = self.apply_inside(pairs, global_step, name)
        # The update must write the masters before they are copied into the model.
        with tf.control_dependencies([done]):
            copies = [self._copies.copy_back(v) for g, v in pairs if g is not None]
        return tf.group(done, *[copy for copy in copies if copy is not None])

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_automatic = isinstance(self.scale_object, AutomaticLossScaler)
        return is_automatic or not self._quirks.masters_static_scale

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients of a step; raise for complex ones."""
        refuse_complex(words.WRAPPER, [g.dtype.name for g in step.present])
        super()._look(step)
        if isinstance(self.scale_object, AutomaticLossScaler):
            check_grads = self.scale_object.check_grads
            decides = self._quirks.masters_static_scale
            step.look_at_largest(step.pairs, check_grads, decides)

    def _move_scale(self, step: ScaledStep) -> tf.Operation | None:
        """Update the scale after a step; return the operation."""
        if step.largest is None:
            return super()._move_scale(step)
        return self.scale_object.update_op(*step.largest)

    def trains_master(self, variable: tf.Variable) -> bool:
        """Whether a variable is trained through a master of its own."""
        return self._copies.needs_master(variable)

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the masters of ``var_list``, and their slots, now."""
        variables = listed(var_list, words.WRAPPER)
        super().create_slots([self.master(variable) for variable in variables])

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the master of ``var``; strict: None."""
        return super().get_slot(self._copies.of(as_variable(var)), name)

    def variables(self) -> list[tf.Variable]:
        """Return the state: masters, wrapped optimizer, scale, skips; strict: none.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves the whole state.
        """
        if self._hides_slots:
            return []
        own = [*self._scale.variables, *self._counters]
        return [*self.masters, *super().variables(), *own]
