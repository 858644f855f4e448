"""A center in another process: PyTorch's side of it, and the worker's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.messages.workers import agn as words
from lockstep.messages.workers.center import Update
from lockstep.pytorch.base.trial_step import check_bare
from lockstep.pytorch.base.wrapper import restore_numbers
from lockstep.pytorch.workers.center import Center
from lockstep.ray.tree import map_leaves
from lockstep.ray.view import RemoteView
from lockstep.ray.worker import Host

__all__ = ["RemoteCenter", "TorchWeights"]


class TorchWeights:
    """The weights of a served center, moved by an optimizer of torch.

    This is the center of one process behind arrays, so both move by the same bits.
    """

    def __init__(self, center: Center) -> None:
        self.center = center

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        chosen = self.center.parameters if names is None else names
        return {n: array_of(t) for n, t in self.center.pull(chosen).items()}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's hyper-parameters."""
        gradients = {name: torch.tensor(change) for name, change in changes.items()}
        self.center.push(Update(gradients, options))

    def saved(self) -> Any:
        """Return the weights and the optimizer's state, as arrays."""
        state = map_leaves(as_array, self.center.optimizer.state_dict())
        return {"weights": self.pull(), "optimizer": state}

    @torch.no_grad()
    def load(self, saved: Any) -> None:
        """Take over weights and state; raise for the state of another optimizer."""
        state = map_leaves(as_tensor, saved["optimizer"])
        check_bare(words.WRAPPER, state, self.center.optimizer)
        for name, weight in saved["weights"].items():
            self.center.parameters[name].copy_(torch.tensor(weight))
        self.center.optimizer.load_state_dict(state)
        restore_numbers(self.center.optimizer, state)


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process: see the base class.

    Its ``parameters`` are the shared weights as this worker pulled them last, on the
    CPU, and its ``optimizer`` is what the center was given, without state. The state of
    the shared weights is with the center, which saves itself.
    """

    backend = "pytorch"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.device = "cpu"
        for name, weight in self.known.items():
            self.parameters[name] = Parameter(torch.tensor(weight))

    def arrays(self) -> dict[str, Array]:
        """Return the shared weights as they are here."""
        return {name: array_of(p) for name, p in self.parameters.items()}

    def check(self, parameters: Mapping[str, Tensor], may_add: bool) -> None:
        """Raise unless these may join: see the base class.

        Raises:
            UnsupportedError: a ValueError; also for a name that was not there when the
                first ``AGNOptimizer`` was made.
            DtypeError: a TypeError; NumPy lacks the dtype.
        """
        for name, parameter in parameters.items():
            try:
                parameter.new_empty(0, device="cpu").numpy()
            except TypeError as error:
                got = parameter.dtype
                raise refusals.NO_ARRAY.error(name=name, got=got) from error
        super().check(parameters, may_add and not self.known)

    def rule_of(self, optimizer: Any, clips_rows: bool) -> Any:
        """Return what :meth:`follow` made, for it knows groups that came later."""
        return self.optimizer

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> TorchWeights:
        """Return weights with such an optimizer, for another process."""
        center = Center()
        center.parameters, center.optimizer = self.parameters, rule
        return TorchWeights(center)

    def groups(self) -> list[list[str]]:
        """Return the names in each parameter group."""
        names = {parameter: name for name, parameter in self.parameters.items()}
        groups = self.optimizer.param_groups
        return [[names[p] for p in group["params"] if p in names] for group in groups]

    @torch.no_grad()
    def pull(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the shared weights of these names as they are now."""
        pulled = self.member.pull(names)
        for name, weight in pulled.items():
            np.copyto(array_of(self.parameters[name]), weight)
        return {name: self.parameters[name].detach() for name in pulled}

    def push(self, update: Update) -> None:
        """Push a round: what was gathered, and the worker's hyper-parameters.

        Raises:
            TrainingEndedError: a RuntimeError; training is over.
            CenterLostError: a ConnectionError; the center is gone.
            OutOfRangeError: a ValueError; inf or NaN, and nothing has moved.
        """
        changes = {name: array_of(change) for name, change in update.changes.items()}
        options = [map_leaves(on_cpu, group) for group in update.optimizer or []]
        self.send(changes, options or None)


def array_of(tensor: Tensor) -> Array:
    """Return the elements of a tensor, which share its memory on the CPU."""
    return tensor.detach().cpu().numpy()


def as_array(leaf: Any) -> Any:
    """Return a tensor as an array; anything else as it is."""
    return array_of(leaf) if isinstance(leaf, Tensor) else leaf


def as_tensor(leaf: Any) -> Any:
    """Return an array as a tensor; anything else as it is."""
    return torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def on_cpu(leaf: Any) -> Any:
    """Return a tensor on the CPU; anything else as it is."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf
