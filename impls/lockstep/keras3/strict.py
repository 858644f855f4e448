"""The names of :mod:`lockstep.keras3` bound to the originals' exact behaviour.

As far as possible with Keras, whose own optimizers compute the updates.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

from lockstep import keras3 as default
from lockstep.keras3 import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.keras3 import AdagradOptimizer as AdagradOptimizer
from lockstep.keras3 import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.keras3 import MomentumOptimizer as MomentumOptimizer
from lockstep.keras3 import get_regularization_loss as get_regularization_loss
from lockstep.keras3 import pipeline_of as pipeline_of
from lockstep.keras3 import reduce_gradients as reduce_gradients
from lockstep.keras3.scaling.loss_scale import LossScale, get
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in, forwards

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["keras3"].public_names(strict=True))

registered = keras.saving.register_keras_serializable(package="lockstep.strict")
Optimizer = keras.optimizers.Optimizer


class InConfigs:
    """A class whose ``get_config`` returns exactly its constructor's arguments.

    These are the original's, and for an optimizer also Keras' options.
    """

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        config = super().get_config()  # type: ignore[misc]
        parameters = inspect.signature(type(self)).parameters
        takes_options = "options" in parameters
        # ``positions``: from_config of the row-clipping wrapper removes it again.
        known = {*parameters, "positions", *(config if takes_options else ())}
        return {name: config[name] for name in config if name in known - {"strict"}}


@registered
class MultitaskOptimizerWrapper(
    InConfigs,
    originals.MultitaskOptimizerWrapper[Optimizer],
    default.MultitaskOptimizerWrapper,
):
    """``keras3.MultitaskOptimizerWrapper`` with ``strict=True``."""


@registered
class VariableClippingOptimizer(
    InConfigs,
    originals.VariableClippingOptimizer[Optimizer],
    default.VariableClippingOptimizer,
):
    """``keras3.VariableClippingOptimizer`` with ``strict=True``."""


@registered
class AGNCustomGetter(InConfigs, originals.AGNCustomGetter, default.AGNCustomGetter):
    """``keras3.AGNCustomGetter`` with ``strict=True``."""


@registered
class AGNOptimizer(InConfigs, originals.AGNOptimizer[Optimizer], default.AGNOptimizer):
    """``keras3.AGNOptimizer`` with ``strict=True``."""


@registered
class FixedLossScale(InConfigs, originals.FixedLossScale, default.FixedLossScale):
    """``keras3.FixedLossScale`` with ``strict=True``."""


@registered
class DynamicLossScale(InConfigs, originals.DynamicLossScale, default.DynamicLossScale):
    """``keras3.DynamicLossScale`` with ``strict=True``."""


def scale_of(identifier: Any, strict: bool) -> LossScale | None:
    """Return this module's loss scale for a number or for "dynamic"."""
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    is_dynamic = isinstance(identifier, str) and identifier == "dynamic"
    return DynamicLossScale() if is_dynamic else get(identifier, strict)


@registered
class MixedPrecisionLossScaleOptimizer(
    InConfigs,
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    default.MixedPrecisionLossScaleOptimizer,
):
    """``keras3.MixedPrecisionLossScaleOptimizer`` with ``strict=True``."""

    scale_of = staticmethod(scale_of)


@registered
class MixedPrecisionOptimizerWrapper(
    InConfigs,
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    default.MixedPrecisionOptimizerWrapper,
):
    """``keras3.MixedPrecisionOptimizerWrapper`` with ``strict=True``."""


@registered
class AutomaticLossScaler(
    InConfigs, originals.AutomaticLossScaler, default.AutomaticLossScaler
):
    """``keras3.AutomaticLossScaler`` with ``strict=True``."""


class FromOldConfigs(InConfigs):
    """An optimizer that also loads configurations of version 0.1."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Create an optimizer; old configurations have an entry ``strict``."""
        arguments = {name: value for name, value in config.items() if name != "strict"}
        return super().from_config(arguments, custom_objects)  # type: ignore[misc]


@registered
class AdamOptimizer(FromOldConfigs, default.AdamOptimizer):
    """Adam with ``strict=True``: half precision is not widened."""

    @forwards
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
        **options: Any,
    ) -> None: ...


@registered
class RMSPropOptimizer(FromOldConfigs, default.RMSPropOptimizer):
    """RMSProp with ``strict=True``: half precision is not widened."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
        **options: Any,
    ) -> None: ...


@registered
class AdamWOptimizer(FromOldConfigs, default.AdamWOptimizer):
    """``keras3.AdamWOptimizer`` with ``strict=True``."""

    @forwards
    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        **options: Any,
    ) -> None: ...


@registered
class FtrlOptimizer(FromOldConfigs, default.FtrlOptimizer):
    """``keras3.FtrlOptimizer`` with ``strict=True``."""

    @forwards
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
        **options: Any,
    ) -> None: ...


@registered
class NovoGrad(FromOldConfigs, default.NovoGrad):
    """``keras3.NovoGrad`` with ``strict=True``."""

    @forwards
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
        **options: Any,
    ) -> None: ...


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


@registered
class PolicySchedule(InConfigs, default.PolicySchedule):
    """The schedule with ``strict=True``: the original's rules."""

    @forwards
    def __init__(self, policy: str, **options: Any) -> None: ...
