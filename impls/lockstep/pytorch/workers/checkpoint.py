"""The states of a worker and the center, stored in an optimizer's state.

``torch.distributed.checkpoint`` saves only ``state`` and ``param_groups``, and loads
their entries by name. So our entries are stored there, with names that begin with
``agn/``: tensors in the state of their parameter, numbers in the groups. In
checkpoints, a shared weight has the same kind of state as its parameter from the
beginning. ``agn/pushed`` is False while this state is only a placeholder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.messages import ray as ray_refusals
from lockstep.messages.workers import agn as words
from lockstep.messages.workers import refusals
from lockstep.pytorch.base.foreign_state import SHARED, require_dense, require_shape
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.trial_step import check_bare
from lockstep.pytorch.base.wrapper import restore_numbers
from lockstep.pytorch.workers.center import AGNCustomGetter, Center, powers
from lockstep.quirks import quirks_of

__all__ = [
    "ADDS_CHANGES",
    "LOCAL_STEP",
    "OWN",
    "PERIOD",
    "add_numbers",
    "check_own",
    "join_state",
    "load_center",
    "shown",
    "split_state",
]

OWN = SHARED
ACCUMULATOR, WEIGHT, SLOT = f"{OWN}accumulator", f"{OWN}center", f"{OWN}center/"
PUSHED = f"{OWN}pushed"
LOCAL_STEP, PERIOD = f"{OWN}local_step", f"{OWN}communication_period"
ADDS_CHANGES = f"{OWN}delta"
"""Whether the commit is "delta": flat checkpoints store bools, but no names."""

StateDict = dict[str, Any]


def shown(state: Mapping[Tensor, StateDict], getter: AGNCustomGetter) -> Any:
    """Return the state of an optimizer together with our entries."""
    entries = defaultdict(dict, {p: dict(slots) for p, slots in state.items()})
    for parameter in getter._global_map:
        entries[parameter] |= own_state(parameter, getter, state.get(parameter, {}))
    return entries


def own_state(parameter: Tensor, getter: AGNCustomGetter, like: StateDict) -> StateDict:
    """Return our entries of a parameter, to be added to its optimizer's state.

    ``like``: the optimizer's state of the parameter.
    """
    own = {ACCUMULATOR: getter._grad_map[parameter]}
    if getter.center.saves_itself:
        return own
    shared = getter._global_map[parameter]
    slots = getter.center.optimizer.state.get(shared, {})
    places = {key: place_for(value) for key, value in like.items()}
    return own | {
        WEIGHT: shared.detach(),
        PUSHED: torch.tensor(bool(slots), device="cpu"),
        **{f"{SLOT}{key}": value for key, value in {**places, **slots}.items()},
    }


def place_for(value: Any) -> Any:
    """Return zeros like a tensor; return anything else unchanged."""
    return torch.zeros_like(value) if isinstance(value, Tensor) else value


def add_numbers(
    groups: Sequence[StateDict], center: Center, numbers: Mapping[str, Any]
) -> None:
    """Add a worker's numbers and the center's powers of beta to groups."""
    names = () if center.saves_itself else powers(center.optimizer)
    for group, shared in zip(groups, center.optimizer.param_groups, strict=False):
        group |= {f"{SLOT}{name}": shared[name] for name in names}
        group |= numbers


def join_state(bare: StateDict, optimizer: Optimizer) -> StateDict:
    """Return the state dict of a worker's optimizer together with our entries."""
    getter = optimizer.custom_getter
    numbers = [k for group in bare["param_groups"] for k in group["params"]]
    state = {k: dict(slots) for k, slots in bare["state"].items()}
    for number, parameter in zip(numbers, named_parameters(optimizer), strict=True):
        if parameter in getter._global_map:
            own = own_state(parameter, getter, state.get(number, {}))
            state[number] = state.get(number, {}) | own
    groups = [dict(group) for group in bare["param_groups"]]
    counts = optimizer.local_step, optimizer.communication_period
    add_numbers(groups, getter.center, optimizer.numbers(*counts))
    return {**bare, "state": state, "param_groups": groups}


def split_state(saved: StateDict) -> tuple[StateDict, StateDict]:
    """Return the wrapped optimizer's state dict, and our entries in the same form."""
    parts = {k: parted(entry) for k, entry in saved["state"].items()}
    bare = {k: b for k, (b, own) in parts.items() if b or not own}
    own = {k: own for k, (_, own) in parts.items() if own}
    return {**saved, "state": bare}, {**saved, "state": own}


def parted(entry: Mapping[str, Any]) -> tuple[StateDict, StateDict]:
    """Return the items that are not ours, and ours."""
    ours = {key: value for key, value in entry.items() if str(key).startswith(OWN)}
    return {key: value for key, value in entry.items() if key not in ours}, ours


def check_own(bare: StateDict, own: StateDict, optimizer: Any) -> None:
    """Raise for numbers, shared weights or accumulators that cannot be loaded.

    Args:
        bare: the state of the wrapped optimizer.
        own: our entries, from :func:`split_state`.
        optimizer: the :class:`AGNOptimizer`, with the same groups as ``bare``.
    """
    first = bare["param_groups"][0]
    counts = [first.get(LOCAL_STEP, 0), first.get(PERIOD, 1)]
    words.check_counts(*counts, quirks_of(optimizer.strict).agn_workers)
    if not own["state"]:
        return
    # A state without this entry has mean gradients.
    adds = first.get(ADDS_CHANGES, False)
    if not isinstance(adds, bool):
        raise refusals.OTHER_COMMIT.error(
            expected=optimizer.commit, got=f"{adds!r:.40}"
        )
    saved = words.DELTA if adds else words.GRADIENT
    if saved != optimizer.commit:
        raise refusals.OTHER_COMMIT.error(expected=optimizer.commit, got=saved)
    center = optimizer.custom_getter.center
    keys = [ACCUMULATOR] if center.saves_itself else [ACCUMULATOR, WEIGHT, PUSHED]
    numbers = [k for group in own["param_groups"] for k in group["params"]]
    names = named_parameters(optimizer)
    for number, (parameter, name) in zip(numbers, names.items(), strict=True):
        if number in own["state"]:
            check_entry(own["state"][number], keys, name, parameter.shape)
    if not center.saves_itself:
        saved_state = state_of(center.optimizer, own)
        check_bare(words.WRAPPER, saved_state, center.optimizer)


def check_entry(
    entry: StateDict, keys: Sequence[str], name: str, shape: torch.Size
) -> None:
    """Raise unless a parameter's saved entries have these keys and its shape."""
    if WEIGHT in entry and WEIGHT not in keys:
        raise ray_refusals.CENTER_IN_STATE.error()
    for key in keys:
        value = entry.get(key)
        require_shape(words.WRAPPER, key, name, () if key == PUSHED else shape, value)
        if key != PUSHED:
            require_dense(words.WRAPPER, key, name, value)


def state_of(center: Optimizer, own: StateDict) -> StateDict:
    """Return the saved state of the center's optimizer."""
    pushed = {k: entry for k, entry in own["state"].items() if entry[PUSHED]}
    groups = [
        {k: v for k, v in group.items() if k != "params"}
        | {**slots_in(saved), "params": saved["params"]}
        for group, saved in zip(center.param_groups, own["param_groups"], strict=True)
    ]
    state = {number: slots_in(entry) for number, entry in pushed.items()}
    return {"state": state, "param_groups": groups}


@torch.no_grad()
def load_center(own: StateDict, optimizer: Optimizer) -> None:
    """Load accumulators, shared weights and their state, if they were saved."""
    if not own["state"]:
        return
    getter = optimizer.custom_getter
    numbers = [k for group in own["param_groups"] for k in group["params"]]
    for number, parameter in zip(numbers, named_parameters(optimizer), strict=True):
        if parameter in getter._global_map and number in own["state"]:
            entry = own["state"][number]
            getter._grad_map[parameter].copy_(entry[ACCUMULATOR])
            if not getter.center.saves_itself:
                getter._global_map[parameter].copy_(entry[WEIGHT])
    if getter.center.saves_itself:
        return
    center = getter.center.optimizer
    loaded = state_of(center, own)
    center.load_state_dict(loaded)
    restore_numbers(center, loaded)


def slots_in(entry: Mapping[str, Any]) -> StateDict:
    """Return the state of a shared weight, or the numbers of a group at the center."""
    return {
        key.removeprefix(SLOT): value
        for key, value in entry.items()
        if str(key).startswith(SLOT)
    }
