"""The loss-scaling wrapper, for PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.interface import GATE_OP, StepReport
from lockstep.pytorch.core.finite import finite_flags, times
from lockstep.pytorch.core.zero_test import all_zero_flags
from lockstep.pytorch.gradients import Pairs, named_parameters
from lockstep.pytorch.loss_scale import (
    NUMBERS,
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    get,
)
from lockstep.pytorch.multitask import MultitaskOptimizerWrapper
from lockstep.pytorch.train_v1 import evaluate
from lockstep.pytorch.wrapper import OptimizerWrapper
from lockstep.spec import loss_scaling as words

__all__ = ["MixedPrecisionLossScaleOptimizer"]

SKIPS = "loss_scale_skips"


class MixedPrecisionLossScaleOptimizer(OptimizerWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    If every gradient is finite, ``opt`` takes its step; otherwise nothing changes:
    neither weights nor any state of ``opt`` nor ``global_step``. Then the scale moves,
    once. ``last_step`` says what happened and names the gradients that were not finite.

    There are two ways to scale. ``compute_gradients`` multiplies the loss by the scale
    and the gradients by 1 / scale, rounded to float32. Or ``scale_loss(loss)`` before
    ``backward``: then the gradients are divided once, by the next ``step``,
    ``apply_gradients`` or ``compute_gradients``. Gradients that were made without
    either are taken as unscaled. Clip them after the division: between
    ``compute_gradients`` and ``apply_gradients``.

    Args:
        opt: any optimizer of torch, a wrapper included.
        loss_scale: a number, "dynamic" or a loss scale.
        at_floor: "warn" or "raise" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: optimizer steps.
        strict: as in TensorFlow 1.15: under a fixed scale gradients that are not
            finite are applied, float16 is refused, ``get_slot`` and ``variables()``
            see nothing, subnormals are flushed.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range.
        TypeError: ``loss_scale`` is None.

    State: plain numbers in ``param_groups[0]``, so it is saved and loaded with ``opt``.

    Cost: the gradients are read once, in one host sync a step.

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

    _pending: float | None = None
    _skipped = False
    _seen: tuple[Any, ...] | None = None

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: Any,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
    ) -> None:
        refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, "torch.optim.Optimizer")
        scale = get(loss_scale, strict)
        if scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        super().__init__(opt)
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.chosen_scale = scale
        group = self.param_groups[0]
        group.update({k: scale.numbers[k] for k in NUMBERS if k in scale.numbers})
        group[SKIPS] = 0
        scale.numbers = group

    @property
    def scale_object(self) -> LossScale:
        """The loss scale itself; its numbers live in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.param_groups[0]
        if scale.numbers is not group:
            for key in (*NUMBERS, SKIPS):
                if key in scale.numbers:
                    group.setdefault(key, scale.numbers[key])
            scale.numbers = group
        return scale

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        return self.scale_object()

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, the scale in its first group."""
        assert self.scale_object is not None
        return super().state_dict()

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once, by whatever comes first of
        ``step``, ``apply_gradients`` and ``compute_gradients``.
        """
        self._pending = self.scale_object.value()
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
            gradients = self._unscaled([gradient for gradient, _ in pairs])
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

    @torch.no_grad()
    def _unscaled(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Return gradients times the float32 reciprocal of the scale in them."""
        with np.errstate(all="ignore"):
            factor = float(np.float32(1) / np.float32(self._pending))
        present = [gradient for gradient in gradients if gradient is not None]
        products = iter(times(present, factor, self.strict))
        return [None if gradient is None else next(products) for gradient in gradients]

    def step_inner(self) -> None:
        """Unscale, look at the gradients, take the step or skip it, move the scale."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        with_gradient = [p for p in parameters if p.grad is not None]
        scale = self.scale_object
        if self._pending is not None:
            unscaled = self._unscaled([p.grad for p in with_gradient])
            for parameter, gradient in zip(with_gradient, unscaled, strict=True):
                parameter.grad = gradient
            self._pending = None
        if not with_gradient or self._only_wants_state(with_gradient):
            self.inner_optimizer.step()
            return
        finite = finite_flags([p.grad for p in with_gradient])
        before = scale.value()
        names = named_parameters(self)
        found = [names[p] for p in compress(with_gradient, [not f for f in finite])]
        applied = not found or (self.strict and isinstance(scale, FixedLossScale))
        if applied:
            self.inner_optimizer.step()
            # What the step replaced, such as a group, is looked up again.
            scale = self.scale_object
        scale.move(not found)
        self._skipped = not applied
        told = [names[p] for p in parameters if p.requires_grad or p.grad is not None]
        self._seen = told, found, (before, scale.value()), applied
        self._count_skips(scale, applied, found)

    def _count_skips(self, scale: LossScale, applied: bool, found: list[str]) -> None:
        """Warn, or raise, if the scale is at its floor and nothing has helped."""
        skips = scale.numbers[SKIPS] = 0 if applied else scale.numbers[SKIPS] + 1
        if skips < self.floor_patience or not scale.at_floor():
            return
        error = words.stalled(skips, scale.value(), found)
        if self.at_floor == "raise":
            raise error
        if skips == self.floor_patience:
            warnings.warn(str(error), stacklevel=4)

    def _only_wants_state(self, with_gradient: list[Tensor]) -> bool:
        """Recognise the step that ``torch.distributed.checkpoint`` takes by itself.

        It makes the state that is then loaded into: zero gradients at rate 0 under
        ``no_grad``. It must not count as a good step.
        """
        if self.state or torch.is_grad_enabled():
            return False
        idle = all(group.get("lr") == 0 for group in self.param_groups)
        return idle and all(all_zero_flags([p.grad for p in with_gradient]))

    def took_step(self) -> bool:
        """Say whether the step just taken counts; asked once a step."""
        skipped, self._skipped = self._skipped, False
        return False if skipped else super().took_step()

    @property
    def last_step(self) -> StepReport | None:
        """What the last step with gradients did; None before the first one."""
        if self._seen is None:
            return None
        told, found, scales, applied = self._seen
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        return words.report(inner, told, found, scales, applied)

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of ``var`` with this TF or torch name, or None.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist; strict: none."""
        return [] if self.strict else super().get_slot_names()

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then a dynamic scale's two numbers."""
        if self.strict:
            return []
        scale = self.scale_object
        dynamic = isinstance(scale, DynamicLossScale)
        own = [scale(), torch.tensor(scale.good_steps)] if dynamic else []
        return [*super().variables(), *own]
