"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

Old code only needs to change its import line. The arguments are exactly the
originals', see :mod:`lockstep.strict.originals`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep import errors
from lockstep import tf as default
from lockstep.interface import NO_EAGER_STEP
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import agn, multitask, novograd
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.replicas import name_of, refuse_cross_replica
from lockstep.tf.shared import novograd as moments
from lockstep.tf.shared.gradients import Values, is_all_zero
from lockstep.tf.wrapper import (
    as_counter,
    as_variable,
    check_pairs,
    make_conditional,
    old_name,
)

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].public_names(strict=True))


v1 = tf.compat.v1
Optimizer = v1.train.Optimizer


class MultitaskOptimizerWrapper(default.MultitaskOptimizerWrapper):
    """``tf.contrib.opt.MultitaskOptimizerWrapper``, which replaces hooks of ``opt``.

    This has no effect around another wrapper. Shared powers advance on every call.
    """

    strict = True
    _opt = old_name("inner_optimizer")

    def __init__(self, opt: Optimizer) -> None:
        if isinstance(opt, default.MultitaskOptimizerWrapper):
            raise errors.NotAnOptimizerError(
                "MultitaskOptimizerWrapper: expected a tf.compat.v1.train.Optimizer, "
                "got a MultitaskOptimizerWrapper, which the original refuses; use "
                "lockstep.tf.MultitaskOptimizerWrapper to nest them."
            )
        super().__init__(opt)
        # Gradient descent does not sum duplicate rows and calls neither of the sparse
        # hooks, so its sparse gradients are never tested.
        dense = "_apply_dense", "_resource_apply_dense"
        sparse = "_apply_sparse", "_resource_apply_sparse"
        make_conditional(opt, (*dense, *sparse), self._is_zero)

    @staticmethod
    def _is_zero(gradient: Values, variable: tf.Variable) -> tf.Tensor:
        """Whether a gradient, in which duplicate rows are summed, is all zero.

        The original makes the sparse gradient of a reference variable dense.
        """
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if is_sparse and gradient.dense_shape is None:
            raise errors.UnsupportedError(
                "MultitaskOptimizerWrapper: expected a sparse gradient with "
                f"dense_shape for the reference variable {name_of(variable)!r}, got "
                "one without, which the original cannot test; give dense_shape, or use "
                "a resource variable."
            )
        return is_all_zero(gradient)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Pass all gradients to the wrapped optimizer, whose hooks test them."""
        pairs = check_pairs(grads_and_vars, self.owner, self.takes_wide)
        global_step = as_counter(global_step, self.owner, any_dtype=True)
        refuse_cross_replica(self.owner)
        if not tf.executing_eagerly():
            self.last_step = NO_EAGER_STEP
            return self.apply_inside(pairs, global_step, name)
        self.last_step, _ = multitask.report(pairs)
        return self._apply_reported(pairs, global_step, name)


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer], default.VariableClippingOptimizer
):
    """``tf.VariableClippingOptimizer`` with ``strict=True``."""

    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")

    @property
    def _vars_to_clip_dims(self) -> agn.VariableMap:
        axes = agn.VariableMap()
        for variable, listed in self.axes_by_variable.items():
            axes[variable] = list(listed)
        return axes


class FixedLossScale(originals.FixedLossScale, default.FixedLossScale):
    """``tf.FixedLossScale`` with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, default.DynamicLossScale):
    """``tf.DynamicLossScale`` with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    default.MixedPrecisionLossScaleOptimizer,
):
    """``tf.MixedPrecisionLossScaleOptimizer`` with ``strict=True``."""

    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    default.MixedPrecisionOptimizerWrapper,
):
    """``tf.MixedPrecisionOptimizerWrapper`` with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, default.AutomaticLossScaler):
    """``tf.AutomaticLossScaler`` with ``strict=True``."""


class AGNCustomGetter(default.AGNCustomGetter):
    """``tf.contrib.opt.AGNCustomGetter``; workers of one process share the ``center``.

    An accumulator starts at its variable's value, a regularizer is applied to all three
    variables, and reference variables may be in another process.
    """

    def __init__(self, worker_device: Any, center: Any = None) -> None:
        super().__init__(worker_device, center)

    def _options_beside(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the regularizer."""
        return dict(kwargs)

    def _enter(self, new: Mapping[str, tf.Variable], make: Any) -> None:
        """Let accumulators have the values of their variables."""
        super()._enter(new, lambda prefix, zeros: make(prefix, False))

    def _check_placement(self, own: tf.Variable, shared: tf.Variable) -> None:
        """Accept any."""


class AGNOptimizer(default.AGNOptimizer):
    """``tf.contrib.opt.AGNOptimizer``.

    Replicas step alone, ``local_step`` is on the current device, row clipping inside
    clips no shared rows, and slots and variables are not listed.
    """

    strict = True

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None:
        super().__init__(
            optimizer,
            num_worker,
            custom_getter,
            communication_period,
            use_locking,
            name,
        )

    def _check_counts(self, num_worker: Any, communication_period: Any) -> None:
        """Accept any."""

    def _counting_place(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take a local step; raise for pairs that can be read only once."""
        if isinstance(grads_and_vars, Iterator):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected a list of pairs, got a one-shot "
                f"{type(grads_and_vars).__name__}; make it a list."
            )
        return super().apply_gradients(grads_and_vars, global_step, name)

    def apply_together(
        self, apply: Any, pairs: Any, global_step: Any, name: str | None
    ) -> tf.Operation | None:
        """Let the wrapped optimizer sum the gradients of the replicas."""
        refuse_cross_replica("AGNOptimizer")
        return apply(pairs, global_step, name)

    def _share_row_limits(self, variables: Any) -> None:
        """Leave shared rows as they are."""

    def get_slot(self, var: Any, name: str) -> None:
        """Return None."""

    def get_slot_names(self) -> list[str]:
        """Return an empty list."""
        return []

    def variables(self) -> list[tf.Variable]:
        """Return an empty list."""
        return []


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
                "tensor; leave strict off, or give a number."
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
                f"got {type(grads_and_vars).__name__}; leave strict off, or pass "
                "list(pairs)."
            )
        pairs = check_pairs(grads_and_vars, "NovoGrad")
        absent = [name_of(variable) for gradient, variable in pairs if gradient is None]
        if absent:
            raise errors.NoGradientsError(
                "NovoGrad: expected a gradient for every variable, as the original, "
                f"got None for {', '.join(absent)}; leave strict off, or leave such "
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


OPTIMIZER_CLS_NAMES = classes_in(globals(), default.OPTIMIZER_CLS_NAMES)

clip_by_global_norm = bound(
    default.clip_by_global_norm, originals.clip_by_global_norm, __name__
)
clip_gradients_by_global_norm = bound(
    default.clip_gradients_by_global_norm,
    originals.clip_gradients_by_global_norm,
    __name__,
)
clip_gradients_by_norm = bound(
    default.clip_gradients_by_norm, originals.clip_gradients_by_norm, __name__
)
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm
mp_regularizer_wrapper = bound(
    default.mp_regularizer_wrapper, originals.mp_regularizer_wrapper, __name__
)
optimize_loss = bound(default.optimize_loss, originals.optimize_loss, __name__)
post_process_gradients = bound(
    default.post_process_gradients, originals.post_process_gradients, __name__
)
lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")
