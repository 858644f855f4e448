"""TensorFlow 1's optimizers where TensorFlow 2's fail or have none, as v1 optimizers.

Adam and RMSProp raise for variables whose dtype would make them divide by 0. Ftrl takes
a rate of 0, as in the first step of a warm-up. TensorFlow 2 has no AdamW that does not
multiply the decay by the rate. Gradient descent, momentum and Adagrad are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.optimizers import RULES
from lockstep.tf.shared.gradients import HALF, name_of
from lockstep.tf.wrapper import unless, with_strict

v1 = tf.compat.v1

Number = float | tf.Tensor | Callable[[], Any]
"""A number, a 0-d tensor or variable, or a function that returns one."""


@with_strict
class AdamOptimizer(v1.train.AdamOptimizer):
    """TensorFlow's Adam; raises for variables whose dtype would make it divide by 0.

    m += (1 - b1) (g - m); v += (1 - b2) (g^2 - v);
    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    TensorFlow's kernels round the hyper-parameters to the dtype of the variable. If
    1 - b1, 1 - b2 or eps becomes 0, weights reach 1e20 or NaN in a few steps.

    Args:
        learning_rate: lr; a number, a 0-d tensor or a callable that returns one.
        beta1: decay of m, b1.
        beta2: decay of v, b2.
        epsilon: eps, added to the root of the uncorrected v.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        use_own_namescope_for_non_slot_vars: as in TensorFlow 2.

    Raises:
        UnsupportedError: a ValueError, from ``apply_gradients``; such a variable.

    Origin: TensorFlow 1.15, ``tf.train.AdamOptimizer``; Kingma and Ba 2015.

    Example:
        >>> w = tf.Variable([1.0])
        >>> _ = AdamOptimizer(0.5).apply_gradients([(tf.ones([1]), w)])
        >>> w.numpy().round(4).tolist()
        [0.5]
    """

    def __init__(
        self,
        learning_rate: Number = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
    ) -> None:
        arguments = learning_rate, beta1, beta2, epsilon, use_locking, name
        super().__init__(*arguments, use_own_namescope_for_non_slot_vars)

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        rests = {"1 - beta1": self._beta1, "1 - beta2": self._beta2}
        check_scalars(type(self).__name__, var_list, rests, self._epsilon)
        super()._create_slots(var_list)


@with_strict
class RMSPropOptimizer(v1.train.RMSPropOptimizer):
    """TensorFlow's RMSProp; raises if a variable's dtype rounds its scalars to 0.

    rms += (1 - d) (g^2 - rms), at first 1; mom = mu mom + lr g / sqrt(rms + eps);
    w -= mom. Centered: mg += (1 - d) (g - mg), and the root is that of
    rms - mg^2 + eps.

    TensorFlow's kernels round the hyper-parameters to the dtype of the variable. If
    1 - d becomes 0, the mean square never changes. If eps becomes 0, zero gradients
    eventually give NaN.

    Args:
        learning_rate: lr; a number, a 0-d tensor or a callable that returns one.
        decay: d.
        momentum: mu.
        epsilon: eps, inside of the root.
        use_locking: lock a variable while it is updated.
        centered: subtract the square of the mean gradient.
        name: name of the operations, and of the slots in checkpoints.

    Raises:
        UnsupportedError: a ValueError, from ``apply_gradients``; such a variable.

    Origin: TensorFlow 1.15, ``tf.train.RMSPropOptimizer``; Tieleman and Hinton 2012.

    Example:
        >>> w = tf.Variable([1.0])
        >>> _ = RMSPropOptimizer(0.5).apply_gradients([(tf.ones([1]), w)])
        >>> w.numpy().tolist()
        [0.5]
    """

    def __init__(
        self,
        learning_rate: Number,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        arguments = learning_rate, decay, momentum, epsilon, use_locking, centered, name
        super().__init__(*arguments)

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        rests = {"1 - decay": self._decay}
        check_scalars(type(self).__name__, var_list, rests, self._epsilon)
        super()._create_slots(var_list)


@with_strict
class AdamWOptimizer(AdamOptimizer):
    """Adam after a decay of the weights that is not multiplied by the rate.

    w -= weight_decay w, then as :class:`AdamOptimizer`.

    A sparse gradient decays only its own rows, once each, and then updates every row
    like sparse Adam.

    Args:
        weight_decay: the fraction of a weight that each update subtracts, >= 0: a
            number, a 0-d tensor or a callable that returns one.
        learning_rate: lr >= 0; a number, a 0-d tensor or a callable that returns one.
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        epsilon: eps >= 0, added to the root of the uncorrected v.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.
        UnsupportedError: a ValueError, from ``apply_gradients``; see
            :class:`AdamOptimizer`.

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
        weight_decay: Number,
        learning_rate: Number = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        rule = {"weight_decay": weight_decay, "learning_rate": learning_rate}
        rule |= {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        check_arguments("AdamW", **rule)
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
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
        """Decay a variable after its gradient is computed."""
        with tf.control_dependencies([grad]):
            share = self._share(var)
        return var.assign_sub(share, use_locking=self._use_locking, read_value=False)

    def _share(self, weights: tf.Tensor | tf.Variable) -> tf.Tensor:
        weights = tf.convert_to_tensor(weights)
        return tf.cast(self._weight_decay_tensor, weights.dtype) * weights


@with_strict
class FtrlOptimizer(v1.train.FtrlOptimizer):
    """FTRL-proximal that takes no step at a rate of 0, as in a warm-up.

    G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p) / lr w; accum = n;
    w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.
    At rate 0 nothing changes. After a non-finite gradient, NaN in ``linear`` gives NaN
    in w.

    Args:
        learning_rate: lr, finite, >= 0; a number or a 0-d tensor.
        learning_rate_power: p <= 0.
        initial_accumulator_value: of accum, >= 0.
        l1_regularization_strength: l1 >= 0.
        l2_regularization_strength: l2 >= 0.
        use_locking: lock a variable while it is updated.
        name: name of the operations, and of the slots in checkpoints.
        accum_name, linear_name: suffixes of the slots' names, or None.
        l2_shrinkage_regularization_strength: s >= 0.
        beta: added to the square root of ``accum``; None: 0.

    Raises:
        OutOfRangeError: a ValueError; a ``learning_rate`` out of its range.

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
    ) -> None:
        arguments = (
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
        check_arguments("Ftrl", learning_rate=learning_rate)
        super().__init__(*arguments)

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
        """Update; then set weights with NaN in ``linear``, TensorFlow's 0, to NaN."""
        with tf.control_dependencies([hook(grad, var)]):
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
        idle = tf.equal(self._learning_rate_tensor, 0)
        return unless(idle, lambda: hook(grad, var, *indices), var)


def check_arguments(optimizer: str, **given: Any) -> None:
    """Raise for a number out of its range; tensors and functions are not known yet."""
    spec = RULES[optimizer]
    for parameter in spec.parameters:
        value = given.get(parameter.name)
        if parameter.name in given and not callable(value) and not tf.is_tensor(value):
            parameter.check(spec.class_name, value)


def check_scalars(
    owner: str, var_list: Iterable[tf.Variable], rests: Mapping[str, Any], epsilon: Any
) -> None:
    """Raise for a variable whose dtype rounds 1 - beta or epsilon to 0."""
    for variable in [v for v in var_list if v.dtype.base_dtype in HALF]:
        kind = variable.dtype.base_dtype.as_numpy_dtype
        for name, number in {**rests, "epsilon": epsilon}.items():
            number = number() if callable(number) else number
            number = tf.get_static_value(number) if tf.is_tensor(number) else number
            if number is None:  # Not known yet.
                continue
            number = float(np.asarray(number))
            scalar, rounded = 1 - number, kind(1) - kind(number)
            if name == "epsilon":
                scalar, rounded = number, kind(number)
            if scalar > 0 and rounded == 0:
                raise UnsupportedError(
                    f"{owner}: expected a dtype that can hold {name} = {scalar:g} for "
                    f"{name_of(variable)!r}, got {variable.dtype.base_dtype.name}, to "
                    "which TensorFlow's kernel rounds it as 0; train through "
                    "MixedPrecisionOptimizerWrapper, or choose a larger one."
                )
