"""FTRL-proximal that accepts a rate of 0, as in the first step of a warm-up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.tf import ZERO_RATE
from lockstep.quirks import quirks_of
from lockstep.tf.base.arguments import check_arguments
from lockstep.tf.base.hooks import unless

__all__ = ["FtrlOptimizer"]


@documented
class FtrlOptimizer(tf.compat.v1.train.FtrlOptimizer):
    """FTRL-proximal that takes no step at a rate of 0, as in a warm-up.

    ...

    After a non-finite gradient, NaN in ``linear`` gives NaN in w.

    Args:
        learning_rate: lr, finite, >= 0; a number or a 0-d tensor.
        accum_name, linear_name: suffixes of the slots' names, or None.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        beta: added to the square root of ``accum``; None: 0.
        strict: as in the original, fail at a rate of 0 with
            ``tf.errors.InvalidArgumentError``. (TensorFlow 2.21 fails for sparse
            gradients only; with dense ones the weights become NaN.) A NaN in a dense
            gradient sets its weight to 0.

    Origin: ``tf.train.FtrlOptimizer``, TensorFlow 1.15; McMahan et al., "Ad click
    prediction: a view from the trenches", KDD 2013.

    Example:
        >>> w = tf.Variable([1.0])
        >>> _ = FtrlOptimizer(0.0).apply_gradients([(tf.constant([2.0]), w)])
        >>> w.numpy().tolist()
        [1.0]
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
        strict: bool = False,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            check_arguments("Ftrl", learning_rate=learning_rate)
        super().__init__(
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
            beta,
        )
        self.strict = strict

    def _prepare(self) -> None:
        super()._prepare()
        rate = self._learning_rate_tensor
        if quirks_of(self.strict).ftrl_zero_rate:
            positive = tf.debugging.assert_positive(rate, message=ZERO_RATE)
            with tf.control_dependencies([positive]):
                self._learning_rate_tensor = tf.identity(rate)

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        hook = partial(self._keep_nan, super()._apply_dense)
        return self._unless_idle(hook, grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        hook = partial(self._keep_nan, super()._resource_apply_dense)
        return self._unless_idle(hook, grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._unless_idle(super()._apply_sparse, grad, var)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor
    ) -> Any:
        return self._unless_idle(super()._resource_apply_sparse, grad, var, indices)

    def _keep_nan(
        self, hook: Callable[..., Any], grad: tf.Tensor, var: tf.Variable
    ) -> Any:
        """Update; then set weights with NaN in ``linear`` to NaN. Strict: leave them 0.

        TensorFlow's kernel sets them to 0.
        """
        done = hook(grad, var)
        if quirks_of(self.strict).ftrl_nan:
            return done
        with tf.control_dependencies([done]):
            linear = self.get_slot(var, "linear").read_value()
            # Not is_nan: TensorFlow's graph optimizer moves that before the update, if
            # the slot is a reference variable.
            has_nan = tf.not_equal(linear, linear)
            weights = tf.where(has_nan, linear, var.read_value())
            return var.assign(weights, use_locking=self._use_locking, read_value=False)

    def _unless_idle(
        self,
        hook: Callable[..., Any],
        grad: tf.Tensor | tf.IndexedSlices,
        var: tf.Variable,
        *indices: tf.Tensor,
    ) -> Any:
        if quirks_of(self.strict).ftrl_zero_rate:
            return hook(grad, var, *indices)
        idle = tf.equal(self._learning_rate_tensor, 0)
        return unless(idle, lambda: hook(grad, var, *indices), var)
