"""The names of :mod:`lockstep.pytorch` bound to the originals' exact behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from lockstep import pytorch
from lockstep.messages.schedules.lr_policies import strict_module
from lockstep.pytorch import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.pytorch import TensorBoardRecorder as TensorBoardRecorder
from lockstep.pytorch import get_regularization_loss as get_regularization_loss
from lockstep.pytorch import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.pytorch import pipeline_of as pipeline_of
from lockstep.pytorch import reduce_gradients as reduce_gradients
from lockstep.registry import BACKENDS
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in, forwards

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["pytorch"].public_names(strict=True))


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], pytorch.MultitaskOptimizerWrapper
):
    """``pytorch.MultitaskOptimizerWrapper`` with ``strict=True``."""


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer],
    pytorch.VariableClippingOptimizer,
):
    """``pytorch.VariableClippingOptimizer`` with ``strict=True``."""


class FixedLossScale(originals.FixedLossScale, pytorch.FixedLossScale):
    """``pytorch.FixedLossScale`` with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, pytorch.DynamicLossScale):
    """``pytorch.DynamicLossScale`` with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    pytorch.MixedPrecisionLossScaleOptimizer,
):
    """``pytorch.MixedPrecisionLossScaleOptimizer`` with ``strict=True``."""


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    pytorch.MixedPrecisionOptimizerWrapper,
):
    """``pytorch.MixedPrecisionOptimizerWrapper`` with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, pytorch.AutomaticLossScaler):
    """``pytorch.AutomaticLossScaler`` with ``strict=True``."""


class AGNCustomGetter(originals.AGNCustomGetter, pytorch.AGNCustomGetter):
    """``pytorch.AGNCustomGetter`` with ``strict=True``."""


class AGNOptimizer(originals.AGNOptimizer[Optimizer], pytorch.AGNOptimizer):
    """``pytorch.AGNOptimizer`` with ``strict=True``."""


class AdagradOptimizer(pytorch.AdagradOptimizer):
    """``pytorch.AdagradOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None: ...


class AdamOptimizer(pytorch.AdamOptimizer):
    """``pytorch.AdamOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None: ...


class AdamWOptimizer(pytorch.AdamWOptimizer):
    """``pytorch.AdamWOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        weight_decay: float,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None: ...


class FtrlOptimizer(pytorch.FtrlOptimizer):
    """``pytorch.FtrlOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None: ...


class GradientDescentOptimizer(pytorch.GradientDescentOptimizer):
    """``pytorch.GradientDescentOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None: ...


class MomentumOptimizer(pytorch.MomentumOptimizer):
    """``pytorch.MomentumOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None: ...


class NovoGrad(pytorch.NovoGrad):
    """``pytorch.NovoGrad`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
    ) -> None: ...


class RMSPropOptimizer(pytorch.RMSPropOptimizer):
    """``pytorch.RMSPropOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None: ...


OPTIMIZER_CLS_NAMES = classes_in(globals(), pytorch.OPTIMIZER_CLS_NAMES)

clip_by_global_norm = bound(
    pytorch.clip_by_global_norm, originals.clip_by_global_norm, __name__
)
clip_gradients_by_global_norm = bound(
    pytorch.clip_gradients_by_global_norm,
    originals.clip_gradients_by_global_norm,
    __name__,
)
clip_gradients_by_norm = bound(
    pytorch.clip_gradients_by_norm, originals.clip_gradients_by_norm, __name__
)
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm
optimize_loss = bound(pytorch.optimize_loss, originals.optimize_loss, __name__)
post_process_gradients = bound(
    pytorch.post_process_gradients, originals.post_process_gradients, __name__
)
lr_policies = strict_module(pytorch.lr_policies, f"{__name__}.lr_policies")


class PolicyLR(pytorch.PolicyLR):
    """The scheduler with ``strict=True``: a policy's name means the original's rule."""

    @forwards
    def __init__(
        self,
        optimizer: Optimizer,
        policy: str | Callable[[int], float],
        last_epoch: int = -1,
        **arguments: Any,
    ) -> None: ...
