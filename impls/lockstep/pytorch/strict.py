"""The names of :mod:`lockstep.pytorch` bound to the originals' exact behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, partialmethod

from torch import Tensor

from lockstep import pytorch
from lockstep.pytorch import (
    OPTIMIZER_SUMMARIES,
    TensorBoardRecorder,
    get_regularization_loss,
    mp_regularizer_wrapper,
    pipeline_of,
    reduce_gradients,
)
from lockstep.spec.lr_policies import strict_module

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
    "PolicyLR",
    "RMSPropOptimizer",
    "TensorBoardRecorder",
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


class AdagradOptimizer(pytorch.AdagradOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.AdagradOptimizer.__init__, strict=True)


class AdamOptimizer(pytorch.AdamOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.AdamOptimizer.__init__, strict=True)


class AdamWOptimizer(pytorch.AdamWOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.AdamWOptimizer.__init__, strict=True)


class GradientDescentOptimizer(pytorch.GradientDescentOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.GradientDescentOptimizer.__init__, strict=True)


class MomentumOptimizer(pytorch.MomentumOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.MomentumOptimizer.__init__, strict=True)


class RMSPropOptimizer(pytorch.RMSPropOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.RMSPropOptimizer.__init__, strict=True)


class FtrlOptimizer(pytorch.FtrlOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.FtrlOptimizer.__init__, strict=True)


class AGNCustomGetter(pytorch.AGNCustomGetter):
    """The getter with ``strict=True``."""

    __init__ = partialmethod(pytorch.AGNCustomGetter.__init__, strict=True)


class AGNOptimizer(pytorch.AGNOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(pytorch.AGNOptimizer.__init__, strict=True)


class NovoGrad(pytorch.NovoGrad):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(pytorch.NovoGrad.__init__, strict=True)


class MultitaskOptimizerWrapper(pytorch.MultitaskOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(pytorch.MultitaskOptimizerWrapper.__init__, strict=True)


class VariableClippingOptimizer(pytorch.VariableClippingOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(pytorch.VariableClippingOptimizer.__init__, strict=True)


class FixedLossScale(pytorch.FixedLossScale):
    """The loss scale with ``strict=True``."""

    __init__ = partialmethod(pytorch.FixedLossScale.__init__, strict=True)


class DynamicLossScale(pytorch.DynamicLossScale):
    """The loss scale with ``strict=True``."""

    __init__ = partialmethod(pytorch.DynamicLossScale.__init__, strict=True)


class MixedPrecisionLossScaleOptimizer(pytorch.MixedPrecisionLossScaleOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(
        pytorch.MixedPrecisionLossScaleOptimizer.__init__, strict=True
    )


class MixedPrecisionOptimizerWrapper(pytorch.MixedPrecisionOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(
        pytorch.MixedPrecisionOptimizerWrapper.__init__, strict=True
    )


class AutomaticLossScaler(pytorch.AutomaticLossScaler):
    """The scaler with ``strict=True``."""

    __init__ = partialmethod(pytorch.AutomaticLossScaler.__init__, strict=True)


OPTIMIZER_CLS_NAMES = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
optimize_loss = partial(pytorch.optimize_loss, strict=True)
clip_gradients_by_global_norm = partial(
    pytorch.clip_gradients_by_global_norm, strict=True
)
clip_gradients_by_norm = partial(pytorch.clip_gradients_by_norm, strict=True)
post_process_gradients = partial(pytorch.post_process_gradients, strict=True)


def clip_by_global_norm(
    t_list: Sequence[Tensor | None],
    clip_norm: float,
    use_norm: Tensor | float,
    name: str | None = None,
) -> tuple[list[Tensor | None], Tensor]:
    """Clip with ``strict=True``."""
    return pytorch.clip_by_global_norm(t_list, clip_norm, use_norm, strict=True)


lr_policies = strict_module(pytorch.lr_policies, f"{__name__}.lr_policies")


class PolicyLR(pytorch.PolicyLR):
    """The scheduler with ``strict=True``: a policy's name means the original's rule."""

    __init__ = partialmethod(pytorch.PolicyLR.__init__, strict=True)
