"""NovoGrad as published, and under strict as in OpenSeq2Seq."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.optimizers import novograd as words
from lockstep.messages.optimizers import refusals
from lockstep.quirks import quirks_of
from lockstep.tf.base.arguments import check_arguments
from lockstep.tf.base.pairs import as_counter, as_variable, check_pairs, name_of
from lockstep.tf.shared.optimizers.novograd import (
    Policy,
    densify,
    direction_of,
    next_moment,
    normalized,
    policy_of,
    square_norm,
    wide_dtype,
)
from lockstep.tf.shared.tensors.gradients import HALF

__all__ = ["NovoGrad"]

v1 = tf.compat.v1

MOMENT = "second_moment"


@documented
class NovoGrad(v1.train.MomentumOptimizer):
    """NovoGrad as a v1 optimizer, with one second moment per variable.

    ...

    In half precision all computations are in float32; slot and weight are rounded
    once.

    Args:
        learning_rate: lr >= 0; a number, a 0-d tensor or a callable that returns one.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        strict: as in OpenSeq2Seq: v is |g|^2 of the step, for any b2 (in a graph, a
            second ``apply_gradients`` of the same object averages with the first); the
            pairs must be a list, which is overwritten; absent gradients, dtypes other
            than float32 and a second instance in a graph raise; arguments are not
            checked.

    Slots: ``momentum``, and ``second_moment`` for v: 0-d float32, initially 0. Under
    strict v is not a slot but a variable ``nvgrad2_emaN`` for the N-th pair, which is
    always 0.

    Example:
        >>> w = tf.Variable([1.0, 1.0])
        >>> opt = NovoGrad(learning_rate=0.5)
        >>> _ = opt.apply_gradients([(tf.constant([0.0, 4.0]), w)])
        >>> w.numpy().tolist(), float(opt.get_slot(w, "second_moment"))
        ([1.0, 0.5], 16.0)
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable[[], Any] = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self._arguments = {
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
        }
        quirks = quirks_of(strict)
        if not quirks.arguments_unchecked:
            check_arguments(words.NAME, learning_rate=learning_rate, **self._arguments)
        if quirks.novograd_limits and tf.is_tensor(weight_decay):
            raise refusals.DECAY_AS_TENSOR.error()
        super().__init__(learning_rate, beta1, use_locking, name)
        self._unwritten: list[tf.Variable] = []
        self._of_last_call: list[tf.Tensor | tf.Variable] = []
        self._positions: dict[Any, int] = {}

    @documented
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> tf.Operation | None:
        """Update every variable that has a gradient, then ``global_step``.

        Strict: the pairs must be a list. Normalized gradients are written into it.

        Args:
            skip_gradients_aggregation: as in TensorFlow's optimizers.
        """
        quirks = quirks_of(self.strict)
        if quirks.novograd_limits:
            words.require_list(grads_and_vars)
        pairs = check_pairs(grads_and_vars, words.NAME)
        if not quirks.novograd_second_moment:
            global_step = as_counter(global_step, words.NAME)
            return super().apply_gradients(
                pairs, global_step, name, skip_gradients_aggregation
            )
        words.require_all_present([name_of(v) for g, v in pairs if g is None])
        for _, variable in pairs if quirks.novograd_limits else []:
            dtype = variable.dtype.base_dtype.name
            words.require_float32(name_of(variable), dtype)
        pairs = self._normalized_as_original(pairs)
        if quirks.novograd_limits:
            grads_and_vars[:] = pairs
        return super().apply_gradients(pairs, global_step, name)

    def _normalized_as_original(self, pairs: list[tuple[Any, Any]]) -> list[Any]:
        """Return the pairs with the original's gradients.

        The original keeps this call's tensor instead of the variable, so it never
        writes the second moment back.
        """
        policy = self._policy(tf.float32)
        self._make_unwritten(len(pairs))
        directions = []
        for position, (gradient, variable) in enumerate(pairs):
            self._positions[variable.ref()] = position
            gradient = densify(gradient, variable)
            earlier = self._of_last_call[position]
            moment = next_moment(policy, earlier, square_norm(gradient))
            if not v1.executing_eagerly_outside_functions():
                self._of_last_call[position] = moment
            direction = normalized(policy, moment, variable, gradient)
            directions.append((direction, variable))
        return directions

    def _make_unwritten(self, count: int) -> None:
        """Create the variables for the original's averages, which it never writes.

        Their names conflict with those of another instance in the same graph.
        """
        with tf.init_scope():
            for position in range(len(self._unwritten), count):
                variable = v1.get_variable(
                    f"nvgrad2_ema{position}",
                    [],
                    tf.float32,
                    v1.zeros_initializer(),
                    trainable=False,
                )
                self._unwritten.append(variable)
                self._of_last_call.append(variable)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot; strict: a variable that is always 0 as ``second_moment``."""
        stays_zero = quirks_of(self.strict).novograd_second_moment
        if not stays_zero or name != MOMENT:
            return super().get_slot(var, name)
        position = self._positions.get(as_variable(var).ref())
        return None if position is None else self._unwritten[position]

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        super()._create_slots(var_list)
        if not quirks_of(self.strict).novograd_second_moment:
            for variable in var_list:
                self._moment_of(variable)

    def _moment_of(self, variable: tf.Variable) -> tf.Variable:
        """Return the second moment of a variable; create it if it is missing."""
        return self._get_or_make_slot_with_initializer(
            variable,
            v1.zeros_initializer(),
            tf.TensorShape([]),
            wide_dtype(variable.dtype),
            MOMENT,
            self._name,
        )

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: tf.Variable
    ) -> None:
        """Restore a slot from a ``tf.train.Checkpoint``.

        TensorFlow would create it with its variable's shape, but a second moment is
        0-d.
        """
        if slot_name == MOMENT and tf.executing_eagerly():
            self._moment_of(variable)
        super()._create_or_restore_slot_variable(
            slot_variable_position, slot_name, variable
        )

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        direction = self._direction(grad, var)
        if var.dtype.base_dtype in HALF:
            return self._move_half(direction, var)
        return super()._apply_dense(direction, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        direction = self._direction(grad, var)
        if var.dtype.base_dtype in HALF:
            return self._move_half(direction, var)
        return super()._resource_apply_dense(direction, var)

    def _move_half(self, direction: tf.Tensor, var: tf.Variable) -> tf.Operation:
        """Take the momentum step in float32, and round slot and weight once.

        TensorFlow's kernel would round the rate and b1 to the variable's dtype.
        """
        rate, beta1 = (
            tf.cast(number, tf.float32)
            for number in (self._learning_rate_tensor, self._momentum_tensor)
        )
        slot = self.get_slot(var, "momentum")
        momentum = beta1 * tf.cast(slot.read_value(), tf.float32) + direction
        weight = tf.cast(var.read_value(), tf.float32) - rate * momentum
        # Read both slot and weight before either is written.
        with tf.control_dependencies([momentum, weight]):
            return tf.group(
                *(
                    held.assign(
                        tf.cast(value, held.dtype.base_dtype),
                        use_locking=self._use_locking,
                        read_value=False,
                    )
                    for held, value in ((slot, momentum), (var, weight))
                )
            )

    def _apply_sparse_duplicate_indices(
        self, grad: tf.IndexedSlices, var: tf.Variable
    ) -> tf.Operation:
        return NovoGrad._apply_dense(self, densify(grad, var), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        dense = densify(tf.IndexedSlices(grad, indices), handle)
        return NovoGrad._resource_apply_dense(self, dense, handle)

    def _direction(self, gradient: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
        """Write the second moment and return the normalized gradient."""
        if quirks_of(self.strict).novograd_second_moment:
            return gradient
        policy = self._policy(variable.dtype)
        stored = self.get_slot(variable, MOMENT)
        moment = next_moment(policy, stored, square_norm(gradient))
        written = stored.assign(moment, use_locking=self._use_locking, read_value=False)
        with tf.control_dependencies([written]):
            return direction_of(policy, moment, variable, gradient)

    def _policy(self, dtype: tf.DType) -> Policy:
        remembers = not quirks_of(self.strict).novograd_second_moment
        return policy_of(self._arguments, dtype, remembers)
