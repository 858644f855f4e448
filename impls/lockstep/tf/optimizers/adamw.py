"""AdamW as a v1 optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.quirks import quirks_of
from lockstep.tf.base.arguments import check_arguments
from lockstep.tf.optimizers.kernel_rules import AdamOptimizer

__all__ = ["AdamWOptimizer"]


@documented
class AdamWOptimizer(AdamOptimizer):
    """AdamW as a v1 optimizer; the decay is not multiplied by the rate.

    ...

    A sparse gradient decays only its own rows, once each, and then updates every row
    like sparse Adam.

    Args:
        weight_decay: the fraction of a weight that each update subtracts, >= 0: a
            number, a 0-d tensor or a callable that returns one.
        learning_rate: lr >= 0; a number, a 0-d tensor or a callable that returns one.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        strict: as in the original, check neither arguments nor dtypes.

    Origin: ``tf.contrib.opt.AdamWOptimizer``, TensorFlow 1.15; Loshchilov and Hutter,
    "Decoupled weight decay regularization", ICLR 2019. In the paper, in Keras and in
    torch the decay is multiplied by the learning rate; here it is not.

    Example:
        >>> w = tf.Variable([1.0])
        >>> opt = AdamWOptimizer(weight_decay=0.25, learning_rate=0.5)
        >>> _ = opt.apply_gradients([(tf.constant([2.0]), w)])
        >>> w.numpy().round(4).tolist()
        [0.25]
    """

    def __init__(
        self,
        weight_decay: float | tf.Tensor | Callable[[], Any],
        learning_rate: float | tf.Tensor | Callable[[], Any] = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        strict: bool = False,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            check_arguments(
                "AdamW",
                weight_decay=weight_decay,
                learning_rate=learning_rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
            )
        super().__init__(
            learning_rate, beta1, beta2, epsilon, use_locking, name, strict=strict
        )
        self._weight_decay = weight_decay

    def _prepare(self) -> None:
        super()._prepare()
        decay = self._call_if_callable(self._weight_decay)
        self._weight_decay_tensor = tf.convert_to_tensor(decay, name="weight_decay")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([self._decay(var, grad)]):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([self._decay(var, grad)]):
            return super()._resource_apply_dense(grad, var)

    def _apply_sparse_shared(
        self,
        grad: tf.Tensor,
        var: tf.Variable,
        indices: tf.Tensor,
        scatter_add: Callable[[tf.Variable, tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> tf.Operation:
        with tf.control_dependencies([grad]):
            share = self._share(tf.gather(var, indices))
        with tf.control_dependencies([scatter_add(var, indices, -share)]):
            return super()._apply_sparse_shared(grad, var, indices, scatter_add)

    def _decay(self, var: tf.Variable, grad: tf.Tensor) -> tf.Operation:
        """Decay a variable after its gradient is computed.

        All inputs of the gradient, such as the norm of the weight, are read before the
        decay, in the default mode too.
        """
        with tf.control_dependencies([grad]):
            share = self._share(var)
        return var.assign_sub(share, use_locking=self._use_locking, read_value=False)

    def _share(self, weights: tf.Tensor | tf.Variable) -> tf.Tensor:
        """Return the decay of ``weights``, in their own dtype."""
        weights = tf.convert_to_tensor(weights)
        return tf.cast(self._weight_decay_tensor, weights.dtype) * weights
