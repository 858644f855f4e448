"""A wrapper that steps on the gradients of a scaled loss and has the loss scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.errors import warn_user
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.messages import pytorch as torch_messages
from lockstep.messages.base import checkpoints as layouts
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.step import numbers as tags
from lockstep.pytorch.base.foreign_state import COUNTS, IN_A_ROW, LAYOUT, SKIPPED
from lockstep.pytorch.base.fused_step import require_fused
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.scaling.capturable import CapturableStep
from lockstep.pytorch.scaling.gradients.in_place import GradientsInPlace
from lockstep.pytorch.scaling.gradients.unscaled import Unscaled
from lockstep.pytorch.scaling.loss_scale import LossScale
from lockstep.pytorch.scaling.saved_scale import (
    check_saved_scale,
    move_numbers,
    number_on,
    with_numbers_first,
)
from lockstep.pytorch.scaling.scaled_step import ScaledStep
from lockstep.quirks import quirks_of

__all__ = ["SkippingWrapper"]


class SkippingWrapper(GradientsInPlace):
    """Take a step if its gradients are finite, and update the loss scale.

    The numbers of the scale are saved and loaded in ``param_groups[0]``. Unlike
    ``state``, this group is never cast to the dtype of a parameter, and distributed
    checkpoints contain it. They are Python numbers; with ``capturable`` they are 0-d
    tensors that are updated in place. Loaded numbers are converted.
    """

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
        if any(group.get("differentiable") for group in opt.param_groups):
            got = type(base_of(opt)).__name__
            raise torch_messages.DIFFERENTIABLE.error(owner=self.owner, got=got)
        self.strict, self._quirks = strict, quirks_of(strict)
        self.capturable = capturable
        super().__init__(opt)
        group = self.param_groups[0]
        if scale.counts_for_another(group):
            raise refusals.SHARED_SCALE.error(
                owner=self.owner, scale=type(scale).__name__
            )
        self.clip_norm = clip_norm
        self.at_floor = at_floor
        self.floor_patience = floor_patience
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
        """Whether ``get_slot`` and ``variables()`` return nothing, as under strict."""
        raise NotImplementedError

    def _refuse_scaled(self, opt: Optimizer) -> None:
        """Raise if this optimizer, or one inside it, scales its loss already."""
        while isinstance(opt, OptimizerWrapper):
            if isinstance(opt, SkippingWrapper):
                raise refusals.SCALED_TWICE.error(owner=self.owner, got=opt.owner)
            opt = opt.inner_optimizer

    @property
    def scale_object(self) -> LossScale:
        """The loss scale object; its numbers are in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.inner_optimizer.param_groups[0]
        is_elsewhere = scale.numbers is not group
        if is_elsewhere:
            move_numbers(scale, group)
        device = self._device() if self.capturable else None
        there = getattr(group[IN_A_ROW], "device", None)
        if is_elsewhere or there != device:
            keys = (*scale.keys, *COUNTS)
            group.update({key: number_on(device, group[key]) for key in keys})
        return scale

    @property
    def skipped_steps(self) -> int:
        """The number of skipped steps; with ``capturable`` this waits for the GPU."""
        return int(self.scale_object.numbers[SKIPPED])

    @property
    def skipped_in_a_row(self) -> int:
        """The number of steps skipped since the last applied step."""
        return int(self.scale_object.numbers[IN_A_ROW])

    def _device(self) -> torch.device:
        """Return the device of the first parameter of any group."""
        parameters = (p for group in self.param_groups for p in group["params"])
        return next((p.device for p in parameters), torch.device("cpu"))

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        return self.scale_object()

    def step_inner(self) -> None:
        """Check the gradients, take or skip the step, and update the scale."""
        groups, by_hand = self.inner_optimizer.param_groups, self._unscaled_by_hand
        trained = [p for group in groups for p in group["params"]]
        present = [p for p in trained if p.grad is not None]
        if by_hand is not None and not self._borrowed:
            self._refuse_mixed("step")
            self._refuse_later(present)
        quirks, held, self._pending = self._quirks, self._pending, None
        step: ScaledStep | None = None
        try:
            if self._has_nothing_to_scale(present):
                self.inner_optimizer.step()
                if not present:
                    self.note_no_gradients()
            elif quirks.multitask_subnormals and held is not None:
                step = self._step_on(present, None)
                step.replace(held)
                self._take(step, False, quirks.loss_scale_fixed)
            else:
                step = self._step_on(present, held)
                self._take(step, held is not None, quirks.loss_scale_fixed)
        except BaseException:
            lent = self._borrowed or step is None
            self._survive(step, held, None if lent else Unscaled(step))
            raise
        if by_hand is not None:
            self._forget_unscaled()

    def _has_nothing_to_scale(self, present: Sequence[Tensor]) -> bool:
        """Whether the wrapped optimizer takes this step as it is."""
        # Without autograd it may be a step that only makes the state of a checkpoint.
        without_autograd = not torch.is_grad_enabled()
        return not present or (without_autograd and self._only_wants_state(present))

    def _step_on(
        self,
        parameters: list[Tensor],
        held: Any,
        pieces: Sequence[Tensor] | None = None,
    ) -> ScaledStep:
        """Return a step that is not taken yet; see :class:`ScaledStep`."""
        if not self.capturable:
            return ScaledStep(parameters, held, pieces)
        require_fused(self.owner, self.inner_optimizer)
        shrinks = held is not None and self.scale_object.may_be_below_one()
        return CapturableStep(parameters, held, pieces, shrinks)

    def _take(
        self,
        step: ScaledStep,
        is_scaled: bool,
        by_elements: bool = False,
        needs_any: bool = False,
        take: Callable[[], Any] | None = None,
    ) -> None:
        """Check the gradients, take or skip the step, and update the scale.

        Args:
            step: the result of :meth:`_step_on`.
            is_scaled: whether its gradients are multiplied by a scale.
            by_elements: check the elements only, whatever ``unscale_`` found.
            needs_any: whether gradients without elements count as not finite.
            take: makes the wrapped optimizer step; None for its ``step``.
        """
        scale, parameters = self.scale_object, step.parameters
        device = parameters[0].device
        before: Any = scale.on_device(device) if self.capturable else scale.value()
        needs_look = is_scaled or self.clip_norm is not None or self.capturable
        is_known = not (needs_look or by_elements) and self._are_known(parameters)
        if by_elements:
            step.look_at_elements(self.clip_norm, needs_any)
        elif self._factor_of is not None:
            step.look_and_clip(self._factor_of)
        elif not is_known:
            step.look(self.clip_norm)
            if self._unscaled_by_hand is not None:
                step.add_look(self._unscaled_by_hand.look)
        step.applied = step.finite
        if not self.capturable:
            step.applied = step.finite or not self._skips
        if step.applied is not False:
            optimizer = self.inner_optimizer
            borrowed = self._borrowed and not is_known
            step.update(optimizer, borrowed, take or optimizer.step)
        # What the step replaced, such as a group, is looked up again.
        scale = self.scale_object
        scale.move(step.finite)
        after = scale.on_device(device) if self.capturable else scale.value()
        step.scales, step.pieces = (before, after), ()
        self._note(step)

    def _note(self, step: ScaledStep) -> None:
        """Store a step, count it if it was skipped, and warn or raise for a stall."""
        self._seen, self._took = step, step.applied
        groups = self.param_groups
        some_absent = sum([len(g["params"]) for g in groups]) > len(step.parameters)
        if some_absent or step.applied is not True:
            # Later the groups and what is frozen may be others.
            trained = [
                p
                for group in groups
                for p in group["params"]
                if p.requires_grad or p.grad is not None
            ]
            step.left_out = trained
            step.absent = [p for p in trained if p.grad is None]
        scale = self.chosen_scale
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
            # Wrappers inside took no step, so they must not report an earlier one.
            super().note_no_gradients()
            self._warn_of_stall(scale, numbers[IN_A_ROW])

    def note_no_gradients(self) -> None:
        """Remember a step without gradients: see the base class."""
        self._seen, self._took = NO_GRADIENTS, True
        super().note_no_gradients()

    def _warn_of_stall(self, scale: LossScale, skips: int) -> None:
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
            warn_user(str(error))

    def took_step(self) -> bool | Tensor:
        """Whether the last step counts for ``global_step``; read once a step."""
        took, self._took = self._took, True
        counts = super().took_step()
        return took if counts is True else took and counts

    @property
    def last_step(self) -> words.ScaledStepReport:
        """The report of the last step; before the first step, that of ``NO_STEP``.

        With ``capturable``, reading it waits for the device, and causes the warning of
        a stall at the floor.
        """
        if isinstance(self._seen, StepReport):
            return words.ScaledStepReport.of(self._seen, ())
        inner = getattr(self.inner_optimizer, "last_step", None)
        report = self._seen.report(named_parameters(self), inner)
        if self.capturable:
            self._warn_of_stall(self.scale_object, self.skipped_in_a_row)
        return report

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, and the scale: see the base class."""
        return {
            **super().step_numbers(),
            tags.LOSS_SCALE: self.scale_object.value(),
            tags.SKIPPED_STEPS: self.skipped_steps,
            tags.SKIPPED_IN_A_ROW: self.skipped_in_a_row,
        }

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with the scale in its first group."""
        scale = self.scale_object
        state_dict = super()._save_inner()
        # Tensors are copied, because later steps update them in place.
        for key in (*scale.keys, *COUNTS):
            if isinstance(scale.numbers[key], Tensor):
                state_dict["param_groups"][0][key] = scale.numbers[key].clone()
        return state_dict

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise if the state is of other wrappers or of another kind of loss scale."""
        unchecked = self._quirks.arguments_unchecked
        state_dict = with_numbers_first(self.owner, state_dict)
        check_saved_scale(self.owner, state_dict, self.chosen_scale, unchecked)
        super()._check_saved(state_dict)
        if self.capturable:
            # torch takes a missing switch for one that is off.
            groups = [{"fused": None, **g} for g in state_dict["param_groups"]]
            require_fused(self.owner, self.inner_optimizer, groups)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load the state, and the scale from whichever group has it."""
        super()._load_inner(with_numbers_first(self.owner, state_dict))

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of ``var`` with this TF or torch name, or None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist."""
        return [] if self._hides_slots else super().get_slot_names()

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a dynamic scale."""
        if self._hides_slots:
            return []
        scale = self.scale_object
        device = self._device() if self.capturable else torch.device("cpu")
        own = [number_on(device, scale.numbers[key]) for key in scale.keys]
        return [*super().variables(), *own]
