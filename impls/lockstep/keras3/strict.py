"""The names of :mod:`lockstep.keras3` bound to the originals' exact behaviour.

As far as Keras goes: the arithmetic of its own optimizers is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from lockstep import keras3 as default
from lockstep.keras3 import (
    OPTIMIZER_SUMMARIES,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
    get_regularization_loss,
    pipeline_of,
    reduce_gradients,
)
from lockstep.spec.lr_policies import strict_module
from lockstep.spec.summaries import Recorder

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
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MomentumOptimizer",
    "MultitaskOptimizerWrapper",
    "NovoGrad",
    "PolicySchedule",
    "RMSPropOptimizer",
    "VariableClippingOptimizer",
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

registered = keras.saving.register_keras_serializable(package="lockstep.strict")


@registered
class MultitaskOptimizerWrapper(default.MultitaskOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    def __init__(self, opt: keras.optimizers.Optimizer) -> None:
        super().__init__(opt, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["strict"]
        return config


@registered
class VariableClippingOptimizer(default.VariableClippingOptimizer):
    """The row-clipping wrapper with ``strict=True``."""

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__(opt, vars_to_clip_dims, max_norm, name=name, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["strict"]
        return config


@registered
class AGNCustomGetter(default.AGNCustomGetter):
    """The getter with ``strict=True``."""

    def __init__(self, worker_device: str, center: Any = None) -> None:
        super().__init__(worker_device, center, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the argument of the constructor, without the center."""
        return {"worker_device": self.worker_device}


@registered
class AGNOptimizer(default.AGNOptimizer):
    """The wrapper with ``strict=True``."""

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        num_worker: int,
        custom_getter: default.AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None:
        arguments = optimizer, num_worker, custom_getter, communication_period
        super().__init__(*arguments, name=name, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        left_out = ("commit", "strict")
        return {name: value for name, value in config.items() if name not in left_out}


@registered
class FixedLossScale(default.FixedLossScale):
    """The fixed scale with ``strict=True``."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__(loss_scale_value, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the argument of the constructor."""
        return self.arguments()


@registered
class DynamicLossScale(default.DynamicLossScale):
    """The dynamic scale with ``strict=True``."""

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        super().__init__(initial_loss_scale, increment_period, multiplier, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return self.arguments()


@registered
class MixedPrecisionLossScaleOptimizer(default.MixedPrecisionLossScaleOptimizer):
    """The loss-scaling wrapper with ``strict=True``."""

    def __init__(self, opt: keras.optimizers.Optimizer, loss_scale: Any) -> None:
        super().__init__(opt, scale_of(loss_scale), strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        return {name: config[name] for name in (self.argument, "loss_scale")}


@registered
class MixedPrecisionOptimizerWrapper(default.MixedPrecisionOptimizerWrapper):
    """The wrapper of float32 masters with ``strict=True``."""

    def __init__(
        self, optimizer: keras.optimizers.Optimizer, loss_scale: Any = None
    ) -> None:
        super().__init__(optimizer, loss_scale, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        return {name: config[name] for name in (self.argument, "loss_scale")}


def mp_regularizer_wrapper(
    regularizer: Callable[[Any], Any],
) -> keras.regularizers.Regularizer:
    """Wrap with ``strict=True``."""
    return default.mp_regularizer_wrapper(regularizer, strict=True)


def scale_of(identifier: Any) -> Any:
    """Return a loss scale of this module for a number and for "dynamic"."""
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    return DynamicLossScale() if identifier == "dynamic" else identifier


@registered
class AutomaticLossScaler(default.AutomaticLossScaler):
    """The scaler with ``strict=True``."""

    def __init__(
        self, algorithm: str = "Backoff", params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(algorithm, params, strict=True)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["strict"]
        return config


@registered
class FtrlOptimizer(default.FtrlOptimizer):
    """Ftrl with ``strict=True``: it fails at a rate of 0."""

    strict = True


OPTIMIZER_CLS_NAMES = {**default.OPTIMIZER_CLS_NAMES, "Ftrl": FtrlOptimizer}
optimize_loss = partial(default.optimize_loss, strict=True)


@registered
class NovoGrad(default.NovoGrad):
    """NovoGrad with ``strict=True``: the second moment is never written back."""

    strict = True


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


lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")


@registered
class PolicySchedule(default.PolicySchedule):
    """The schedule with ``strict=True``: the original's rules."""

    def __init__(self, policy: str, **parameters: Any) -> None:
        super().__init__(policy, strict=True, **parameters)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["strict"]
        return config
