"""Checks of a saved state before it is loaded, so that a wrong one changes nothing.

A state does not contain the name of its optimizer, but its groups contain the
hyper-parameters of one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.messages.base import checkpoints as words
from lockstep.messages.base import refusals
from lockstep.optimizers import RULES, OptimizerSpec
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of, comes_with_torch
from lockstep.pytorch.gradients import SLOT_NAMES

__all__ = [
    "COUNTS",
    "IN_A_ROW",
    "LAYOUT",
    "MASTER",
    "OLD_COUNT",
    "SCALES",
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
"""The keys of the counts that every wrapper with a loss scale has."""
OLD_COUNT = "loss_scale_skips"
"""The key of ``IN_A_ROW`` in states of version 0.1."""
SCALES = "loss_scale"
"""The prefix of the keys of a loss scale's numbers."""
SHARED = "agn/"
"""The prefix of the keys that a worker adds to its optimizer's state."""

# Slots that have the shape of their parameter. Other state may have any shape.
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


def check_mapping(owner: str, saved: Any) -> None:
    """Raise unless this is a mapping. Called before hooks that may repair the state."""
    if not isinstance(saved, Mapping):
        raise words.not_a_state(owner, saved)


def check_form(owner: str, saved: Any) -> None:
    """Raise unless this has the form of an optimizer's ``state_dict()``."""
    if not is_state(saved):
        raise words.not_a_state(owner, saved)


def is_state(saved: Any) -> bool:
    """Whether this has the form of an optimizer's ``state_dict()``."""
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
    """Raise unless groups, rule, slots and masters are those of ``optimizer``.

    Args:
        owner: the public name of the object that loads the state.
        saved: the saved state. It may be any object.
        optimizer: the optimizer that loads the state.
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
    """Raise unless each parameter has its own number, and a name if there are any."""
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

    Schedulers and users may add keys to groups during training. Optimizers from other
    libraries may do so too, so for these only missing keys are reported.
    """
    spec = spec_of(base)
    needed = {k for k, value in base.defaults.items() if spec or not is_switch(value)}
    needed |= set(spec.shared or {}) if spec else set()
    missing = sorted(k for k in needed if k in group and k not in saved)
    known = hyper_parameters() if spec or comes_with_torch(base) else set()
    foreign = [k for k in saved if k in known and k not in group]
    foreign = [k for k in foreign if not is_switch(saved[k])]
    if missing or foreign:
        raise words.other_rule(owner, type(base).__name__, missing, foreign)


def is_switch(value: Any) -> bool:
    """Whether this value may be ignored: a switch that a later torch added, or a name.

    Later versions of torch may add options. They are None or False by default.
    """
    return value is None or isinstance(value, bool | str)


@functools.cache
def hyper_parameters() -> set[str]:
    """Return the names that hyper-parameters of torch's optimizers and TF1's have."""
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    kinds = [kind for kind in kinds if issubclass(kind, Optimizer)]
    names = {name for kind in kinds for name in inspect.signature(kind).parameters}
    for spec in RULES.values():
        names |= {parameter.name for parameter in spec.parameters}
        names |= set(spec.shared or {})
    return names - {"params"}


def check_slots(
    owner: str,
    entry: Mapping[str, Any],
    group: Mapping[str, Any],
    base: Optimizer,
    name: str,
) -> None:
    """Raise if a TF1 rule has other slots; slots of torch's rules are not checked here.

    A parameter may have no slots, because they are created at its first update.
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
    """Raise if a slot has another shape, for slots whose shape is known."""
    spec, like = spec_of(base), list(parameter.shape)
    # torch's SGD without momentum saves None, so only tensors are checked.
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
    """Raise unless a saved tensor is dense and has a real floating-point dtype."""
    if not value.is_floating_point():
        raise refusals.SAVED_DTYPE.error(
            owner=owner, slot=key, name=name, got=value.dtype
        )
    if value.layout != torch.strided:
        raise refusals.SAVED_DTYPE.error(
            owner=owner, slot=key, name=name, got=value.layout
        )


def spec_of(base: Any) -> OptimizerSpec | None:
    """Return the specification of a TF1 rule; None for any other optimizer."""
    spec = getattr(base, "spec", None)
    return spec if isinstance(spec, OptimizerSpec) else None


def check_scale(owner: str, saved: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raise for a layout of a later version, or numbers of another kind of loss scale.

    A state without such numbers, as a bare optimizer saves it, is accepted. The scale
    then stays as it is.

    Args:
        owner: the public name of the wrapper that loads the state.
        saved: the saved state.
        keys: the keys of the numbers of the present scale.
    """
    first = saved["param_groups"][0] if saved["param_groups"] else {}
    layout = first.get(LAYOUT, words.LAYOUT)
    if not isinstance(layout, int) or layout > words.LAYOUT:
        raise refusals.OTHER_LAYOUT.error(owner=owner, newest=words.LAYOUT, got=layout)
    ours = set(keys)
    theirs = {key for key in first if key.startswith(SCALES)} - {OLD_COUNT}
    # ``hysteresis`` and ``tolerance`` add counts. A state with or without them loads.
    if ours and theirs and not (ours <= theirs or theirs <= ours):
        raise refusals.OTHER_SCALE.error(
            owner=owner, expected=", ".join(sorted(ours)), got=", ".join(sorted(theirs))
        )
