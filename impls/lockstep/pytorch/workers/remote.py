"""A center in another process: its weights, and the worker's view of it."""

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
    """The weights of a center in its own process, updated by a torch optimizer.

    It converts arrays for a :class:`Center`, so both compute the same bits.
    """

    def __init__(self, center: Center) -> None:
        self.center = center

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of the named weights, or of all."""
        chosen = self.center.parameters if names is None else names
        return {n: array_of(t) for n, t in self.center.pull(chosen).items()}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step with mean gradients and a worker's hyper-parameters."""
        gradients = {name: as_tensor(change) for name, change in changes.items()}
        self.center.push(Update(gradients, options))

    def saved(self) -> Any:
        """Return the weights and the optimizer's state, as arrays."""
        state = map_leaves(as_array, self.center.optimizer.state_dict())
        return {"weights": self.pull(), "optimizer": state}

    @torch.no_grad()
    def load(self, saved: Any) -> None:
        """Load weights and state; raise for the state of another optimizer."""
        state = map_leaves(as_tensor, saved["optimizer"])
        check_bare(words.WRAPPER, state, self.center.optimizer)
        for name, weight in saved["weights"].items():
            self.center.parameters[name].copy_(as_tensor(weight))
        self.center.optimizer.load_state_dict(state)
        restore_numbers(self.center.optimizer, state)


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process: see the base class.

    Its ``parameters`` are the shared weights that this worker pulled last, on the CPU.
    Its ``optimizer`` is the optimizer that was sent to the center, without state. The
    center stores the state of the shared weights, and saves it itself.
    """

    backend = "pytorch"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.device = "cpu"
        for name, weight in self.known.items():
            self.parameters[name] = Parameter(as_tensor(weight))

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        return {name: array_of(p) for name, p in self.parameters.items()}

    def check(self, parameters: Mapping[str, Tensor], may_add: bool) -> None:
        """Raise unless ``parameters`` may join: see the base class.

        Raises:
            UnsupportedError: a ValueError; also for a name that did not exist when the
                first ``AGNOptimizer`` was created.
            DtypeError: a TypeError; NumPy does not have the dtype.
        """
        for name, parameter in parameters.items():
            try:
                parameter.new_empty(0, device="cpu").numpy()
            except TypeError as error:
                got = parameter.dtype
                raise refusals.NO_ARRAY.error(name=name, got=got) from error
        super().check(parameters, may_add and not self.known)

    def rule_of(self, optimizer: Any, clips_rows: bool) -> Any:
        """Return the optimizer from :meth:`follow`, which has all later groups."""
        return self.optimizer

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> TorchWeights:
        """Return weights with the optimizer ``rule``, for another process."""
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
        """Return the current shared weights by name."""
        pulled = self.member.pull(names)
        for name, weight in pulled.items():
            np.copyto(array_of(self.parameters[name]), weight)
        return {name: self.parameters[name].detach() for name in pulled}

    def push(self, update: Update) -> None:
        """Push the accumulated changes and the worker's hyper-parameters.

        Raises:
            TrainingEndedError: a RuntimeError; training is over.
            CenterLostError: a ConnectionError; the center is gone.
            OutOfRangeError: a ValueError; the changes contain inf or NaN, and no weight
                is updated.
        """
        changes = {name: array_of(change) for name, change in update.changes.items()}
        options = [map_leaves(on_cpu, group) for group in update.optimizer or []]
        self.send(changes, options or None)


def array_of(tensor: Tensor) -> Array:
    """Return a tensor as an array, which shares its memory if it is on the CPU."""
    return tensor.detach().cpu().numpy()


def as_array(leaf: Any) -> Any:
    """Return a tensor as an array; return anything else unchanged."""
    return array_of(leaf) if isinstance(leaf, Tensor) else leaf


def as_tensor(leaf: Any) -> Any:
    """Return an array as a tensor on the CPU; return anything else unchanged."""
    return torch.tensor(leaf, device="cpu") if isinstance(leaf, np.ndarray) else leaf


def on_cpu(leaf: Any) -> Any:
    """Return a tensor on the CPU; return anything else unchanged."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf
