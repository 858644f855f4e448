"""The numbers of a loss scale in an optimizer's first group, live or saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.messages.base import checkpoints as layouts
from lockstep.messages.scaling import loss_scale
from lockstep.pytorch.base.foreign_state import (
    COUNTS,
    IN_A_ROW,
    LAYOUT,
    OLD_COUNT,
    SCALES,
    SKIPPED,
    check_form,
    check_scale,
)
from lockstep.pytorch.base.trial_step import number_in
from lockstep.pytorch.scaling.loss_scale import SCALE, LossScale

__all__ = ["check_saved_scale", "move_numbers", "number_on", "with_numbers_first"]


def check_saved_scale(
    owner: str, saved: dict[str, Any], scale: LossScale, unchecked: bool
) -> None:
    """Raise for the state of another kind of loss scale, or for invalid numbers.

    Args:
        owner: the public name of the wrapper that loads the state.
        saved: the result of a ``state_dict``.
        scale: the scale that is to use these numbers.
        unchecked: whether to accept any saved scale.
    """
    check_scale(owner, saved, scale.keys)
    for group in saved["param_groups"][:1]:
        numbers = {key: number_in(value) for key, value in group.items()}
        layouts.check_number(owner, SCALE, numbers.get(SCALE, 1))
        if not unchecked:
            loss_scale.check_saved_scale(owner, numbers.get(SCALE))
        scale.check_saved(owner, numbers)
        for key in (*COUNTS, OLD_COUNT):
            layouts.check_count(owner, key, numbers.get(key, 0))


def with_numbers_first(owner: str, saved: Any) -> dict[str, Any]:
    """Return a saved state with the numbers of the scale in its first group.

    ``torch.distributed.checkpoint`` finds groups by their parameters. If the groups of
    the saved optimizer had another order, another group has the numbers now.

    Raises:
        ValueError: this is no state of an optimizer.
    """
    check_form(owner, saved)
    groups = [dict(group) for group in saved["param_groups"]]
    holders = [group for group in groups if any(map(is_number, group))]
    if not holders or holders[0] is groups[0]:
        return saved
    for key in filter(is_number, list(holders[0])):
        groups[0][key] = holders[0].pop(key)
    return {**saved, "param_groups": groups}


def is_number(key: Any) -> bool:
    """Whether this key of a group belongs to a loss scale."""
    return key in (*COUNTS, LAYOUT) or str(key).startswith(SCALES)


def move_numbers(scale: LossScale, group: dict[str, Any]) -> None:
    """Store a scale's numbers in another group, but keep those it has already."""
    read_old_count(group)
    for key in COUNTS:
        group.setdefault(key, scale.numbers.get(key, 0))
    group.setdefault(LAYOUT, layouts.LAYOUT)
    scale.live_in(group)


def read_old_count(group: dict[str, Any]) -> None:
    """Rename the count of a state of version 0.1, which had only one."""
    count = group.pop(OLD_COUNT, None)
    if count is not None:
        group.setdefault(IN_A_ROW, count)
        # The sum is a new tensor, because both are updated in place.
        group.setdefault(SKIPPED, count + 0)


def number_on(device: torch.device | None, number: Any) -> Any:
    """Return a number as a 0-d tensor on ``device``, or a plain number for None."""
    if device is None:
        return number.item() if isinstance(number, Tensor) else number
    if isinstance(number, Tensor):
        return number.to(device)
    dtype = torch.float32 if isinstance(number, float) else torch.int64
    return torch.full((), number, dtype=dtype, device=device)
