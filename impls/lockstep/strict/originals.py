"""The originals' signatures, which strict modules bind to each backend's classes.

Bodies are empty because :mod:`lockstep.strict.binding` forwards the arguments.
``center``, ``recorder`` and ``reduction`` replace TensorFlow 1's shared variables in a
graph, its collection of summaries, and Horovod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from lockstep.interface import EXPORTS
from lockstep.strict.binding import forwards

Optimizer = TypeVar("Optimizer")
"""The base class of a backend's optimizers."""


class MultitaskOptimizerWrapper(Generic[Optimizer]):
    """``tf.contrib.opt.MultitaskOptimizerWrapper``."""

    @forwards
    def __init__(self, opt: Optimizer) -> None: ...


class VariableClippingOptimizer(Generic[Optimizer]):
    """``tf.contrib.opt.VariableClippingOptimizer``."""

    @forwards
    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None: ...


class AGNCustomGetter:
    """``tf.contrib.opt.AGNCustomGetter``; workers share the ``center``."""

    @forwards
    def __init__(self, worker_device: Any, center: Any = None) -> None: ...


class AGNOptimizer(Generic[Optimizer]):
    """``tf.contrib.opt.AGNOptimizer``."""

    @forwards
    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: Any,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
    ) -> None: ...


class FixedLossScale:
    """``tf.train.experimental.FixedLossScale``."""

    @forwards
    def __init__(self, loss_scale_value: float) -> None: ...


class DynamicLossScale:
    """``tf.train.experimental.DynamicLossScale``."""

    @forwards
    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None: ...


class MixedPrecisionLossScaleOptimizer(Generic[Optimizer]):
    """``tf.train.experimental.MixedPrecisionLossScaleOptimizer``."""

    @forwards
    def __init__(self, opt: Optimizer, loss_scale: Any) -> None: ...


class MixedPrecisionOptimizerWrapper(Generic[Optimizer]):
    """``MixedPrecisionOptimizerWrapper`` of OpenSeq2Seq."""

    @forwards
    def __init__(self, optimizer: Optimizer, loss_scale: Any = None) -> None: ...


class AutomaticLossScaler:
    """``AutomaticLossScaler`` of OpenSeq2Seq."""

    @forwards
    def __init__(
        self, algorithm: str = "Backoff", params: Mapping[str, Any] | None = None
    ) -> None: ...


def clip_gradients_by_global_norm(
    gradients_variables: Iterable[Any], clip_norm: float = 20.0
) -> Any:
    """Clip by the global norm, as ``tf.contrib.opt`` does."""


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: float, use_norm: Any, name: str | None = None
) -> Any:
    """Clip tensors by a given norm, as OpenSeq2Seq does."""


def clip_gradients_by_norm(grads_and_vars: Iterable[Any], clip_gradients: float) -> Any:
    """Clip by the global norm in float32, as OpenSeq2Seq does."""


def post_process_gradients(
    grads_and_vars: Iterable[Any],
    summaries: Iterable[str] | None,
    lr: Any,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
) -> Any:
    """Clip gradients and scale them by LARC, as OpenSeq2Seq does.

    ``recorder`` receives the summaries, which a backend does not collect itself.
    """


def mp_regularizer_wrapper(regularizer: Callable[[Any], Any]) -> Any:
    """Regularize float32 masters instead of weights, as OpenSeq2Seq does."""


def optimize_loss(
    loss: Any,
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[Any], Any],
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
    """Build or run the training step of OpenSeq2Seq.

    ``reduction`` averages over the ranks instead of Horovod.
    """


# The signatures that are defined above have public names.
__all__ = [name for name in EXPORTS if name in globals()]
