"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

Old code only needs to change its import line. The arguments are exactly the
originals'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep import tf as default
from lockstep.interface import NO_EAGER_STEP
from lockstep.larc import LarcPolicy, larc_policy
from lockstep.pipeline import strictly_ordered
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import agn, multitask, novograd, variable_clipping
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.optimize_loss import TrainingStep as DefaultStep
from lockstep.tf.optimize_loss import start
from lockstep.tf.shared import clipping, post_process
from lockstep.tf.shared.clipping import checked_pairs
from lockstep.tf.shared.gradients import (
    Values,
    as_tensor,
    densify,
    is_all_zero,
    name_of,
    own_copy,
    values_of,
)
from lockstep.tf.shared.variable_clipping import resolved_axes
from lockstep.tf.strict_scaling import AutomaticLossScaler as AutomaticLossScaler
from lockstep.tf.strict_scaling import DynamicLossScale as DynamicLossScale
from lockstep.tf.strict_scaling import FixedLossScale as FixedLossScale
from lockstep.tf.strict_scaling import HiddenState
from lockstep.tf.strict_scaling import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.tf.strict_scaling import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.tf.strict_scaling import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.tf.wrapper import (
    Wrapper,
    as_gradient,
    as_pairs,
    as_variable,
    check_pairs,
    is_reference,
    make_conditional,
    old_name,
)

v1 = tf.compat.v1
Optimizer = v1.train.Optimizer

AdamOptimizer = v1.train.AdamOptimizer
RMSPropOptimizer = v1.train.RMSPropOptimizer


class MultitaskOptimizerWrapper(default.MultitaskOptimizerWrapper):
    """``tf.contrib.opt.MultitaskOptimizerWrapper``, which replaces hooks of ``opt``.

    They stay replaced, and it has no effect around another wrapper. Shared powers
    advance on every call. A multitask wrapper as ``opt`` raises.
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
        """Whether a gradient is all zero, duplicate rows summed."""
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
        pairs, global_step = self._checked(grads_and_vars, global_step)
        if not tf.executing_eagerly():
            self.last_step = NO_EAGER_STEP
            return self.apply_inside(pairs, global_step, name)
        self.last_step, _ = multitask.report(pairs)
        return self._apply_reported(pairs, global_step, name)


class VariableClippingOptimizer(default.VariableClippingOptimizer):
    """``tf.contrib.opt.VariableClippingOptimizer``, which subtracts from rows.

    Rows below the norm change by rounding. A row that is listed k times is corrected k
    times. A negative axis for dimension 0 covers only the listed rows. float16 squares
    overflow. Pairs from a one-shot iterator are not clipped. ``max_norm`` is not
    checked, and ``variables()`` is empty.
    """

    strict = True
    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")

    @property
    def _vars_to_clip_dims(self) -> agn.shared.VariableMap:
        axes = agn.shared.VariableMap()
        for variable, limit in self.rows.items():
            axes[variable] = list(limit.axes)
        return axes

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | tf.Tensor,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        methods = "compute_gradients apply_gradients get_slot get_slot_names".split()
        if isinstance(opt, type) or any(not hasattr(opt, name) for name in methods):
            raise errors.NotAnOptimizerError(
                f"{self.owner}: expected an object with the methods "
                f"{', '.join(methods)}, got {opt!r}; pass the optimizer whose steps "
                "come first."
            )
        axes_of = variable_clipping.listed_axes(vars_to_clip_dims)
        Wrapper.__init__(self, opt, name, use_locking)
        self.max_norm = max_norm
        self.use_locking, self.colocate = use_locking, colocate_clip_ops_with_vars
        row_limit = variable_clipping.RowLimit
        self.rows = {ref: row_limit(axes, max_norm) for ref, axes in axes_of.items()}

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Let ``opt`` update the variables, then clip their rows.

        A one-shot iterator is exhausted by the update, so that nothing is clipped. The
        wrapped optimizer sums the gradients over the replicas.
        """
        is_once = isinstance(grads_and_vars, Iterator)
        pairs, counter = self._checked(grads_and_vars, global_step)
        listed = [] if is_once else self._listed(pairs)
        for _, variable in listed:
            axes, rank = self.rows[variable.ref()].axes, variable.shape.rank
            if rank is not None:
                resolved_axes(name_of(variable), rank, axes)
        return self._apply(pairs, counter, name, listed)

    def _clip_now(
        self,
        variable: tf.Variable,
        indices: tf.Tensor | None,
        limit: variable_clipping.RowLimit,
        too_large: list[tf.Tensor],
    ) -> tf.Operation | None:
        """Subtract each row's excess, also below the limit, for each of its indices."""
        variable, (axes, max_norm) = own_copy(variable), limit
        values = variable_clipping.read_rows(variable, indices)
        squares = tf.square(values)
        norms = tf.sqrt(tf.reduce_sum(squares, list(axes), keepdims=True))
        excess = values - values * max_norm / tf.maximum(norms, max_norm)
        if tf.executing_eagerly():
            too_large.append(norms > max_norm)
        locking = self.use_locking
        if indices is None:
            return variable.assign_sub(excess, use_locking=locking, read_value=False)
        if is_reference(variable):
            rows = tf.IndexedSlices(excess, indices)
            return variable.scatter_sub(rows, use_locking=locking).op
        return tf.raw_ops.ResourceScatterSub(
            resource=variable.handle, indices=indices, updates=excess
        )

    def variables(self) -> list[tf.Variable]:
        """Return an empty list."""
        return []


class AGNCustomGetter(default.AGNCustomGetter):
    """``tf.contrib.opt.AGNCustomGetter``; workers of one process share the ``center``.

    Until the init op has run an accumulator has its variable's initial value. A
    regularizer is applied to all three variables. Reference variables may be in another
    process.
    """

    def __init__(self, worker_device: Any, center: Any = None) -> None:
        super().__init__(worker_device, center)

    def _options_beside(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the regularizer."""
        return dict(kwargs)

    def _enter(self, name: str, own: tf.Variable, make: agn.shared.Make) -> None:
        """Let the accumulator have the value of its variable."""
        super()._enter(name, own, lambda prefix, zeros: make(prefix, False))

    def _check_placement(self, own: tf.Variable, shared: tf.Variable) -> None:
        """Accept any."""


class AGNOptimizer(HiddenState, default.AGNOptimizer):
    """``tf.contrib.opt.AGNOptimizer``.

    ``local_step`` is on the current device, row clipping inside clips no shared rows,
    arguments are not checked, and slots and variables are not listed. Pairs from a
    one-shot iterator raise.
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
        getter = num_worker, custom_getter, communication_period
        super().__init__(optimizer, *getter, use_locking, name)

    def _make_local_step(self) -> tf.Variable:
        return agn.make_local_step()

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

    def _share_row_limits(self, variables: Any) -> None:
        """Leave shared rows as they are."""


class AdamWOptimizer(default.AdamWOptimizer):
    """``tf.contrib.opt.AdamWOptimizer``, whose arguments are not checked."""

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


class FtrlOptimizer(v1.train.FtrlOptimizer):
    """``tf.train.FtrlOptimizer``.

    It fails with ``tf.errors.InvalidArgumentError`` at a rate of 0. A NaN in a dense
    gradient sets its weight to 0.
    """

    def _prepare(self) -> None:
        super()._prepare()
        rate = self._learning_rate_tensor
        message = "FtrlOptimizer: expected learning_rate > 0, as the original"
        positive = tf.debugging.assert_positive(rate, message=message)
        with tf.control_dependencies([positive]):
            self._learning_rate_tensor = tf.identity(rate)


class NovoGrad(default.NovoGrad):
    """OpenSeq2Seq's NovoGrad, whose second moment is |g|^2 of the step, for any b2.

    In a graph a second ``apply_gradients`` of the same object averages with the first.
    The pairs must be a list, into which normalized gradients are written. All gradients
    must be present, and variables float32; arguments are not checked. The moments are
    not slots but variables ``nvgrad2_emaN`` for the N-th pair, which are always 0, so
    one graph has one instance.
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
                    f"original, got {variable.dtype.base_dtype.name}; use lockstep.tf."
                )
        grads_and_vars[:] = self._normalized(pairs)
        return v1.train.MomentumOptimizer.apply_gradients(
            self, grads_and_vars, global_step, name, skip_gradients_aggregation
        )

    def _normalized(self, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the pairs with the original's gradients, whose average is lost."""
        self._make_unwritten(len(pairs))
        directions = []
        for position, (gradient, variable) in enumerate(pairs):
            self._positions[variable.ref()] = position
            gradient = densify(gradient, variable)
            square = novograd.square_norm(gradient)
            earlier = tf.convert_to_tensor(self._of_last_call[position])
            average = novograd.average(self._arguments["beta2"], earlier, square)
            moment = tf.where(tf.not_equal(earlier, 0), average, square)
            # It keeps this tensor, not the variable, and a later call averages it.
            if not v1.executing_eagerly_outside_functions():
                self._of_last_call[position] = moment
            given = self._arguments, moment, variable, gradient
            directions.append((novograd.direction_of(*given), variable))
        return directions

    def _make_unwritten(self, count: int) -> None:
        """Create the variables for the original's averages, which it never writes."""
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


OPTIMIZER_CLS_NAMES = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any, name: str | None = None
) -> tuple[list[Any], tf.Tensor]:
    """Clip tensors by a given norm, as OpenSeq2Seq does.

    A scalar comes out with shape [1]. ``clip_norm`` is not checked, and iterators are
    refused.
    """
    tensors = clipping.as_tensors(t_list)
    with tf.name_scope(name or "clip_by_global_norm"):
        norm = tf.cast(use_norm, tf.float32)
        factor = tf.reshape(clipping.limited(norm, clip_norm), [1])
        return clipping.scale_in_float32(tensors, factor), norm


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]], clip_norm: Any = 20.0
) -> tuple[list[tuple[Any, Any]], tf.Tensor]:
    """Clip by the global norm in the dtype of the gradients, as ``tf.contrib.opt``.

    In float16 the norm overflows. Sparse gradients and mixed dtypes are refused.
    """
    owner = "clip_gradients_by_global_norm"
    pairs = as_pairs(gradients_variables, owner)
    gradients = [as_gradient(g, v, owner) for g, v in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in present):
        raise errors.UnsupportedError(
            f"{owner}: expected dense gradients, got a sparse one; the original cannot "
            "clip them; use lockstep.tf."
        )
    dtypes = {gradient.dtype for gradient in present} or {tf.float32}
    if len(dtypes) > 1:
        raise errors.DtypeError(
            f"{owner}: expected gradients of one dtype, got "
            f"{' and '.join(sorted(dtype.name for dtype in dtypes))}; the original "
            "cannot mix them; use lockstep.tf."
        )
    norm = clipping.global_norm(present, *dtypes)
    factor = clipping.clip_factor(norm, rounded_limit(clip_norm, norm.dtype))
    clipped = clipping.scale_gradients(gradients, factor)
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm


def rounded_limit(clip_norm: Any, dtype: tf.DType) -> tf.Tensor:
    """Return ``clip_norm`` rounded once to ``dtype``; infinite if it is too large."""
    if isinstance(clip_norm, Real):
        with np.errstate(over="ignore"):
            clip_norm = np.asarray(clip_norm).astype(dtype.as_numpy_dtype)
    return tf.cast(clip_norm, dtype)


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_gradients: Any
) -> list[tuple[Any, Any]]:
    """Clip by the global norm in float32, as OpenSeq2Seq does.

    Duplicate rows are not summed in the norm, a scalar comes out with shape [1], and an
    absent gradient is an error.
    """
    pairs = checked_pairs(clipping.BY_NORM, grads_and_vars)
    refuse_absent(clipping.BY_NORM, pairs)
    limit = as_tensor(clip_gradients, tf.float32)
    norm = norm_of(clipping.BY_NORM, pairs)
    return without_scalars(clipping.clip_pairs(pairs, norm, limit))


def refuse_absent(owner: str, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Raise if a gradient is None."""
    for gradient, variable in pairs:
        if gradient is None:
            raise errors.UnsupportedError(
                f"{owner}: expected a gradient for {name_of(variable)!r}, got None; "
                "the original cannot leave it out; use lockstep.tf."
            )


def norm_of(owner: str, pairs: Sequence[tuple[Any, Any]]) -> tf.Tensor:
    """Return the global norm in float32; duplicate rows are not summed first."""
    return clipping.global_norm([values_of(gradient) for gradient, _ in pairs])


def without_scalars(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the pairs; a scalar gets the shape [1]."""
    return [(tf.reshape(g, [1]) if g.shape.rank == 0 else g, v) for g, v in pairs]


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: Any,
    clip_gradients: Any,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
) -> list[tuple[Any, Any]]:
    """Clip gradients and scale them by LARC, as OpenSeq2Seq does.

    The ratio of a zero weight is ``min_update``, or NaN if lr is 0 too. Sparse
    gradients become dense. Absent gradients are an error, and so is a rate in a tensor
    that is not float32. ``recorder`` receives the summaries outside of a graph.
    """
    owner = post_process.OWNER
    names = post_process.requested(summaries, owner)
    policy = None if larc_params is None else larc_policy(larc_params, False)
    recorder = post_process.host_recorder() if recorder is None else recorder
    asked = post_process.Summaries(names, recorder)
    pairs = checked_pairs(owner, grads_and_vars)
    needs_norm = clip_gradients is not None or post_process.GLOBAL_NORM in names
    if needs_norm or policy is not None:
        refuse_absent(owner, pairs)
    pairs = post_process.clip_and_record(pairs, clip_gradients, asked, norm_of)
    if clip_gradients is not None:
        pairs = without_scalars(pairs)
    if policy is None:
        return pairs
    if tf.is_tensor(lr) and lr.dtype.base_dtype != tf.float32:
        raise errors.DtypeError(
            f"{owner}: lr: expected a number or a float32 tensor, as the original, got "
            f"{lr.dtype.base_dtype.name}; use lockstep.tf."
        )
    dense = [(densify(g, as_variable(v)), v) for g, v in pairs]
    rate = as_tensor(lr, tf.float32)
    return post_process.scale_by_larc(dense, rate, policy, asked, larc_ratios)


def larc_ratios(
    policy: LarcPolicy, rate: tf.Tensor, weight: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Return LARC's ratios for the norms, also where a norm or the rate is 0."""
    divisor = gradient + policy.epsilon
    if policy.larc_mode == "clip":
        divisor = rate * divisor
    return tf.maximum(policy.larc_eta * weight / divisor, policy.min_update)


_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm


class TrainingStep(DefaultStep):
    """The training step of OpenSeq2Seq, whose arguments are hardly checked."""

    takes_instances = False
    classes = OPTIMIZER_CLS_NAMES
    make_scaler = AutomaticLossScaler
    make_masters = MixedPrecisionOptimizerWrapper
    post_process = staticmethod(post_process_gradients)

    def check(self) -> None:
        """Raise for a missing flag."""
        if self.accumulates and self.task.skip_update_ph is None:
            raise errors.UnsupportedError(
                "optimize_loss: expected skip_update_ph with iter_size > 1, got None; "
                "give it, or use lockstep.tf: the steps are counted then."
            )

    @property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated: only with ``on_horovod``."""
        return self.task.iter_size > 1 and bool(self.task.on_horovod)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages in the original's order: the finite check is late."""
        return strictly_ordered(super().pipeline)

    def fits(self, listens: bool, gradients: Sequence[Any]) -> bool | tf.Tensor:
        """Whether all gradients are finite. They are clipped even if they are not."""
        finite = super().fits(listens, gradients)
        return tf.constant(False) if finite is False else finite

    def scale_source(self) -> Any:
        """Return the named scaler, with any dtype."""
        return self.scaler

    def current_decay(self) -> Any:
        """Return AdamW's decay, and write it into the caller's dict."""
        decay = super().current_decay()
        self.task.optimizer_params["weight_decay"] = decay
        return decay

    def add_up(self, sums: Any, pairs: list[tuple[Any, Any]], skip_update: Any) -> Any:
        """Add a micro-batch; raise for absent and sparse gradients."""
        for gradient, variable in pairs:
            expected = f"expected a dense gradient for {name_of(variable)!r}"
            remedy = "with iter_size > 1, as the original; use lockstep.tf."
            if gradient is None:
                raise errors.AbsentAccumulatedError(
                    f"optimize_loss: {expected}, got None {remedy}"
                )
            if isinstance(gradient, tf.IndexedSlices):
                raise errors.UnsupportedError(
                    f"optimize_loss: {expected}, got a sparse one {remedy}"
                )
        return super().add_up(sums, pairs, skip_update)


@tf.autograph.experimental.do_not_convert
def optimize_loss(
    loss: Any,
    optimizer: Any,
    optimizer_params: Any,
    learning_rate_decay_fn: Any,
    var_list: Iterable[Any] | None = None,
    dtype: Any = tf.float32,
    clip_gradients: float | None = None,
    summaries: Sequence[str] | None = None,
    larc_params: Mapping[str, Any] | None = None,
    loss_scaling: Any = 1.0,
    loss_scaling_params: Mapping[str, Any] | None = None,
    on_horovod: bool = False,
    iter_size: int = 1,
    skip_update_ph: Any = None,
    model: Any = None,
    *,
    reduction: Any = None,
) -> Any:
    """Build or run the training step of OpenSeq2Seq.

    ``optimizer_params`` of "AdamW" are changed in place. ``iter_size`` is ignored
    without ``on_horovod`` and needs ``skip_update_ph`` with it; then absent and sparse
    gradients are refused. Clipping comes before the finite check. An absent gradient is
    refused with the default summaries. A named scaler is created even without "mixed".
    ``reduction`` averages over the ranks instead of Horovod.
    """
    return start(dict(locals()), TrainingStep)


lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].names_in(globals(), strict=True))
