"""The names of :mod:`lockstep.reference` bound to the originals' exact behaviour.

Each has the original's arguments and no others. ``center``, ``recorder`` and
``reduction`` replace TensorFlow 1's shared variables in a graph, its collection of
summaries, and Horovod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lockstep import reference
from lockstep.policies import strict_module
from lockstep.reference import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.reference import Rows as Rows
from lockstep.reference import Variable as Variable
from lockstep.reference import get_regularization_loss as get_regularization_loss
from lockstep.reference import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.reference import pipeline_of as pipeline_of
from lockstep.reference import reduce_gradients as reduce_gradients
from lockstep.reference.optimizers import Optimizer, RuleOptimizer
from lockstep.registry import BACKENDS

if not TYPE_CHECKING:  # Type checkers read the names below instead.
    __all__ = list(BACKENDS["reference"].public_names(strict=True))


class MultitaskOptimizerWrapper(reference.MultitaskOptimizerWrapper):
    """``tf.contrib.opt.MultitaskOptimizerWrapper``."""

    def __init__(self, opt: Optimizer) -> None:
        super().__init__(opt, strict=True)


class VariableClippingOptimizer(reference.VariableClippingOptimizer):
    """``tf.contrib.opt.VariableClippingOptimizer``."""

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Iterable[int]],
        max_norm: float,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__(opt, vars_to_clip_dims, max_norm, name=name, strict=True)


class AGNCustomGetter(reference.AGNCustomGetter):
    """``tf.contrib.opt.AGNCustomGetter``; workers share the ``center``."""

    def __init__(self, worker_device: Any, center: Any = None) -> None:
        super().__init__(worker_device, center, strict=True)


class AGNOptimizer(reference.AGNOptimizer):
    """``tf.contrib.opt.AGNOptimizer``."""

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: Any,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None:
        super().__init__(
            optimizer,
            num_worker,
            custom_getter,
            communication_period,
            name=name,
            strict=True,
        )


class FixedLossScale(reference.FixedLossScale):
    """``tf.train.experimental.FixedLossScale``."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__(loss_scale_value, strict=True)


class DynamicLossScale(reference.DynamicLossScale):
    """``tf.train.experimental.DynamicLossScale``."""

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        super().__init__(initial_loss_scale, increment_period, multiplier, strict=True)


class MixedPrecisionLossScaleOptimizer(reference.MixedPrecisionLossScaleOptimizer):
    """``tf.train.experimental.MixedPrecisionLossScaleOptimizer``."""

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        super().__init__(opt, loss_scale, strict=True)


class MixedPrecisionOptimizerWrapper(reference.MixedPrecisionOptimizerWrapper):
    """``MixedPrecisionOptimizerWrapper`` of OpenSeq2Seq."""

    def __init__(self, optimizer: Optimizer, loss_scale: Any = None) -> None:
        super().__init__(optimizer, loss_scale, strict=True)


class AutomaticLossScaler(reference.AutomaticLossScaler):
    """``AutomaticLossScaler`` of OpenSeq2Seq."""

    def __init__(
        self, algorithm: str = "Backoff", params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(algorithm, params, strict=True)


class StrictRule(RuleOptimizer):
    """An optimizer with the arguments of the original, in :attr:`spec`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, strict=True, **kwargs)

    def __init_subclass__(cls) -> None:
        cls.__signature__ = cls.spec.signature


class AdagradOptimizer(StrictRule, reference.AdagradOptimizer):
    """``tf.train.AdagradOptimizer``."""


class AdamOptimizer(StrictRule, reference.AdamOptimizer):
    """``tf.train.AdamOptimizer``."""


class AdamWOptimizer(StrictRule, reference.AdamWOptimizer):
    """``tf.contrib.opt.AdamWOptimizer``."""


class FtrlOptimizer(StrictRule, reference.FtrlOptimizer):
    """``tf.train.FtrlOptimizer``."""


class GradientDescentOptimizer(StrictRule, reference.GradientDescentOptimizer):
    """``tf.train.GradientDescentOptimizer``."""


class MomentumOptimizer(StrictRule, reference.MomentumOptimizer):
    """``tf.train.MomentumOptimizer``."""


class NovoGrad(StrictRule, reference.NovoGrad):
    """``NovoGrad`` of OpenSeq2Seq."""


class RMSPropOptimizer(StrictRule, reference.RMSPropOptimizer):
    """``tf.train.RMSPropOptimizer``."""


OPTIMIZER_CLS_NAMES = {
    name: globals()[default.__name__]
    for name, default in reference.OPTIMIZER_CLS_NAMES.items()
}


def clip_gradients_by_global_norm(
    gradients_variables: Iterable[Any], clip_norm: float = 20.0
) -> Any:
    """Clip by the global norm, as ``tf.contrib.opt`` does."""
    return reference.clip_gradients_by_global_norm(
        gradients_variables, clip_norm, strict=True
    )


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: float, use_norm: Any, name: str | None = None
) -> Any:
    """Clip tensors by a given norm, as OpenSeq2Seq does."""
    return reference.clip_by_global_norm(t_list, clip_norm, use_norm, strict=True)


def clip_gradients_by_norm(grads_and_vars: Iterable[Any], clip_gradients: float) -> Any:
    """Clip by the global norm in float32, as OpenSeq2Seq does."""
    return reference.clip_gradients_by_norm(grads_and_vars, clip_gradients, strict=True)


_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm


def post_process_gradients(
    grads_and_vars: Iterable[Any],
    summaries: Iterable[str] | None,
    lr: Any,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
) -> Any:
    """Clip gradients and scale them by LARC, as OpenSeq2Seq does."""
    return reference.post_process_gradients(
        grads_and_vars,
        summaries,
        lr,
        clip_gradients,
        larc_params,
        recorder,
        strict=True,
    )


def optimize_loss(
    loss: Any,
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Any,
    var_list: Iterable[Any] | None = None,
    dtype: Any = "float32",
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
    """Return the training step of OpenSeq2Seq."""
    return reference.optimize_loss(
        loss,
        optimizer,
        optimizer_params,
        learning_rate_decay_fn,
        var_list,
        dtype,
        clip_gradients,
        summaries,
        larc_params,
        loss_scaling,
        loss_scaling_params,
        on_horovod,
        iter_size,
        skip_update_ph,
        model,
        reduction=reduction,
        strict=True,
    )


lr_policies = strict_module(reference.lr_policies, f"{__name__}.lr_policies")
