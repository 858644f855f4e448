"""Saved states that are not of this stack: found out before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.pytorch.gradients import named_parameters
from lockstep.pytorch.train_v1 import SLOT_NAMES
from lockstep.spec import checkpoints as words

__all__ = ["LAYOUT", "MASTER", "check_groups", "check_scale"]

LAYOUT = "lockstep_layout"
"""The key, in ``param_groups[0]``, of the layout that a state was saved in."""
MASTER = "master"
"""The key of a master in the state of an optimizer, and so in a checkpoint."""
SCALES = "loss_scale"
"""What the keys of a loss scale's numbers begin with."""

# Where a slot has the shape of its parameter; other state may have any.
LIKE_PARAMETERS = {*SLOT_NAMES, *SLOT_NAMES.values(), "accum", "linear", MASTER}


def check_groups(
    owner: str, saved: Mapping[str, Any], optimizer: Optimizer, has_masters: bool
) -> None:
    """Raise where groups, slots or masters are not those of ``optimizer``.

    Args:
        owner: the public name of the wrapper that loads.
        saved: what some ``state_dict`` returned.
        optimizer: the wrapper.
        has_masters: whether it trains any parameter through a master.
    """
    names = named_parameters(optimizer)
    ours = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if ours != theirs:
        raise words.other_groups(owner, ours, theirs)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, value in saved["state"].get(number, {}).items():
            if key == MASTER and not has_masters:
                raise words.foreign_masters(owner, names[parameter])
            if key in LIKE_PARAMETERS and isinstance(value, Tensor):
                if value.shape != parameter.shape:
                    shapes = list(parameter.shape), list(value.shape)
                    raise words.other_shape(owner, key, names[parameter], *shapes)


def check_scale(
    owner: str, saved: Mapping[str, Any], keys: Iterable[str], count: str
) -> None:
    """Raise for a later layout, and for the numbers of another kind of loss scale.

    A state without any, as a bare optimizer saves it, leaves the scale as it is.

    Args:
        owner: the public name of the wrapper that loads.
        saved: what some ``state_dict`` returned.
        keys: of the numbers of the scale that is to go on.
        count: the key of what every wrapper counts, whatever its scale.
    """
    first = saved["param_groups"][0] if saved["param_groups"] else {}
    layout = first.get(LAYOUT, words.LAYOUT)
    if not isinstance(layout, int) or layout > words.LAYOUT:
        raise words.other_layout(owner, layout)
    ours = set(keys)
    theirs = {key for key in first if key.startswith(SCALES)} - {count}
    # A scale with patience counts more than one without: either may go on as the other.
    if ours and theirs and not (ours <= theirs or theirs <= ours):
        raise words.other_scale(owner, ours, theirs)
