"""Masters in place of weights: in an optimizer's groups, its state and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from lockstep.pytorch.core.masters import FlatMasters, saturate_cast
from lockstep.pytorch.gradients import dtype_name
from lockstep.pytorch.rule_optimizer import RuleOptimizer
from lockstep.pytorch.train_v1 import SLOT_NAMES
from lockstep.pytorch.variable_clipping import VariableClippingOptimizer
from lockstep.spec import mixed_precision as words

__all__ = [
    "KEY",
    "adopt_changes",
    "as_module",
    "base_of",
    "check_saved",
    "flat_masters",
    "make_masters",
    "take_over",
    "without_masters",
]

KEY = "master"
"""The key of a master in the state of an optimizer, and so in a checkpoint."""

Masters = dict[Tensor, Tensor]


def make_masters(weights: Iterable[Tensor], strict: bool) -> Masters:
    """Return a float32 parameter for each weight that is in half precision."""
    return {
        weight: Parameter(weight.detach().float(), weight.requires_grad)
        for weight in weights
        if words.has_master(dtype_name(weight), strict)
    }


def flat_masters(masters: Masters) -> list[FlatMasters]:
    """Lay masters side by side, those of one device and dtype together."""
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for weight in masters:
        alike.setdefault((weight.device, weight.dtype), []).append(weight)
    return [
        FlatMasters(weights, [masters[weight] for weight in weights])
        for weights in alike.values()
    ]


@torch.no_grad()
def adopt_changes(weights: Iterable[Tensor], masters: Masters) -> None:
    """Take over what others wrote into weights, such as ``model.load_state_dict``.

    Where a weight still is its rounded master, the master stays: it knows more.
    """
    for weight in weights:
        master = masters[weight]
        same = saturate_cast(master, weight.dtype).eq(weight) | weight.isnan()
        master.copy_(torch.where(same, master, weight.float()))


def base_of(optimizer: Optimizer) -> Optimizer:
    """Return the innermost optimizer: the one that owns the state."""
    while "inner_optimizer" in vars(optimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def take_over(optimizer: Optimizer, masters: Masters) -> None:
    """Let an optimizer train masters in place of weights, its state in float32."""
    base = base_of(optimizer)
    for group in base.param_groups:
        for weight in group["params"]:
            if weight in masters and weight in base.state:
                slots = base.state.pop(weight)
                base.state[masters[weight]] = widened(
                    base, group, weight, masters[weight], slots
                )
        group["params"] = [masters.get(p, p) for p in group["params"]]
    while optimizer is not base:
        if isinstance(optimizer, VariableClippingOptimizer):
            listed = optimizer.vars_to_clip_dims.items()
            clipped = {masters.get(p, p): axes for p, axes in listed}
            optimizer.vars_to_clip_dims = clipped
        optimizer = optimizer.inner_optimizer


def widened(
    base: Optimizer,
    group: dict[str, Any],
    weight: Tensor,
    master: Tensor,
    slots: dict[str, Any],
) -> dict[str, Any]:
    """Return the state of a weight in float32; one that is new is made anew.

    So an initial value such as 0.1 is that of float32, not the rounded one.
    """
    if isinstance(base, RuleOptimizer):
        fresh = base.initial_slots(group, weight)
        if all(torch.equal(slots[name], value) for name, value in fresh.items()):
            return dict(base.initial_slots(group, master))
    if isinstance(base, torch.optim.Adagrad) and not slots["step"]:
        start = group["initial_accumulator_value"]
        return {**slots, "sum": torch.full_like(master, start, requires_grad=False)}
    return {
        name: value.float() if is_like(value, weight) else value
        for name, value in slots.items()
    }


def is_like(value: Any, weight: Tensor) -> bool:
    """Say whether a piece of state has the shape and dtype of its weight."""
    return isinstance(value, Tensor) and (value.shape, value.dtype) == (
        weight.shape,
        weight.dtype,
    )


def check_saved(
    saved: Mapping[str, Any],
    groups: list[dict[str, Any]],
    masters: Masters,
    names: Mapping[Tensor, str],
) -> dict[Tensor, Tensor]:
    """Return master -> its saved value; raise where one is missing or does not fit.

    Nothing is returned of a state whose groups do not fit: torch refuses it itself.
    """
    numbers = [group["params"] for group in saved["param_groups"]]
    ours = [group["params"] for group in groups]
    if list(map(len, numbers)) != list(map(len, ours)):
        return {}
    own, values = set(masters.values()), {}
    for listed, parameters in zip(numbers, ours, strict=True):
        for number, parameter in zip(listed, parameters, strict=True):
            found = saved["state"].get(number, {})
            for key, value in found.items():
                like = key == KEY or key in SLOT_NAMES
                if like and isinstance(value, Tensor):
                    if value.shape != parameter.shape:
                        name, shape = names[parameter], tuple(parameter.shape)
                        raise words.other_shape(name, shape, tuple(value.shape))
            if parameter in own:
                if KEY not in found:
                    raise words.without_masters(f"none for {names[parameter]!r}")
                values[parameter] = found[KEY]
    return values


def without_masters(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a state as the wrapped optimizer would have saved it."""
    state = {
        number: {key: value for key, value in found.items() if key != KEY}
        for number, found in saved["state"].items()
    }
    return {**saved, "state": {k: found for k, found in state.items() if found}}


def as_module(model: nn.Module, masters: Masters) -> nn.Module:
    """Return a module of the model's parameter names, masters in place of weights."""
    root = nn.Module()
    for path, parameter in model.named_parameters():
        *folders, last = path.split(".")
        module = root
        for folder in folders:
            if folder not in dict(module.named_children()):
                module.add_module(folder, nn.Module())
            module = module.get_submodule(folder)
        module.register_parameter(last, masters.get(parameter, parameter))
    return root
