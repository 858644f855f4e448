"""NovoGrad as a v1 optimizer, as published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.tf.optimizers import Number, check_arguments
from lockstep.tf.shared.gradients import HALF, densify
from lockstep.tf.wrapper import as_counter, check_pairs, with_strict

v1 = tf.compat.v1

MOMENT = "second_moment"


@with_strict
class NovoGrad(v1.train.MomentumOptimizer):
    """Momentum of gradients, each divided by a running norm of its tensor.

        v = b2 v + (1 - b2) |g|^2, at first |g|^2; g' = g / sqrt(v + eps) + wd w;
        a = b1 a + g', or b1 a + (1 - b1) g' averaged; w -= lr a.

    There is one v per tensor, so half of Adam's state. Sparse gradients are made dense,
    because momentum decays on every row. A v that is 0 or not finite is replaced by the
    next |g|^2. In half precision all computations are in float32; slot and weight are
    rounded once.

    Args:
        learning_rate: lr >= 0; a number, a 0-d tensor or a callable that returns one.
        beta1: b1, decay of a, in [0, 1).
        beta2: b2, decay of v, in [0, 1).
        epsilon: eps >= 0, inside of the root.
        weight_decay: wd >= 0, multiplied by the rate and subject to momentum.
        grad_averaging: multiply g', its decay included, by 1 - b1.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``momentum``, and ``second_moment`` for v: 0-d float32, initially 0.

    Origin: OpenSeq2Seq, ``open_seq2seq.optimizers.novograd.NovoGrad``; Ginsburg et al.,
    2019 (arXiv 1905.11286).

    Example:
        >>> w = tf.Variable([1.0, 1.0])
        >>> opt = NovoGrad(learning_rate=0.5)
        >>> _ = opt.apply_gradients([(tf.constant([0.0, 4.0]), w)])
        >>> w.numpy().tolist(), float(opt.get_slot(w, "second_moment"))
        ([1.0, 0.5], 16.0)
    """

    def __init__(
        self,
        learning_rate: Number = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
    ) -> None:
        moments = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        decay = {"weight_decay": weight_decay, "grad_averaging": grad_averaging}
        self._arguments = {**moments, **decay}
        check_arguments("NovoGrad", learning_rate=learning_rate, **self._arguments)
        super().__init__(learning_rate, beta1, use_locking, name)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> tf.Operation | None:
        """Update every variable that has a gradient, then ``global_step``.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None.
            global_step: an integer counter.
            name: the name of the operation in a graph.
            skip_gradients_aggregation: as in TensorFlow's optimizers.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
        """
        pairs = check_pairs(grads_and_vars, "NovoGrad")
        global_step = as_counter(global_step, "NovoGrad")
        return super().apply_gradients(
            pairs, global_step, name, skip_gradients_aggregation
        )

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        super()._create_slots(var_list)
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
        """Restore a slot; TensorFlow would not restore a second moment as 0-d."""
        if slot_name == MOMENT and tf.executing_eagerly():
            self._moment_of(variable)
        super()._create_or_restore_slot_variable(
            slot_variable_position, slot_name, variable
        )

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._move(super()._apply_dense, grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._move(super()._resource_apply_dense, grad, var)

    def _apply_sparse_duplicate_indices(
        self, grad: tf.IndexedSlices, var: tf.Variable
    ) -> tf.Operation:
        return NovoGrad._apply_dense(self, densify(grad, var), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        dense = densify(tf.IndexedSlices(grad, indices), handle)
        return NovoGrad._resource_apply_dense(self, dense, handle)

    def _move(
        self, momentum_step: Callable[..., Any], grad: tf.Tensor, var: tf.Variable
    ) -> tf.Operation:
        """Write the second moment, then take a momentum step along g'."""
        stored = self.get_slot(var, MOMENT)
        earlier, square = tf.convert_to_tensor(stored), square_norm(grad)
        begun = tf.logical_and(earlier > 0, tf.math.is_finite(earlier))
        kept = average(self._arguments["beta2"], earlier, square)
        moment = tf.where(begun, kept, square)
        written = stored.assign(moment, use_locking=self._use_locking, read_value=False)
        with tf.control_dependencies([written]):
            direction = direction_of(self._arguments, moment, var, grad)
        if var.dtype.base_dtype in HALF:
            return self._move_half(direction, var)
        return momentum_step(direction, var)

    def _move_half(self, direction: tf.Tensor, var: tf.Variable) -> tf.Operation:
        """Take the momentum step in float32, and round slot and weight once."""
        rate = tf.cast(self._learning_rate_tensor, tf.float32)
        beta1 = tf.cast(self._momentum_tensor, tf.float32)
        slot = self.get_slot(var, "momentum")
        momentum = beta1 * tf.cast(slot.read_value(), tf.float32) + direction
        weight = tf.cast(var.read_value(), tf.float32) - rate * momentum
        # Read both slot and weight before either is written.
        with tf.control_dependencies([momentum, weight]):
            writes = [
                state.assign(
                    tf.cast(value, state.dtype.base_dtype),
                    use_locking=self._use_locking,
                    read_value=False,
                )
                for state, value in ((slot, momentum), (var, weight))
            ]
        return tf.group(*writes)


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which norms are computed: at least float32."""
    return tf.float64 if dtype.base_dtype == tf.float64 else tf.float32


def square_norm(gradient: tf.Tensor) -> tf.Tensor:
    """Return |g|^2 in :func:`wide_dtype`: 0-d."""
    return tf.reduce_sum(tf.square(tf.cast(gradient, wide_dtype(gradient.dtype))))


def average(beta2: Any, moment: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    """Return b2 v + (1 - b2) |g|^2."""
    kept, added = (tf.cast(share, square.dtype) for share in (beta2, 1 - beta2))
    return moment * kept + square * added


def direction_of(
    arguments: Mapping[str, Any],
    moment: tf.Tensor,
    variable: tf.Tensor | tf.Variable,
    gradient: tf.Tensor,
) -> tf.Tensor:
    """Return (g / sqrt(v + eps) + wd w) times 1, or times 1 - b1 if averaged."""
    wide, decay = moment.dtype, arguments["weight_decay"]
    factor = 1.0 / tf.sqrt(moment + tf.cast(arguments["epsilon"], wide))
    direction = tf.cast(gradient, wide) * factor
    if tf.is_tensor(decay) or decay > 0:
        direction += tf.cast(decay, wide) * tf.cast(variable, wide)
    share = 1 - arguments["beta1"] if arguments["grad_averaging"] else 1.0
    return direction * tf.cast(share, wide)
