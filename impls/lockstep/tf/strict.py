"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

Old code only needs to change its import line. The arguments are exactly the
originals', see :mod:`lockstep.strict.originals`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep import tf as default
from lockstep.errors import UnsupportedError
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.base.replica_sums import refuse_cross_replica
from lockstep.tf.base.variable_map import VariableMap
from lockstep.tf.base.wrapper import old_name

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].public_names(strict=True))


Optimizer = tf.compat.v1.train.Optimizer


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], default.MultitaskOptimizerWrapper
):
    """``tf.MultitaskOptimizerWrapper`` with ``strict=True``."""

    _opt = old_name("inner_optimizer")


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer], default.VariableClippingOptimizer
):
    """``tf.VariableClippingOptimizer`` with ``strict=True``."""

    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")
    _vars_to_clip_dims = property(
        lambda own: VariableMap({k: list(v) for k, v in own.axes_by_variable.items()})
    )


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
            raise UnsupportedError(
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


class AdamOptimizer(original_rules.AdamOptimizer, default.AdamOptimizer):
    """Adam with ``strict=True``: accepts any dtype."""


class RMSPropOptimizer(original_rules.RMSPropOptimizer, default.RMSPropOptimizer):
    """RMSProp with ``strict=True``: accepts any dtype."""


class AdamWOptimizer(original_rules.AdamWOptimizer, default.AdamWOptimizer):
    """``tf.AdamWOptimizer`` with ``strict=True``."""


class FtrlOptimizer(original_rules.FtrlOptimizer, default.FtrlOptimizer):
    """``tf.FtrlOptimizer`` with ``strict=True``."""


class NovoGrad(original_rules.NovoGrad, default.NovoGrad):
    """``tf.NovoGrad`` with ``strict=True``."""


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
