"""The loss-scaling wrapper, for PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.interface import GATE_OP
from lockstep.pytorch.core.unscale import unscaled
from lockstep.pytorch.fused import require_fused
from lockstep.pytorch.gradients import Pairs, named_parameters
from lockstep.pytorch.loss_scale import LossScale, get
from lockstep.pytorch.multitask import MultitaskOptimizerWrapper
from lockstep.pytorch.scale_keeper import SKIPS, ScaleKeeper
from lockstep.pytorch.scaled_step import (
    ScaledStep,
    step_on_device,
    step_on_host,
    step_strictly,
)
from lockstep.pytorch.train_v1 import evaluate
from lockstep.spec import loss_scaling as words
from lockstep.spec import torch_host

__all__ = ["MixedPrecisionLossScaleOptimizer"]


class MixedPrecisionLossScaleOptimizer(ScaleKeeper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    If every gradient is finite, ``opt`` takes its step; otherwise nothing changes:
    neither weights nor any state of ``opt`` nor ``global_step``. Then the scale moves,
    once. ``last_step`` says what happened and names the gradients that were not finite.

    There are two ways to scale. ``compute_gradients`` multiplies the loss by the scale
    and the gradients by 1 / scale, rounded to float32. Or ``scale_loss(loss)`` before
    ``backward``: then the gradients are divided once, by the next ``step``,
    ``apply_gradients`` or ``compute_gradients``. Gradients that were made without
    either are taken as unscaled.

    With ``clip_norm``: n the global norm of the unscaled gradients, each g becomes
    g min(1, clip_norm / n). A step divides by one number, scale / min(1, clip_norm / n)
    in float32: a fused ``opt`` in the pass of its update, for any other the gradients
    are multiplied in place. So after ``step`` each ``.grad`` holds what was applied,
    and after a skipped step what came.

    Args:
        opt: any optimizer of torch, a wrapper included.
        loss_scale: a number, "dynamic" or a loss scale.
        at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: optimizer steps.
        strict: as in TensorFlow 1.15: under a fixed scale gradients that are not
            finite are applied, float16 is refused, ``get_slot`` and ``variables()``
            see nothing, subnormals are flushed, ``clip_norm`` is refused.
        clip_norm: the largest global norm that is left as it is, > 0. A norm that
            float32 cannot hold is an overflow. None: no clipping.
        capturable: never wait for a GPU. The numbers of the scale become tensors beside
            the parameters, and the same bits come out. ``opt`` must be fused. What
            happened is found out when ``last_step`` is read, which waits; only then is
            a stall at the floor warned of.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range; with
            ``capturable``, ``opt`` is not fused or its momentum is dampened,
            ``strict``, or "raise" at the floor.
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

    _pending: float | Tensor | None = None
    _took: bool | Tensor = True
    _borrowed = False
    _seen: ScaledStep | None = None

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
        refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, "torch.optim.Optimizer")
        scale = get(loss_scale, strict)
        if scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, strict)
        if capturable:
            require_capturable(opt, {"strict": strict, "at_floor='raise'": at_floor})
        super().__init__(opt, scale, clip_norm, capturable)
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once, by whatever comes first of
        ``step``, ``apply_gradients`` and ``compute_gradients``.
        """
        scale = self.scale_object
        device = self.param_groups[0]["params"][0].device
        self._pending = scale.on_device(device) if self.capturable else scale.value()
        return (loss.float() if loss.itemsize < 4 else loss) * self._pending

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Tensor],
        var_list: Iterable[Tensor] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | float | None = None,
    ) -> Pairs:
        """Differentiate loss x scale and unscale: see the base class.

        Raises:
            TypeError: under ``strict`` also a float16 loss or parameter.
        """
        if callable(loss):
            self._pending = None
            loss = evaluate(loss)
        variables = None if var_list is None else list(var_list)
        try:
            if self.strict:
                self._refuse_half(loss, variables)
            if isinstance(loss, Tensor) and self._pending is None:
                loss = self.scale_loss(loss)
            options = gate_gradients, aggregation_method, colocate_gradients_with_ops
            pairs = super().compute_gradients(loss, variables, *options, grad_loss)
            found = [gradient for gradient, _ in pairs]
            gradients = unscaled(found, self._pending, self.strict)
        finally:
            self._pending = None
        return [(g, p) for g, (_, p) in zip(gradients, pairs, strict=True)]

    def _refuse_half(self, loss: Any, variables: Iterable[Any] | None) -> None:
        """Raise for float16, which the original could not scale."""
        names = named_parameters(self)
        if isinstance(loss, Tensor) and loss.dtype == torch.float16:
            raise words.half_precision("the loss")
        for variable in names if variables is None else variables:
            if isinstance(variable, Tensor) and variable.dtype == torch.float16:
                raise words.half_precision(names.get(variable, "a parameter"))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class.

        The gradients keep their values; to unscale or clip them costs a copy.
        ``global_step`` stands still at a skipped step; with ``capturable`` it must be
        on the device of the parameters.
        """
        self._borrowed = True
        try:
            super().apply_gradients(grads_and_vars, global_step, name)
        finally:
            self._borrowed = False

    def step_inner(self) -> None:
        """Look at the gradients, take the step or skip it, move the scale."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        seen = [p for p in parameters if p.grad is not None]
        pending, self._pending = self._pending, None
        if not seen or self._only_wants_state(seen):
            self.inner_optimizer.step()
            return
        if self.capturable:
            step = step_on_device(self, seen, pending, self._borrowed)
        elif self.strict:
            step = step_strictly(self, seen, pending)
        else:
            step = step_on_host(self, seen, pending, self._borrowed)
        self._seen, self._took = step, step.applied
        self._count_skips(step.applied)

    def _count_skips(self, applied: bool | Tensor) -> None:
        """Count the steps skipped in a row; warn, or raise, of a stall."""
        scale = self.scale_object
        skips = scale.numbers[SKIPS]
        if isinstance(applied, Tensor):
            skips.copy_((skips + 1) * ~applied)
        else:
            skips = scale.numbers[SKIPS] = 0 if applied else skips + 1
            self._tell_of_stall(scale, skips)

    def _tell_of_stall(self, scale: LossScale, skips: int) -> None:
        """Warn, or raise, after ``skips`` skipped steps in a row at the floor."""
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or not scale.at_floor():
            return
        names = self._seen.nonfinite(named_parameters(self))
        error = words.stalled(skips, scale.value(), names)
        if self.at_floor == "raise":
            raise error
        # Where somebody has to ask first, the very step may have passed.
        if skips == self.floor_patience or self.capturable:
            warnings.warn(str(error), stacklevel=6)

    def took_step(self) -> bool | Tensor:
        """Say whether the step just taken counts; asked once a step."""
        took, self._took = self._took, True
        counts = super().took_step()
        return took if counts is True else took and counts

    @property
    def last_step(self) -> words.ScaledStepReport | None:
        """What the last step with gradients did; None before the first one.

        With ``capturable`` it is asked of the device, which waits for it, and a stall
        at the floor is warned of now.
        """
        if self._seen is None:
            return None
        inner = getattr(self.inner_optimizer, "last_step", None)
        report = self._seen.report(named_parameters(self), inner)
        if self.capturable:
            self._tell_of_stall(self.scale_object, int(self.param_groups[0][SKIPS]))
        return report

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of ``var`` with this TF or torch name, or None.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist; strict: none."""
        return [] if self.strict else super().get_slot_names()

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a dynamic scale."""
        return [] if self.strict else super().variables()


def require_capturable(opt: Optimizer, others: dict[str, Any]) -> None:
    """Raise unless no step has to be looked at on the host."""
    require_fused(words.WRAPPER, opt)
    for option, value in others.items():
        if value in (True, "raise"):
            raise torch_host.asks_each_step(words.WRAPPER, option)
