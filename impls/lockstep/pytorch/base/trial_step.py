"""Check a saved state by trying it: an optimizer with it steps on small tensors."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Optimizer

from lockstep.messages.base import checkpoints as words
from lockstep.optimizers import OptimizerSpec
from lockstep.pytorch.base.foreign_state import (
    MASTER,
    SHARED,
    check_groups,
    require_dense,
    require_shape,
    spec_of,
)
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of, comes_with_torch

__all__ = ["check_bare", "check_base", "number_in"]

Group = Mapping[str, Any]
Slots = Mapping[str, Any]
STEP = "step"
"""The step count of torch's optimizers. Older versions saved it as a plain number."""


def check_bare(owner: str, saved: Mapping[str, Any], optimizer: Optimizer) -> None:
    """Raise for a state from which an optimizer without a wrapper cannot continue."""
    check_groups(owner, saved, optimizer, has_masters=False)
    check_base(owner, saved, base_of(optimizer))


def check_base(owner: str, saved: Mapping[str, Any], base: Optimizer) -> None:
    """Raise for hyper-parameters and slots with which the next step would fail.

    The groups must already match those of ``base``. Optimizers that are neither torch's
    nor Lockstep's are not checked.
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
            if not is_trainable(parameter):
                continue
            entry = own_slots(saved["state"].get(number, {}))
            expected = slots[kind_of(parameter)]
            needs_slots = makes_slots_at_once(base) and parameter.requires_grad
            if entry or needs_slots:
                check_entry(owner, names[parameter], parameter, entry, expected, base)


def makes_slots_at_once(base: Optimizer) -> bool:
    """Whether only the constructor creates the slots, and a step fails without them."""
    return isinstance(base, Adagrad) and not adagrad_makes_slots_late()


@functools.cache
def adagrad_makes_slots_late() -> bool:
    """Whether a step of torch's Adagrad creates missing slots.

    Recent versions do it for groups that are added after the construction.
    """
    parameter = torch.nn.Parameter(torch.zeros(1, device="cpu"))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = Adagrad([parameter])
    optimizer.state.clear()
    try:
        step_without_hooks(optimizer)
    except KeyError:
        return False
    return True


def own_slots(entry: Slots) -> dict[str, Any]:
    """Return an optimizer's own slots, without the entries that wrappers added."""
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
    """Raise if slots are missing, or if one is not a dense real tensor."""
    active = [slot.name for slot in spec.active_slots(group)]
    if entry == {} and active:
        raise words.other_slots(owner, name, active, ["none"])
    for key in active:
        value = (entry or {}).get(key)
        if isinstance(value, Tensor):
            require_dense(owner, key, name, value)


def kind_of(parameter: Tensor) -> tuple[Any, ...]:
    """Return the key that decides which slots a parameter has."""
    return parameter.dim(), parameter.dtype, parameter.device


def is_trainable(parameter: Tensor) -> bool:
    """Whether a parameter can have a gradient. Integers, as quantized ones, cannot."""
    return parameter.is_floating_point() or parameter.is_complex()


def stand_in(parameter: Tensor) -> Tensor:
    """Return a small parameter with a gradient: [2, 3, ...] with as many dimensions."""
    options = {"dtype": parameter.dtype, "device": parameter.device}
    small = torch.nn.Parameter(
        torch.ones(tuple(range(2, 2 + parameter.dim())), **options)
    )
    small.grad = torch.ones_like(small)
    return small


def slots_made(
    owner: str, base: Optimizer, parameters: list[Tensor], group: Group
) -> dict[tuple[Any, ...], tuple[Tensor, Slots]]:
    """Return kind -> a small parameter of this kind, and its slots after two steps.

    Raises:
        ValueError: the constructor or the steps fail with the saved hyper-parameters.
    """
    trainable = filter(is_trainable, parameters)
    small = {kind: stand_in(p) for p in trainable for kind in [kind_of(p)]}
    options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
    try:
        optimizer = stepped(base, list(small.values()), options)
    except Exception as error:
        # Some steps fail with any numbers, for example if they need sparse gradients.
        current = {k: v for k, v in base.param_groups[0].items() if k in options}
        if not fails(base, list(small.values()), current):
            raise words.unusable_numbers(owner, type(base).__name__, error) from error
        return {kind: (tensor, {}) for kind, tensor in small.items()}
    return {kind: (p, optimizer.state.get(p, {})) for kind, p in small.items()}


def stepped(base: Optimizer, small: list[Tensor], options: Group) -> Optimizer:
    """Return an optimizer like ``base`` that has taken two steps on small tensors."""
    known = inspect.signature(type(base)).parameters
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        arguments = {key: value for key, value in options.items() if key in known}
        optimizer = type(base)(small, **arguments)
        group = {**options, "params": small}
        optimizer.__setstate__({"state": optimizer.state, "param_groups": [group]})
        # The second step uses the state that the first one creates.
        step_without_hooks(optimizer)
        step_without_hooks(optimizer)
    return optimizer


def step_without_hooks(optimizer: Optimizer) -> None:
    """Take a step that no hook for all optimizers sees, and no profiler."""
    # torch's constructor replaces the method of the class by one that calls the hooks.
    step = type(optimizer).step
    getattr(step, "__wrapped__", step)(optimizer)


def fails(base: Optimizer, small: list[Tensor], options: Group) -> bool:
    """Whether two such steps fail with these hyper-parameters."""
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
    """Raise if slots are missing, or unlike the tensors that a step creates."""
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
    """Return the number in a tensor of one element, and anything else unchanged."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def shape_like(made: Tensor, small: Tensor, parameter: Tensor) -> list[int]:
    """Return the shape that a saved slot must have.

    ``made`` is the slot of the small parameter. A dimension that equals the small
    parameter's becomes that of ``parameter``. Any other dimension stays, such as the 1
    in Adafactor's means over rows.
    """
    if made.dim() != small.dim():
        return list(made.shape)
    dimensions = zip(made.shape, small.shape, parameter.shape, strict=True)
    return [real if own == small_one else own for own, small_one, real in dimensions]
