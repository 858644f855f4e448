"""A wrapper that scales the loss and keeps the scale's numbers in its first group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.interface import GATE_OP, NO_GRADIENTS, NO_STEP, StepReport
from lockstep.messages import pytorch as torch_host
from lockstep.messages.base import checkpoints as layouts
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import check_saved_scale
from lockstep.messages.step import numbers as tags
from lockstep.pytorch.base.foreign_state import (
    COUNTS,
    IN_A_ROW,
    LAYOUT,
    OLD_COUNT,
    SKIPPED,
    check_form,
    check_scale,
)
from lockstep.pytorch.base.gradients import Pairs, listed, named_parameters
from lockstep.pytorch.base.train_v1 import evaluate
from lockstep.pytorch.base.trial_step import number_in
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.scaling.fused import require_fused
from lockstep.pytorch.scaling.loss_scale import SCALE, LossScale
from lockstep.pytorch.scaling.scaled_report import ScaledStep
from lockstep.pytorch.scaling.unscale import unscaled
from lockstep.pytorch.scaling.unscaling import UnscalingWrapper
from lockstep.quirks import quirks_of

__all__ = ["ScaleKeeper"]


class ScaleKeeper(UnscalingWrapper):
    """What a loss scale counts is saved and loaded with the wrapped optimizer.

    It is in ``param_groups[0]``, since that, unlike ``state``, is never cast to the
    dtype of a parameter, and is in a distributed checkpoint too. ``capturable``: as 0-d
    tensors beside the parameters, moved in place; otherwise as plain numbers. Numbers
    that were loaded become what they are here.

    """

    _looks_by_itself = False
    """Whether what ``unscale_`` has found does not count: the step looks anew."""

    _borrowed = False
    _warned = False
    _took: bool | Tensor = True
    _seen: ScaledStep | StepReport = NO_STEP

    def __init__(
        self,
        opt: Optimizer,
        scale: LossScale,
        *,
        clip_norm: float | None,
        at_floor: str,
        floor_patience: int,
        capturable: bool,
        strict: bool,
    ) -> None:
        self._refuse_scaled(opt)
        super().__init__(opt)
        group = self.param_groups[0]
        if scale.counts_for_another(group):
            raise refusals.SHARED_SCALE.error(
                owner=self.owner, scale=type(scale).__name__
            )
        self.clip_norm = clip_norm
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.capturable = capturable
        self.strict, self._quirks = strict, quirks_of(strict)
        self.chosen_scale = scale
        group.update({key: scale.numbers[key] for key in scale.keys})
        group |= {IN_A_ROW: 0, SKIPPED: 0, LAYOUT: layouts.LAYOUT}
        scale.live_in(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._quirks = quirks_of(vars(self).get("strict", False))

    @property
    def _skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        raise NotImplementedError

    @property
    def _hides_slots(self) -> bool:
        """Whether the slots and variables of the stack are not shown."""
        raise NotImplementedError

    def _refuse_scaled(self, opt: Optimizer) -> None:
        """Raise for an optimizer that scales its loss already, at any depth."""
        while isinstance(opt, OptimizerWrapper):
            if isinstance(opt, ScaleKeeper):
                raise refusals.SCALED_TWICE.error(owner=self.owner, got=opt.owner)
            opt = opt.inner_optimizer

    @property
    def scale_object(self) -> LossScale:
        """The loss scale itself; its numbers live in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.param_groups[0]
        if scale.numbers is not group:
            read_old_count(group)
            for key in COUNTS:
                group.setdefault(key, scale.numbers.get(key, 0))
            group.setdefault(LAYOUT, layouts.LAYOUT)
            scale.live_in(group)
            self._convert((*scale.keys, *COUNTS), group)
        skips, device = group[IN_A_ROW], self._device() if self.capturable else None
        if (skips.device if isinstance(skips, Tensor) else None) != device:
            self._convert((*scale.keys, *COUNTS), group)
        return scale

    @property
    def skipped_steps(self) -> int:
        """How many steps were skipped; with ``capturable`` this waits for the GPU."""
        return int(self.scale_object.numbers[SKIPPED])

    @property
    def skipped_in_a_row(self) -> int:
        """How many were skipped since the last one that was not."""
        return int(self.scale_object.numbers[IN_A_ROW])

    def _convert(self, keys: tuple[str, ...], group: dict[str, Any]) -> None:
        """Turn the numbers into plain ones, or into tensors on the device."""
        device = self._device() if self.capturable else None
        group.update({key: number_on(device, group[key]) for key in keys})

    def _device(self) -> torch.device:
        """Return the device of the first parameter of any group."""
        parameters = (p for group in self.param_groups for p in group["params"])
        return next((p.device for p in parameters), torch.device("cpu"))

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        return self.scale_object()

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return loss x scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once, by whatever comes first of
        ``step``, ``apply_gradients`` and ``compute_gradients``. A loss that cannot be
        differentiated, as under ``no_grad``, makes no gradients to divide.

        Raises:
            TypeError: the loss is no tensor.
            RuntimeError: ``unscale_`` was called and there are gradients: those of
                this loss would be added to unscaled ones.
        """
        if not isinstance(loss, Tensor):
            raise torch_host.NOT_DIFFERENTIABLE.error(
                owner=self.owner, got=type(loss).__name__
            )
        product, scale = self._scaled(loss)
        if product.requires_grad:
            self._refuse_mixture()
            self._pending = scale
        return product

    def _scaled(self, loss: Tensor) -> tuple[Tensor, Any]:
        """Return loss x scale, and the scale."""
        found = self.scale_object
        on_device = self.capturable
        scale = found.on_device(self._device()) if on_device else found.value()
        return (loss.float() if loss.itemsize < 4 else loss) * scale, scale

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
            TypeError: under ``strict`` also what the original cannot scale.
        """
        if callable(loss):
            self._pending = None
            loss = evaluate(loss)
        variables = None if var_list is None else listed(var_list, self.get_name())
        try:
            self._check(loss, variables)
            if isinstance(loss, Tensor) and self._pending is None:
                loss, self._pending = self._scaled(loss)
            options = gate_gradients, aggregation_method, colocate_gradients_with_ops
            pairs = super().compute_gradients(loss, variables, *options, grad_loss)
            return self._unscaled(pairs)
        finally:
            self._pending = None

    def _check(self, loss: Any, variables: Iterable[Any] | None) -> None:
        """Raise for a loss, or a parameter, that cannot be scaled."""

    def _unscaled(self, pairs: Pairs) -> Pairs:
        """Return the pairs with gradients times 1 / scale, rounded to float32."""
        found = [gradient for gradient, _ in pairs]
        flush = self._quirks.multitask_subnormals
        gradients = unscaled(found, self._pending, flush)
        return [(g, p) for g, (_, p) in zip(gradients, pairs, strict=True)]

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

    def _note(self, step: ScaledStep) -> None:
        """Remember a step; count those that are skipped; warn, or raise, of a stall."""
        self._seen, self._took = step, step.applied
        scale = self.scale_object
        numbers = scale.numbers
        if isinstance(step.applied, Tensor):
            skipped = ~step.applied
            numbers[IN_A_ROW].add_(1).mul_(skipped)
            numbers[SKIPPED].add_(skipped)
        elif step.applied:
            numbers[IN_A_ROW], self._warned = 0, False
        else:
            numbers[IN_A_ROW] += 1
            numbers[SKIPPED] += 1
            self._tell_of_stall(scale, numbers[IN_A_ROW])

    def note_no_gradients(self) -> None:
        """Remember a step without gradients: see the base class."""
        self._seen, self._took = NO_GRADIENTS, True
        super().note_no_gradients()

    def _tell_of_stall(self, scale: LossScale, skips: int) -> None:
        """Warn once, or raise, after ``skips`` skipped steps in a row at the floor."""
        self._warned &= skips >= self.floor_patience
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or isinstance(self._seen, StepReport) or not scale.at_floor():
            return
        names = self._seen.nonfinite(named_parameters(self))
        error = words.stalled(skips, scale.value(), names, self.owner)
        if self.at_floor == "raise":
            raise error
        if not self._warned:
            self._warned = True
            warnings.warn(str(error), stacklevel=6)

    def took_step(self) -> bool | Tensor:
        """Say whether the step just taken counts; asked once a step."""
        took, self._took = self._took, True
        counts = super().took_step()
        return took if counts is True else took and counts

    @property
    def last_step(self) -> words.ScaledStepReport:
        """What the last step did; before the first one, that there was none.

        With ``capturable`` it is asked of the device, which waits for it, and a stall
        at the floor is warned of now.
        """
        if isinstance(self._seen, StepReport):
            return words.ScaledStepReport.of(self._seen, ())
        inner = getattr(self.inner_optimizer, "last_step", None)
        report = self._seen.report(named_parameters(self), inner)
        if self.capturable:
            self._tell_of_stall(self.scale_object, self.skipped_in_a_row)
        return report

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, and the scale: see the base class."""
        return {
            **super().step_numbers(),
            tags.LOSS_SCALE: self.scale_object.value(),
            tags.SKIPPED_STEPS: self.skipped_steps,
            tags.SKIPPED_IN_A_ROW: self.skipped_in_a_row,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, the scale in its first group."""
        scale = self.scale_object
        state_dict = super().state_dict()
        # What is moved in place must not move in what was saved.
        for key in (*scale.keys, *COUNTS):
            if isinstance(scale.numbers[key], Tensor):
                state_dict["param_groups"][0][key] = scale.numbers[key].clone()
        return state_dict

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise for another stack's state, another kind of loss scale's too."""
        check_form(self.owner, state_dict)
        check_scale(self.owner, state_dict, self.chosen_scale.keys)
        for group in state_dict["param_groups"][:1]:
            numbers = {key: number_in(value) for key, value in group.items()}
            layouts.check_number(self.owner, SCALE, numbers.get(SCALE, 1))
            if not self._quirks.arguments_unchecked:
                check_saved_scale(self.owner, numbers.get(SCALE))
            self.chosen_scale.check_saved(self.owner, numbers)
            for key in (*COUNTS, OLD_COUNT):
                layouts.check_count(self.owner, key, numbers.get(key, 0))
        super()._check_saved(state_dict)
        if self.capturable:
            # torch takes a missing switch for one that is off.
            groups = [{"fused": None, **g} for g in state_dict["param_groups"]]
            require_fused(self.owner, self.inner_optimizer, groups)

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of ``var`` with this TF or torch name, or None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist."""
        return [] if self._hides_slots else super().get_slot_names()

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a moving scale."""
        if self._hides_slots:
            return []
        scale = self.scale_object
        own = [scale.numbers[key] for key in scale.keys]
        return [*super().variables(), *map(torch.as_tensor, own)]


def read_old_count(group: dict[str, Any]) -> None:
    """Rename the count of a state that was saved when there was but one."""
    count = group.pop(OLD_COUNT, None)
    if count is not None:
        group.setdefault(IN_A_ROW, count)
        # A tensor of its own: both are moved in place.
        group.setdefault(SKIPPED, count + 0)


def number_on(device: torch.device | None, number: Any) -> Any:
    """Return a number as a 0-d tensor on ``device``; None: as a plain number."""
    if device is None:
        return number.item() if isinstance(number, Tensor) else number
    if isinstance(number, Tensor):
        return number.to(device)
    dtype = torch.float32 if isinstance(number, float) else torch.int64
    return torch.full((), number, dtype=dtype, device=device)
