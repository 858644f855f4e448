"""Saved states that are not of this stack: found out before anything changes.

A state does not name its optimizer; its groups have the hyper-parameters of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.messages.base import checkpoints as words
from lockstep.messages.base import refusals
from lockstep.messages.optimizers.parameters import OptimizerSpec
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of, comes_with_torch
from lockstep.pytorch.base.train_v1 import SLOT_NAMES

__all__ = [
    "COUNTS",
    "IN_A_ROW",
    "LAYOUT",
    "MASTER",
    "OLD_COUNT",
    "SHARED",
    "SKIPPED",
    "check_form",
    "check_groups",
    "check_mapping",
    "check_scale",
    "is_state",
    "require_dense",
    "require_shape",
]

LAYOUT = "lockstep_layout"
"""The key, in ``param_groups[0]``, of the layout that a state was saved in."""
MASTER = "master"
"""The key of a master in the state of an optimizer, and so in a checkpoint."""
IN_A_ROW, SKIPPED = COUNTS = "skipped_in_a_row", "skipped_steps"
"""The keys of what every wrapper that scales counts, whatever its scale."""
OLD_COUNT = "loss_scale_skips"
"""What the first of them was called in version 0.1."""
SCALES = "loss_scale"
"""What the keys of a loss scale's numbers begin with."""
SHARED = "agn/"
"""What the keys begin with of what a worker has beside its optimizer."""

# Where a slot has the shape of its parameter; other state may have any.
LIKE_PARAMETERS = {
    *SLOT_NAMES,
    *SLOT_NAMES.values(),
    "accum",
    "acc_delta",
    "ax",
    "exp_inf",
    "linear",
    "max_exp_avg_sq",
    MASTER,
}
ADDED = {
    "params",
    "param_names",
    LAYOUT,
    *COUNTS,
    "initial_lr",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
    "swa_lr",
}
"""What wrappers and torch's schedulers add to groups; so are the prefixes below."""
PREFIXES = (SCALES, SHARED)


def check_mapping(owner: str, saved: Any) -> None:
    """Raise for what cannot be a state, before a hook that mends states sees it."""
    if not isinstance(saved, Mapping):
        raise words.not_a_state(owner, saved)


def check_form(owner: str, saved: Any) -> None:
    """Raise unless this has the form of what ``state_dict`` returns."""
    if not is_state(saved):
        raise words.not_a_state(owner, saved)


def is_state(saved: Any) -> bool:
    """Say whether this has the form of what ``state_dict`` of an optimizer returns."""
    if not isinstance(saved, Mapping) or not {"state", "param_groups"} <= set(saved):
        return False
    state, groups = saved["state"], saved["param_groups"]
    return (
        isinstance(state, Mapping)
        and all(isinstance(entry, Mapping) for entry in state.values())
        and isinstance(groups, list | tuple)
        and all(
            isinstance(group, Mapping) and isinstance(group.get("params"), list | tuple)
            for group in groups
        )
    )


def check_groups(
    owner: str, saved: Mapping[str, Any], optimizer: Optimizer, has_masters: bool
) -> None:
    """Raise where groups, rule, slots or masters are not those of ``optimizer``.

    Args:
        owner: the public name of what loads.
        saved: what some ``state_dict`` returned; anything, if it was no such thing.
        optimizer: what loads.
        has_masters: whether it trains any parameter through a master.
    """
    check_form(owner, saved)
    names = named_parameters(optimizer)
    ours = [len(group["params"]) for group in optimizer.param_groups]
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    if ours != theirs:
        raise refusals.OTHER_GROUPS.error(
            owner=owner, expected=list(ours), got=list(theirs)
        )
    check_numbering(owner, saved["param_groups"])
    for own, group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        check_rule(owner, group, own, base_of(optimizer))
        for number, parameter in zip(group["params"], own["params"], strict=True):
            entry, name = saved["state"].get(number, {}), names[parameter]
            if MASTER in entry and not has_masters:
                raise refusals.FOREIGN_MASTERS.error(owner=owner, name=name)
            check_slots(owner, entry, group, base_of(optimizer), name)
            check_shapes(owner, entry, parameter, base_of(optimizer), name)


def check_numbering(owner: str, groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless parameters have a number each, and a name if there are any."""
    numbers = [number for group in groups for number in group["params"]]
    if not all(isinstance(number, int | str) for number in numbers) or (
        len(set(numbers)) < len(numbers)
    ):
        raise refusals.REPEATED_NUMBERS.error(owner=owner)
    for group in groups:
        names, count = group.get("param_names", ()), len(group["params"])
        listed = isinstance(names, list | tuple)
        fits = listed and all(isinstance(n, str) for n in names)
        if "param_names" in group and not (fits and len(names) == count):
            raise words.unnamed(owner, count, names)


def check_rule(
    owner: str, saved: Mapping[str, Any], group: Mapping[str, Any], base: Optimizer
) -> None:
    """Raise for a group with the hyper-parameters of another rule.

    What an optimizer of others puts into its groups in training is not known here: of
    such a one only what is missing is told.
    """
    spec = spec_of(base)
    needed = {k for k, value in base.defaults.items() if spec or not is_switch(value)}
    needed |= set(spec.shared or {}) if spec else set()
    missing = sorted(k for k in needed if k in group and k not in saved)
    is_known = spec or comes_with_torch(base)
    foreign = [k for k in saved if is_known and k not in group and not is_added(k)]
    foreign = [k for k in foreign if not is_switch(saved[k])]
    if missing or foreign:
        raise words.other_rule(owner, type(base).__name__, missing, foreign)


def is_switch(value: Any) -> bool:
    """Say whether a later torch may have added this: such options are off at first.

    A name that somebody gave to a group is no hyper-parameter either.
    """
    return value is None or isinstance(value, bool | str)


def is_added(name: str) -> bool:
    """Say whether a wrapper or a scheduler may have put this into a group."""
    return name in ADDED or str(name).startswith(PREFIXES)


def check_slots(
    owner: str,
    entry: Mapping[str, Any],
    group: Mapping[str, Any],
    base: Optimizer,
    name: str,
) -> None:
    """Raise for other slots than those of a rule of TF1; torch's are not known here.

    A parameter may have none: they are made when it is first updated.
    """
    spec = spec_of(base)
    keys = {k for k in entry if k != MASTER and not str(k).startswith(SHARED)}
    if spec is not None and keys:
        slots = [slot.name for slot in spec.active_slots(group)]
        if not set(slots) <= keys <= {slot.name for slot in spec.slots}:
            raise words.other_slots(owner, name, slots, map(str, keys))


def check_shapes(
    owner: str,
    entry: Mapping[str, Any],
    parameter: Tensor,
    base: Optimizer,
    name: str,
) -> None:
    """Raise for a slot of another shape, where it is known which one it has."""
    spec, like = spec_of(base), list(parameter.shape)
    # torch's SGD keeps None for a momentum that it has not got.
    shapes = {
        key: like
        for key, value in entry.items()
        if key == MASTER or (key in LIKE_PARAMETERS and isinstance(value, Tensor))
    }
    for slot in spec.slots if spec else ():
        shapes[slot.name] = [] if slot.scalar else like
    for key in shapes.keys() & entry.keys():
        require_shape(owner, key, name, shapes[key], entry[key])


def require_shape(
    owner: str, key: str, name: str, shape: Sequence[int], value: Any
) -> None:
    """Raise unless a saved value is a tensor of this shape."""
    shown = list(value.shape) if isinstance(value, Tensor) else f"{value!r:.40}"
    if shown != list(shape):
        raise refusals.SAVED_SHAPE.error(
            owner=owner, slot=key, expected=list(shape), name=name, got=shown
        )


def require_dense(owner: str, key: str, name: str, value: Tensor) -> None:
    """Raise unless a saved tensor holds real floating-point numbers, all of them."""
    if not value.is_floating_point():
        raise refusals.SAVED_DTYPE.error(
            owner=owner, slot=key, name=name, got=value.dtype
        )
    if value.layout != torch.strided:
        raise refusals.SAVED_DTYPE.error(
            owner=owner, slot=key, name=name, got=value.layout
        )


def spec_of(base: Any) -> OptimizerSpec | None:
    """Return what is known of a rule of TF1; None for an optimizer of others."""
    spec = getattr(base, "spec", None)
    return spec if isinstance(spec, OptimizerSpec) else None


def check_scale(owner: str, saved: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raise for a later layout, and for the numbers of another kind of loss scale.

    A state without any, as a bare optimizer saves it, leaves the scale as it is.

    Args:
        owner: the public name of the wrapper that loads.
        saved: what some ``state_dict`` returned.
        keys: of the numbers of the scale that is to go on.
    """
    first = saved["param_groups"][0] if saved["param_groups"] else {}
    layout = first.get(LAYOUT, words.LAYOUT)
    if not isinstance(layout, int) or layout > words.LAYOUT:
        raise refusals.OTHER_LAYOUT.error(owner=owner, newest=words.LAYOUT, got=layout)
    ours = set(keys)
    theirs = {key for key in first if key.startswith(SCALES)} - {OLD_COUNT}
    # A scale with patience counts more than one without: either may go on as the other.
    if ours and theirs and not (ours <= theirs or theirs <= ours):
        raise refusals.OTHER_SCALE.error(
            owner=owner, expected=", ".join(sorted(ours)), got=", ".join(sorted(theirs))
        )
