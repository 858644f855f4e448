"""Masters in checkpoints: in the optimizer's state, or as a module."""

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
from lockstep.pytorch.tensors import shards

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
    """Masters in the optimizer's state, where checkpoints expect them.

    They are added after the optimizer's own state, because many optimizers initialize
    the state of a parameter only if it is empty.

    Args:
        base: the innermost optimizer.
        masters: weight -> master; it may grow.
    """

    def __init__(self, base: Optimizer, masters: Masters) -> None:
        self.base, self.masters = base, masters
        self.accepts_any = isinstance(base, BEAR_MASTERS)
        self.forget()

    def forget(self) -> None:
        """Forget the entries; the optimizer's state has been replaced."""
        self.state, self.kept, self.some_alone = self.base.state, set[int](), True

    def add(self, parameters: Iterable[Tensor], alone: bool = False) -> None:
        """Add the masters to the state of these parameters, each once.

        With ``alone``, a parameter without state gets an entry too, until :meth:`free`
        removes it. Checkpoints need an entry for every parameter.
        """
        if self.state is not self.base.state:
            self.forget()
        alone = alone or self.accepts_any
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
        """Remove the entries that have nothing but a master, before a step."""
        if self.state is not self.base.state:
            self.forget()
        if not self.some_alone or self.accepts_any:
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

    If no parameter has any state, every trainable parameter gets an entry.
    """
    idle = not any(saved["state"].values())
    numbers = [k for group in saved["param_groups"] for k in group["params"]]
    own, state = set(masters.values()), dict(saved["state"])
    for number, parameter in zip(numbers, parameters, strict=True):
        if parameter in own or (idle and parameter.requires_grad):
            state[number] = {**state.get(number, {}), KEY: shards.saved(parameter)}
    return {**saved, "state": state}


def saved_masters(
    saved: Mapping[str, Any], names: Mapping[Tensor, str], own: set[Tensor]
) -> dict[Tensor, Tensor]:
    """Return master -> its saved value; raise where one is missing.

    A frozen master may be missing, because ``torch.distributed.checkpoint`` passes on
    no state of frozen parameters.

    Args:
        saved: the result of ``state_dict``, with the groups of this optimizer.
        names: parameter -> name, with masters in place of their weights.
        own: the parameters that are masters.
    """
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    values = {}
    for number, (parameter, name) in zip(numbers, names.items(), strict=True):
        if parameter in own:
            entry = saved["state"].get(number, {})
            if KEY not in entry and not parameter.requires_grad:
                continue
            if KEY not in entry:
                raise refusals.WITHOUT_MASTERS.error(got=f"none for {name!r}")
            require_dense(words.WRAPPER, KEY, name, entry[KEY])
            values[parameter] = entry[KEY]
    return values


def without_masters(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state without masters, as the wrapped optimizer saves it."""
    state = {
        number: {key: value for key, value in entry.items() if key != KEY}
        for number, entry in saved["state"].items()
    }
    return {**saved, "state": {k: entry for k, entry in state.items() if entry}}


def as_module(model: nn.Module, masters: Masters) -> nn.Module:
    """Return a module with the model's parameter names, but masters for weights.

    The master of a weight that was frozen before may be frozen still. Checkpoints would
    leave out its state, although it is trained now.
    """
    root = nn.Module()
    for path, parameter in model.named_parameters():
        *folders, last = path.split(".")
        module = root
        for folder in folders:
            if folder not in dict(module.named_children()):
                module.add_module(folder, nn.Module())
            module = module.get_submodule(folder)
        master = masters.get(parameter, parameter)
        if parameter.requires_grad:
            master.requires_grad_()
        module.register_parameter(last, master)
    return root


def refuse_model_of_weights(weights: Iterable[Tensor]) -> None:
    """Raise if ``torch.distributed.checkpoint`` is called with the model itself.

    That function looks up the optimizer's parameters in the model by identity. Masters
    are not in the model, so it would fail with a ``KeyError``, and it reads nothing but
    the optimizer's ``state`` before. So this searches the call stack for that function,
    and its local variables for the model.
    """
    if CALLER not in sys.modules:
        return
    frame: FrameType | None = sys._getframe()
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
