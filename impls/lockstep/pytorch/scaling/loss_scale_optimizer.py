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
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.multitask import MultitaskOptimizerWrapper
from lockstep.pytorch.scaling.capturable import require_capturable
from lockstep.pytorch.scaling.loss_scale import FixedLossScale, get
from lockstep.pytorch.scaling.scale_keeper import ScaleKeeper
from lockstep.quirks import quirks_of

__all__ = ["MixedPrecisionLossScaleOptimizer"]


@documented
class MixedPrecisionLossScaleOptimizer(ScaleKeeper):
    """...

    If every gradient is finite, ``opt`` takes its step; otherwise nothing changes:
    neither weights nor any state of ``opt`` nor ``global_step``. Then the scale moves,
    once. ``last_step`` says what happened and names the gradients that were not finite.

    There are two ways to scale. ``compute_gradients`` multiplies the loss by the scale
    and the gradients by 1 / scale, rounded to float32. Or ``scale_loss(loss)`` before
    ``backward``: then the gradients are divided once, by the next ``step``,
    ``apply_gradients`` or ``compute_gradients``. Gradients that were made without
    either are taken as unscaled. ``unscale_()`` between ``backward`` and ``step``
    divides at once, so that gradients can be looked at or clipped by hand.

    With ``clip_norm``: n the global norm of the unscaled gradients, each g becomes
    g min(1, clip_norm / n). A step divides by one number, scale / min(1, clip_norm / n)
    in float32: a fused ``opt`` in the pass of its update, for any other the gradients
    are multiplied in place. So after ``step`` each ``.grad`` holds what was applied,
    and after a skipped step what came.

    Args:
        opt: any optimizer of torch, a wrapper included.
        clip_norm: the largest global norm that is left as it is, > 0. A norm that
            float32 cannot hold is an overflow. None: no clipping.
        capturable: never wait for a GPU. The numbers of the scale become tensors beside
            the parameters, and the same bits come out. ``opt`` must be fused. What
            happened is found out when ``last_step`` is read, which waits; only then is
            a stall at the floor warned of.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range; with
            ``capturable``, ``opt`` is not fused or its momentum is dampened,
            ``strict``, or "raise" at the floor; ``opt`` scales its loss already, or
            trains masters; another optimizer has the same moving scale.
        TypeError: ``loss_scale`` is None.

    State: numbers in ``param_groups[0]``, so it is saved and loaded with ``opt``; with
    ``capturable`` 0-d tensors there. Either loads the other's.

    Cost: one read of the gradients and one host sync a step; a second read where
    something is not finite, a second of both while the scale is below 1. With
    ``capturable`` no sync.

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
        """Raise for float16, which the original could not scale, under strict."""
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
        """Strict: whether ``get_slot`` and ``variables()`` see nothing."""
        return self._quirks.loss_scale_slots
