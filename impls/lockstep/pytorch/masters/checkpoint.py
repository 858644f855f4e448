"""Masters in checkpoints: in the state of an optimizer, and beside a model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.pytorch.base.foreign_state import MASTER, require_dense
from lockstep.pytorch.optimizers import GradientDescentOptimizer

__all__ = [
    "KEY",
    "MastersInState",
    "as_module",
    "refuse_model_of_weights",
    "saved_masters",
    "with_masters",
    "without_masters",
]

KEY = MASTER
BEAR_MASTERS = torch.optim.SGD, GradientDescentOptimizer
"""Optimizers that do not mind a master where they have no state, and may never have."""

Masters = Mapping[Tensor, Tensor]
CALLER = "torch.distributed.checkpoint.state_dict"
DEPTH = 12
"""So many frames below it may be, in a stack of wrappers."""


class MastersInState:
    """Masters beside the state of an optimizer, where checkpoints look for them.

    They come after it, since many optimizers make their state where they find none.

    Args:
        base: the innermost optimizer.
        masters: weight -> master; it may grow.
    """

    def __init__(self, base: Optimizer, masters: Masters) -> None:
        self.base, self.masters = base, masters
        self.bears_any = isinstance(base, BEAR_MASTERS)
        self.forget()

    def forget(self) -> None:
        """Start anew: with other state, or another copy of it."""
        self.state, self.kept, self.some_alone = self.base.state, set[int](), True

    def add(self, parameters: Iterable[Tensor], alone: bool = False) -> None:
        """Put masters beside the state of these, each once.

        ``alone``: also where there is no state, until :meth:`free`; and any parameter
        gets an entry then, for checkpoints ask for one.
        """
        if self.state is not self.base.state:
            self.forget()
        alone = alone or self.bears_any
        if not (self.state or alone):
            return
        new = [p for p in parameters if id(p) not in self.kept]
        new = [p for p in new if alone or self.state.get(p)]
        own = set(self.masters.values()) if new else set()
        for parameter in new:
            if parameter in own or not self.state.get(parameter):
                self.state.setdefault(parameter, {})[KEY] = parameter
        self.kept.update(map(id, new))
        self.some_alone |= alone

    def free(self) -> None:
        """Remove every entry in which there is nothing else, before a step."""
        if self.state is not self.base.state:
            self.forget()
        if not self.some_alone or self.bears_any:
            return
        empty = [p for p, entry in self.state.items() if entry.keys() <= {KEY}]
        for parameter in empty:
            del self.state[parameter]
        self.kept.difference_update(map(id, empty))
        self.some_alone = False


def with_masters(
    saved: dict[str, Any], parameters: Iterable[Tensor], masters: Masters
) -> dict[str, Any]:
    """Return a saved state with every master in it.

    Where nobody has any state, every parameter gets an entry.
    """
    idle = not any(saved["state"].values())
    numbers = [k for group in saved["param_groups"] for k in group["params"]]
    own, state = set(masters.values()), dict(saved["state"])
    for number, parameter in zip(numbers, parameters, strict=True):
        if parameter in own or (idle and parameter.requires_grad):
            state[number] = {**state.get(number, {}), KEY: parameter.detach()}
    return {**saved, "state": state}


def saved_masters(
    saved: Mapping[str, Any], names: Mapping[Tensor, str], own: set[Tensor]
) -> dict[Tensor, Tensor]:
    """Return master -> its saved value; raise where one is missing.

    Args:
        saved: what ``state_dict`` returned, of the groups that are here.
        names: every parameter, masters in place of weights, with its name.
        own: those that are masters.
    """
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    values = {}
    for number, (parameter, name) in zip(numbers, names.items(), strict=True):
        if parameter in own:
            entry = saved["state"].get(number, {})
            if KEY not in entry:
                raise refusals.WITHOUT_MASTERS.error(got=f"none for {name!r}")
            require_dense(words.WRAPPER, KEY, name, entry[KEY])
            values[parameter] = entry[KEY]
    return values


def without_masters(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a state as the wrapped optimizer would have saved it."""
    state = {
        number: {key: value for key, value in entry.items() if key != KEY}
        for number, entry in saved["state"].items()
    }
    return {**saved, "state": {k: entry for k, entry in state.items() if entry}}


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


def refuse_model_of_weights(weights: Iterable[Tensor]) -> None:
    """Raise where ``torch.distributed.checkpoint`` was given the model itself.

    It looks for the optimizer's parameters in a model by identity and would fail with a
    ``KeyError``, before it asks the optimizer for more than its ``state``. So this
    looks for its function among the callers, and for the model there.
    """
    if CALLER not in sys.modules:
        return
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            return
        if frame.f_globals.get("__name__") == CALLER:
            model = frame.f_locals.get("model")
            if isinstance(model, nn.Module):
                own = set(map(id, model.parameters()))
                if any(id(weight) in own for weight in weights):
                    raise refusals.NEEDS_AS_MODULE.error()
                return
        frame = frame.f_back
