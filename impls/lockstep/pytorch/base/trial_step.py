"""Whether an optimizer could go on from a saved state: tried out on small tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Optimizer

from lockstep.messages.base import checkpoints as words
from lockstep.messages.optimizers.parameters import OptimizerSpec
from lockstep.pytorch.base.foreign_state import (
    MASTER,
    SHARED,
    check_groups,
    require_dense,
    require_shape,
    spec_of,
)
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import comes_with_torch

__all__ = ["check_bare", "check_base", "number_in"]

Group = Mapping[str, Any]
Slots = Mapping[str, Any]
STEP = "step"
"""Of torch's optimizers: older ones saved it as a plain number."""


def check_bare(owner: str, saved: Mapping[str, Any], optimizer: Optimizer) -> None:
    """Raise for a state that an optimizer without a wrapper could not go on from."""
    check_groups(owner, saved, optimizer, has_masters=False)
    check_base(owner, saved, optimizer)


def check_base(owner: str, saved: Mapping[str, Any], base: Optimizer) -> None:
    """Raise for hyper-parameters and slots with which the next step would fail.

    The groups are those of ``base`` already. Of optimizers that are neither torch's
    nor ours nothing is known.
    """
    spec, names = spec_of(base), named_parameters(base)
    if not spec and not comes_with_torch(base):
        return
    for own, group in zip(base.param_groups, saved["param_groups"], strict=True):
        if spec:
            check_hyper_parameters(owner, spec, base, group)
            for number, parameter in zip(group["params"], own["params"], strict=True):
                entry = saved["state"].get(number)
                check_rule_slots(owner, names[parameter], entry, spec, group)
            continue
        slots = slots_made(owner, base, own["params"], group)
        for number, parameter in zip(group["params"], own["params"], strict=True):
            entry = own_slots(saved["state"].get(number, {}))
            expected = slots[kind_of(parameter)]
            needs_slots = makes_slots_at_once(base) and parameter.requires_grad
            if entry or needs_slots:
                check_entry(owner, names[parameter], parameter, entry, expected, base)


def makes_slots_at_once(base: Optimizer) -> bool:
    """Whether a step relies on what the constructor made; others make it then."""
    return isinstance(base, Adagrad)


def own_slots(entry: Slots) -> dict[str, Any]:
    """Return what an optimizer saved, without what wrappers have put beside it."""
    return {
        key: value
        for key, value in entry.items()
        if key != MASTER and not str(key).startswith(SHARED)
    }


def check_hyper_parameters(
    owner: str, spec: OptimizerSpec, base: Any, group: Group
) -> None:
    """Raise for numbers that the constructor of a TF1 rule would refuse."""
    bound = {
        name: value.item() if isinstance(value, Tensor) and not value.dim() else value
        for name, value in base.arguments(group).items()
    }
    spec.bind((), bound)
    for power in spec.shared or {}:
        words.check_power(owner, power, group[power])


def check_rule_slots(
    owner: str, name: str, entry: Slots | None, spec: OptimizerSpec, group: Group
) -> None:
    """Raise for an entry without its slots, and for what are no real numbers there."""
    active = [slot.name for slot in spec.active_slots(group)]
    if entry == {} and active:
        raise words.other_slots(owner, name, active, ["none"])
    for key in active:
        value = (entry or {}).get(key)
        if isinstance(value, Tensor):
            require_dense(owner, key, name, value)


def kind_of(parameter: Tensor) -> tuple[Any, ...]:
    """Return what decides which slots a parameter has."""
    return parameter.dim(), parameter.dtype, parameter.device


def stand_in(parameter: Tensor) -> Tensor:
    """Return a small parameter with a gradient: [2, 3, ...] for as many dimensions."""
    options = {"dtype": parameter.dtype, "device": parameter.device}
    small = torch.nn.Parameter(
        torch.ones(tuple(range(2, 2 + parameter.dim())), **options)
    )
    small.grad = torch.ones_like(small)
    return small


def slots_made(
    owner: str, base: Optimizer, parameters: list[Tensor], group: Group
) -> dict[tuple[Any, ...], tuple[Tensor, Slots]]:
    """Return stand-ins of parameters with their slots after a step, by their kind.

    Raises:
        ValueError: the constructor, or the step, fails with what was saved.
    """
    small = {kind: stand_in(p) for p in parameters for kind in [kind_of(p)]}
    options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
    try:
        optimizer = stepped(base, list(small.values()), options)
    except Exception as error:
        # A step that needs sparse gradients, say, fails with any numbers.
        current = {k: v for k, v in base.param_groups[0].items() if k in options}
        if not fails(base, list(small.values()), current):
            raise words.unusable_numbers(owner, type(base).__name__, error) from error
        return {kind: (tensor, {}) for kind, tensor in small.items()}
    return {kind: (p, optimizer.state.get(p, {})) for kind, p in small.items()}


def stepped(base: Optimizer, small: list[Tensor], options: Group) -> Optimizer:
    """Return an optimizer like ``base`` that has taken two steps, for small tensors."""
    known = inspect.signature(type(base)).parameters
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        arguments = {key: value for key, value in options.items() if key in known}
        optimizer = type(base)(small, **arguments)
        group = {**options, "params": small}
        optimizer.__setstate__({"state": optimizer.state, "param_groups": [group]})
        # The second one uses what the first one has made.
        optimizer.step()
        optimizer.step()
    return optimizer


def fails(base: Optimizer, small: list[Tensor], options: Group) -> bool:
    """Whether such a step fails with the hyper-parameters that are there now."""
    try:
        stepped(base, small, options)
    except Exception:
        return True
    return False


def check_entry(
    owner: str,
    name: str,
    parameter: Tensor,
    entry: Slots,
    expected: tuple[Tensor, Slots],
    base: Optimizer,
) -> None:
    """Raise for slots that are missing, or no such tensors as a step makes."""
    small, slots = expected
    if not slots.keys() <= entry.keys():
        names = map(str, entry) if entry else ["none"]
        raise words.other_slots(owner, name, sorted(slots), names)
    for key, slot in slots.items():
        value = entry[key]
        if key == STEP:
            words.check_steps(owner, name, number_in(value))
        elif isinstance(slot, Tensor) and not (value is None and isinstance(base, SGD)):
            shape = shape_like(slot, small, parameter)
            require_shape(owner, key, name, shape, value)
            if slot.is_floating_point():
                require_dense(owner, key, name, value)


def number_in(value: Any) -> Any:
    """Return the number in a tensor of one element, anything else as it is."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def shape_like(made: Tensor, small: Tensor, parameter: Tensor) -> list[int]:
    """Return the shape that a saved slot must have, given that of the stand-in's.

    A dimension is the parameter's or its own, as of Adafactor's means over rows.
    """
    if made.dim() != small.dim():
        return list(made.shape)
    dimensions = zip(made.shape, small.shape, parameter.shape, strict=True)
    return [real if own == small_one else own for own, small_one, real in dimensions]
