"""Masters in checkpoints: in the state of an optimizer, and beside a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from lockstep.pytorch.train_v1 import SLOT_NAMES
from lockstep.spec import mixed_precision as words

__all__ = [
    "KEY",
    "as_module",
    "check_saved",
    "keep_in_state",
    "with_masters",
    "without_masters",
]

KEY = "master"
"""The key of a master in the state of an optimizer, and so in a checkpoint."""

Masters = Mapping[Tensor, Tensor]


def keep_in_state(
    state: dict[Tensor, dict[str, Any]], parameters: Iterable[Tensor], masters: Masters
) -> None:
    """Put masters beside the state that the wrapped optimizer has made.

    Not before: many optimizers make theirs where they find none. One without any gets
    an entry for each parameter, for checkpoints ask for one.
    """
    new = [p for p in parameters if KEY not in state[p]]
    own = set(masters.values()) if new else set()
    for parameter in new:
        if parameter in own or not state[parameter]:
            state[parameter][KEY] = parameter


def with_masters(
    saved: dict[str, Any], parameters: Iterable[Tensor], masters: Masters
) -> dict[str, Any]:
    """Return a saved state with every master in it."""
    numbers = [k for group in saved["param_groups"] for k in group["params"]]
    own, state = set(masters.values()), dict(saved["state"])
    for number, parameter in zip(numbers, parameters, strict=True):
        if parameter in own:
            state[number] = {**state.get(number, {}), KEY: parameter.detach()}
    return {**saved, "state": state}


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
