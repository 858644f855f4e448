"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

The drop-in target for old code: only its import line changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from lockstep import tf as default
from lockstep.spec.lr_policies import strict_module
from lockstep.spec.summaries import Recorder
from lockstep.tf import (
    OPTIMIZER_SUMMARIES,
    AdagradOptimizer,
    AdamOptimizer,
    GradientDescentOptimizer,
    LossScale,
    MomentumOptimizer,
    RMSPropOptimizer,
    get_regularization_loss,
    pipeline_of,
    reduce_gradients,
)
from lockstep.tf.center import Center
from lockstep.tf.variable_map import VariableMap
from lockstep.tf.wrapper import old_name

__all__ = [
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "AGNCustomGetter",
    "AGNOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AutomaticLossScaler",
    "DynamicLossScale",
    "FixedLossScale",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MomentumOptimizer",
    "MultitaskOptimizerWrapper",
    "NovoGrad",
    "RMSPropOptimizer",
    "VariableClippingOptimizer",
    "_clip_by_global_norm",
    "_clip_gradients_by_norm",
    "clip_by_global_norm",
    "clip_gradients_by_global_norm",
    "clip_gradients_by_norm",
    "get_regularization_loss",
    "lr_policies",
    "mp_regularizer_wrapper",
    "optimize_loss",
    "pipeline_of",
    "post_process_gradients",
    "reduce_gradients",
]


class MultitaskOptimizerWrapper(default.MultitaskOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    _opt = old_name("inner_optimizer")

    def __init__(self, opt: tf.compat.v1.train.Optimizer) -> None:
        super().__init__(opt, strict=True)


class VariableClippingOptimizer(default.VariableClippingOptimizer):
    """The row-clipping wrapper with ``strict=True``."""

    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")
    _vars_to_clip_dims = property(
        lambda own: VariableMap({k: list(v) for k, v in own.axes_by_variable.items()})
    )

    def __init__(
        self,
        opt: Any,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | tf.Tensor,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__(
            opt,
            vars_to_clip_dims,
            max_norm,
            use_locking,
            colocate_clip_ops_with_vars,
            name,
            strict=True,
        )


class FixedLossScale(default.FixedLossScale):
    """The fixed scale with ``strict=True``."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__(loss_scale_value, strict=True)


class DynamicLossScale(default.DynamicLossScale):
    """The dynamic scale with ``strict=True``."""

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        super().__init__(initial_loss_scale, increment_period, multiplier, strict=True)


class MixedPrecisionLossScaleOptimizer(default.MixedPrecisionLossScaleOptimizer):
    """The loss-scaling wrapper with ``strict=True``."""

    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")

    def __init__(self, opt: tf.compat.v1.train.Optimizer, loss_scale: Any) -> None:
        super().__init__(opt, loss_scale, strict=True)


class MixedPrecisionOptimizerWrapper(default.MixedPrecisionOptimizerWrapper):
    """The wrapper of float32 masters with ``strict=True``."""

    def __init__(
        self, optimizer: tf.compat.v1.train.Optimizer, loss_scale: Any = None
    ) -> None:
        super().__init__(optimizer, loss_scale, strict=True)


class AutomaticLossScaler(default.AutomaticLossScaler):
    """The scaler with ``strict=True``."""

    def __init__(
        self, algorithm: str = "Backoff", params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(algorithm, params, strict=True)


class AGNCustomGetter(default.AGNCustomGetter):
    """The getter with ``strict=True``."""

    def __init__(self, worker_device: Any, center: Center | None = None) -> None:
        super().__init__(worker_device, center, strict=True)


class AGNOptimizer(default.AGNOptimizer):
    """The wrapper of asynchronous workers with ``strict=True``."""

    def __init__(
        self,
        optimizer: tf.compat.v1.train.Optimizer,
        num_worker: int,
        custom_getter: default.AGNCustomGetter,
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
            strict=True,
        )


class AdamWOptimizer(default.AdamWOptimizer):
    """AdamW with ``strict=True``: its arguments are not checked."""

    def __init__(
        self,
        weight_decay: float | tf.Tensor | Callable[[], Any],
        learning_rate: float | tf.Tensor | Callable[[], Any] = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name, True
        )


class FtrlOptimizer(default.FtrlOptimizer):
    """Ftrl with ``strict=True``: it fails at a rate of 0."""

    def __init__(
        self, learning_rate: float | tf.Tensor, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate, *args, strict=True, **kwargs)


class NovoGrad(default.NovoGrad):
    """NovoGrad with ``strict=True``: the second moment is never written back."""

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
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
            grad_averaging,
            use_locking,
            name,
            strict=True,
        )


def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]], clip_norm: float = 20.0
) -> tuple[list[tuple[Any, Any]], tf.Tensor]:
    """Clip with ``strict=True``."""
    return default.clip_gradients_by_global_norm(
        gradients_variables, clip_norm, strict=True
    )


def clip_by_global_norm(
    t_list: Sequence[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor,
    name: str | None = None,
) -> tuple[list[Any], tf.Tensor]:
    """Clip with ``strict=True``."""
    return default.clip_by_global_norm(t_list, clip_norm, use_norm, name, strict=True)


def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_gradients: float | tf.Tensor
) -> list[tuple[Any, Any]]:
    """Clip with ``strict=True``."""
    return default.clip_gradients_by_norm(grads_and_vars, clip_gradients, strict=True)


_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm


def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
) -> list[tuple[Any, Any]]:
    """Process with ``strict=True``."""
    return default.post_process_gradients(
        grads_and_vars,
        summaries,
        lr,
        clip_gradients,
        larc_params,
        recorder,
        strict=True,
    )


OPTIMIZER_CLS_NAMES = {
    **default.OPTIMIZER_CLS_NAMES,
    "AdamW": AdamWOptimizer,
    "Ftrl": FtrlOptimizer,
}
optimize_loss = partial(default.optimize_loss, strict=True)


def mp_regularizer_wrapper(regularizer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap with ``strict=True``."""
    return default.mp_regularizer_wrapper(regularizer, strict=True)


lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")
