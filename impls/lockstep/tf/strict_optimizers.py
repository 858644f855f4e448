"""Optimizers of :mod:`lockstep.tf.strict`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep import tf as default
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import (
    novograd,
)
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.replicas import (
    name_of,
)
from lockstep.tf.shared import novograd as moments
from lockstep.tf.wrapper import (
    as_variable,
    check_pairs,
)

v1 = tf.compat.v1
Optimizer = v1.train.Optimizer


class AdamOptimizer(default.AdamOptimizer):
    """``tf.train.AdamOptimizer``, for any dtype."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class RMSPropOptimizer(default.RMSPropOptimizer):
    """``tf.train.RMSPropOptimizer``, for any dtype."""

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        arguments = decay, momentum, epsilon, use_locking, centered, name
        super().__init__(learning_rate, *arguments)

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class AdamWOptimizer(default.AdamWOptimizer):
    """``tf.contrib.opt.AdamWOptimizer``, with any arguments and for any dtype."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        arguments = beta1, beta2, epsilon, use_locking, name
        default.AdamOptimizer.__init__(self, learning_rate, *arguments)
        self._weight_decay = weight_decay

    def _check_dtypes(self, var_list: Iterable[tf.Variable]) -> None:
        """Accept any."""


class FtrlOptimizer(default.FtrlOptimizer):
    """``tf.train.FtrlOptimizer``: a rate of 0 fails, and a NaN makes a weight 0."""

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        v1.train.FtrlOptimizer.__init__(
            self,
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
        )

    def _prepare(self) -> None:
        super()._prepare()
        rate = self._learning_rate_tensor
        message = "FtrlOptimizer: expected learning_rate > 0, as the original"
        positive = tf.debugging.assert_positive(rate, message=message)
        with tf.control_dependencies([positive]):
            self._learning_rate_tensor = tf.identity(rate)

    def _keep_nan(self, hook: Any, grad: tf.Tensor, var: tf.Variable) -> Any:
        return hook(grad, var)

    def _unless_idle(
        self, hook: Any, grad: Any, var: tf.Variable, *indices: tf.Tensor
    ) -> Any:
        return hook(grad, var, *indices)


class NovoGrad(default.NovoGrad):
    """OpenSeq2Seq's NovoGrad, whose second moment is |g|^2 of the step, for any b2.

    The pairs must be a list, into which normalized gradients are written. All gradients
    must be present, and variables float32.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
    ) -> None:
        if tf.is_tensor(weight_decay):
            raise errors.DtypeError(
                "NovoGrad: weight_decay: expected a number, as the original, got a "
                "tensor; use lockstep.tf, or give a number."
            )
        v1.train.MomentumOptimizer.__init__(
            self, learning_rate, beta1, use_locking, name
        )
        rule = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        rule |= {"weight_decay": weight_decay, "grad_averaging": grad_averaging}
        self._arguments = rule
        self._unwritten: list[tf.Variable] = []
        self._of_last_call: list[tf.Tensor | tf.Variable] = []
        self._positions: dict[Any, int] = {}

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: list[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> tf.Operation | None:
        """Normalize the gradients in the list of pairs, then take a momentum step."""
        if not isinstance(grads_and_vars, list):
            raise errors.MalformedPairsError(
                "NovoGrad: expected a list of (gradient, variable), as the original, "
                f"got {type(grads_and_vars).__name__}; use lockstep.tf, or pass "
                "list(pairs)."
            )
        pairs = check_pairs(grads_and_vars, "NovoGrad")
        absent = [name_of(variable) for gradient, variable in pairs if gradient is None]
        if absent:
            raise errors.NoGradientsError(
                "NovoGrad: expected a gradient for every variable, as the original, "
                f"got None for {', '.join(absent)}; use lockstep.tf, or leave such "
                "variables out."
            )
        for _, variable in pairs:
            if variable.dtype.base_dtype != tf.float32:
                raise errors.DtypeError(
                    f"NovoGrad: expected float32 for {name_of(variable)!r}, as the "
                    f"original, got {variable.dtype.base_dtype.name}; leave strict "
                    "off, or train float32 masters."
                )
        grads_and_vars[:] = self._normalized(pairs)
        return v1.train.MomentumOptimizer.apply_gradients(
            self, grads_and_vars, global_step, name, skip_gradients_aggregation
        )

    def _normalized(self, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the pairs with the original's gradients.

        The original keeps this call's tensor instead of the variable, so it never
        writes the second moment back. A later call in a graph averages with it.
        """
        self._make_unwritten(len(pairs))
        directions = []
        for position, (gradient, variable) in enumerate(pairs):
            self._positions[variable.ref()] = position
            gradient = novograd.densify(gradient, variable)
            square = moments.square_norm(gradient)
            earlier = tf.convert_to_tensor(self._of_last_call[position])
            average = moments.average(self._arguments["beta2"], earlier, square)
            moment = tf.where(tf.not_equal(earlier, 0), average, square)
            if not v1.executing_eagerly_outside_functions():
                self._of_last_call[position] = moment
            given = self._arguments, moment, variable, gradient
            directions.append((moments.direction_of(*given), variable))
        return directions

    def _make_unwritten(self, count: int) -> None:
        """Create the variables for the original's averages, which it never writes.

        Their names conflict with those of another instance in the same graph.
        """
        zeros = v1.zeros_initializer()
        with tf.init_scope():
            for position in range(len(self._unwritten), count):
                name = f"nvgrad2_ema{position}"
                variable = v1.get_variable(name, [], tf.float32, zeros, trainable=False)
                self._unwritten.append(variable)
                self._of_last_call.append(variable)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot; a variable that is always 0 as ``second_moment``."""
        if name != novograd.MOMENT:
            return super().get_slot(var, name)
        position = self._positions.get(as_variable(var).ref())
        return None if position is None else self._unwritten[position]

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        v1.train.MomentumOptimizer._create_slots(self, var_list)

    def _move(self, momentum_step: Any, grad: tf.Tensor, var: tf.Variable) -> Any:
        return momentum_step(grad, var)
