"""The loss-scaling wrapper, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.nouns import PYTORCH
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.pytorch.base.fused_step import require_capturable
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.multitask import MultitaskOptimizerWrapper
from lockstep.pytorch.scaling.loss_scale import FixedLossScale, get
from lockstep.pytorch.scaling.skipping import SkippingWrapper
from lockstep.quirks import quirks_of

__all__ = ["MixedPrecisionLossScaleOptimizer"]


@documented
class MixedPrecisionLossScaleOptimizer(SkippingWrapper):
    """...

    If every gradient is finite, ``opt`` takes its step. Otherwise the weights, the
    state of ``opt`` and ``global_step`` do not change. Then the loss scale is updated
    once. ``last_step`` reports the step and names the gradients that were not finite.

    There are two ways to scale. ``compute_gradients`` multiplies the loss by the scale
    and the gradients by 1 / scale, rounded to float32. Or call ``scale_loss(loss)``
    before ``backward``. The next ``step``, ``apply_gradients`` or ``compute_gradients``
    then divides the gradients once. All other gradients are taken as unscaled. Call
    ``unscale_()`` between ``backward`` and ``step`` to divide at once, for example if
    you read or clip the gradients yourself.

    Clipping and unscaling are one division by scale / min(1, clip_norm / n) in float32.
    A fused ``opt`` without step hooks divides while it updates. For any other ``opt``,
    the gradients are multiplied in place, before its hooks see them. So after ``step``,
    ``.grad`` contains the applied gradient. After a skipped step, it is unchanged.

    Args:
        opt: any torch optimizer, a wrapper included.
        capturable: never wait for a GPU. The numbers of the scale become tensors on the
            device of the parameters, and the results are equal bit for bit, except that
            a GPU may round SGD with momentum differently. ``opt`` must be fused. Its
            hooks see the gradients while they are still scaled. Reading ``last_step``
            waits for the GPU, and only then a stall at the floor causes a warning.

    Raises:
        ValueError: ``opt`` is no optimizer, is differentiable, scales its loss already,
            or trains masters; an argument is out of range; another optimizer has the
            same dynamic scale.
            With ``capturable``, also if ``opt`` is not fused or its momentum is
            dampened, and for ``strict`` or "raise" at the floor.
        TypeError: ``loss_scale`` is None.

    State: numbers in ``param_groups[0]``, so they are saved and loaded with ``opt``.
    With ``capturable`` they are 0-d tensors. Each form can load the other.

    Cost: one read of the gradients and one host sync a step. A gradient that is not
    finite costs a second read, and a scale below 1 a second read and a second sync.
    With ``capturable`` there is no sync.

    Origin: TensorFlow 1.15, ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> sgd = torch.optim.SGD([("weight", weight)], lr=0.5)
        >>> optimizer = MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
        >>> optimizer.scale_loss(weight.sum()).backward()
        >>> optimizer.step()
        >>> weight.tolist()
        [0.5, 0.5]
        >>> weight.grad = torch.tensor([1.0, float("nan")])
        >>> optimizer.step()
        >>> optimizer.last_step.reason
        'skipped, not finite: weight; loss scale 32768 -> 16384'
    """

    owner = words.WRAPPER

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: Any,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
        *,
        clip_norm: float | None = None,
        capturable: bool = False,
    ) -> None:
        quirks = quirks_of(strict)
        is_multitask = isinstance(opt, MultitaskOptimizerWrapper)
        refused = quirks.multitask_nesting and is_multitask
        if refused or not isinstance(opt, Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, PYTORCH)
        scale = get(loss_scale, strict)
        if scale is None:
            raise refusals.MISSING_LOSS_SCALE.error()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, quirks.arguments_unchecked)
        if capturable:
            options = {"strict": strict, "at_floor='raise'": at_floor == "raise"}
            require_capturable(words.WRAPPER, opt, options)
        super().__init__(
            opt,
            scale,
            clip_norm=clip_norm,
            at_floor=at_floor,
            floor_patience=floor_patience,
            capturable=capturable,
            strict=strict,
        )

    def _check(self, loss: Any, variables: Iterable[Any] | None) -> None:
        """Raise under strict for float16, which the original cannot scale."""
        if not self._quirks.loss_scale_float16:
            return
        names = named_parameters(self)
        if isinstance(loss, Tensor) and loss.dtype == torch.float16:
            raise refusals.HALF_PRECISION.error(what="the loss")
        for variable in names if variables is None else variables:
            if isinstance(variable, Tensor) and variable.dtype == torch.float16:
                raise refusals.HALF_PRECISION.error(
                    what=names.get(variable, "a parameter")
                )

    @property
    def _skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        is_fixed = isinstance(self.chosen_scale, FixedLossScale)
        return not (self._quirks.loss_scale_fixed and is_fixed)

    @property
    def _hides_slots(self) -> bool:
        """Whether ``get_slot`` and ``variables()`` return nothing, as under strict."""
        return self._quirks.loss_scale_slots
