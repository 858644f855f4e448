"""The shared weights of AGN's workers: in their process, or in one of their own.

Workers of one process hold the same :class:`Center`. Workers of several processes have
a :class:`RemoteCenter` each; the center on Ray applies their pushes with
:class:`TorchWeights`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Adagrad, Optimizer

from lockstep.errors import DtypeError, UnsupportedError
from lockstep.interface import Array
from lockstep.pipeline import base_of
from lockstep.pytorch import gradients
from lockstep.pytorch.foreach import add, rounded
from lockstep.pytorch.fused import in_layouts, make_momentum
from lockstep.pytorch.gradients import gradients_set_to
from lockstep.ray.checkpoint import map_leaves
from lockstep.ray.worker import RemoteView

Options = Sequence[dict[str, Any]]


class Center:
    """Shared weights with their own optimizer, a copy of the first worker's.

    A push comes with the hyper-parameters of its worker, so schedules take effect.

    Args:
        device: the device of the shared weights; None means the first worker's.

    Attributes:
        parameters: name -> shared weight.
        optimizer: their optimizer; None before the first ``AGNOptimizer``.
        lock: held while a thread pushes, pulls, or adds weights or groups.
        saves_itself: whether the center's state is not saved with a worker's.
    """

    saves_itself = False

    def __init__(self, device: torch.device | str | None = None) -> None:
        self.device = device
        self.parameters: dict[str, Parameter] = {}
        self.optimizer: Optimizer | None = None
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock())

    def for_worker(self) -> Center:
        """Return the center for another worker."""
        return self

    def join(self, own: Mapping[str, Tensor], may_add: bool) -> dict[str, Parameter]:
        unknown = [name for name in own if name not in self.parameters]
        if unknown and not may_add:
            raise UnsupportedError(
                f"AGNCustomGetter: expected names that the center has, got {unknown}; "
                "give each worker's parameters the same names: pass a module or pairs "
                "(name, parameter). Only the first worker adds names."
            )
        for name, parameter in own.items():
            shared = self.parameters.get(name, parameter)
            if (shared.shape, shared.dtype) != (parameter.shape, parameter.dtype):
                raise UnsupportedError(
                    f"AGNCustomGetter: expected {name!r} to be {shared.dtype} "
                    f"{list(shared.shape)}, as the shared one, got {parameter.dtype} "
                    f"{list(parameter.shape)}; use another name."
                )
        for name in unknown:
            copied = own[name].detach().clone()
            self.parameters[name] = Parameter(copied.to(self.device or copied.device))
        return self.parameters

    def follow(self, optimizer: Optimizer, shared: Mapping[Tensor, Parameter]) -> None:
        """Make or extend the optimizer like a worker's; raise if its groups differ."""
        theirs = optimizer.param_groups
        if self.optimizer is None:
            own = [p for group in theirs for p in group["params"]]
            self.optimizer = deepcopy(optimizer, {id(p): shared.get(p, p) for p in own})
            self.optimizer.state.clear()
            for group in self.optimizer.param_groups:
                for name, beta in powers(self.optimizer).items():
                    group[name] = rounded(group[beta], torch.float32)
        ours = self.optimizer.param_groups
        for group in theirs[len(ours) :]:
            params = [shared.get(parameter, parameter) for parameter in group["params"]]
            self.optimizer.add_param_group({**group, "params": params})
        names = {weight: name for name, weight in self.parameters.items()}
        for group, other in zip(ours, theirs, strict=False):
            pairs = list(zip(group["params"], other["params"], strict=False))
            for k, (weight, own) in enumerate(pairs):
                # Frozen at first, so the group has the first worker's parameter.
                if weight not in names and own in shared:
                    group["params"][k] = shared[own]
            expected = [names[weight] for weight in group["params"] if weight in names]
            got = [names[shared[own]] for own in other["params"] if own in shared]
            if got != expected:
                raise UnsupportedError(
                    f"AGNOptimizer: expected a group of the parameters {expected}, as "
                    f"the other workers', got {got}; give every worker's optimizer the "
                    "same parameters in the same groups."
                )

    def begin(self, commit: str) -> None:
        """Prepare for the pushes of a worker with this ``commit``."""

    def pull(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return consistent copies of the shared weights by name."""
        with self.lock:
            return {name: self.parameters[name].detach().clone() for name in names}

    @torch.no_grad()
    def push(self, changes: Mapping[str, Tensor], options: Options | None) -> None:
        """Step with mean gradients, or without ``options`` add the changes."""
        with self.lock:
            weights = list(self.parameters.values())
            own = {self.parameters[name]: change for name, change in changes.items()}
            own = {weight: change.to(weight.device) for weight, change in own.items()}
            if options is None:
                add([weight.detach() for weight in own], list(own.values()))
                return
            groups = self.optimizer.param_groups
            for group, numbers in zip(groups, options, strict=False):
                group.update(numbers)
            gradients = in_layouts(weights, list(map(own.get, weights)), groups)
            with gradients_set_to(weights, gradients):
                # A push may have parameters that no push had before.
                start_adagrad(base_of(self.optimizer))
                make_momentum(base_of(self.optimizer))
                self.optimizer.step()

    def slot(self, parameter: Tensor, name: str) -> Tensor | None:
        """Return a slot of a shared weight by its TF or torch name, or None."""
        return gradients.get_slot(self.optimizer, parameter, name)

    def leave(self) -> None:
        """Note that a worker is done."""

    def numbers(self) -> dict[str, float]:
        """Return the numbers of the last push for logging, by tag."""
        return {}


def powers(optimizer: Optimizer) -> Mapping[str, str]:
    """Return the powers of beta in a TF1 optimizer's groups: name -> beta's name."""
    return getattr(getattr(base_of(optimizer), "spec", None), "shared", None) or {}


class TorchWeights:
    """A :class:`Center` in its own process, whose weights are sent as arrays."""

    def __init__(self, center: Center) -> None:
        self.center = center

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        chosen = self.center.parameters if names is None else names
        return {n: as_array(t) for n, t in self.center.pull(chosen).items()}

    def push(self, changes: Mapping[str, Array], options: Options | None) -> None:
        self.center.push({n: as_tensor(c) for n, c in changes.items()}, options)

    def saved(self) -> Any:
        state = map_leaves(as_array, self.center.optimizer.state_dict())
        return {"weights": self.pull(), "optimizer": state}

    @torch.no_grad()
    def load(self, saved: Any) -> None:
        optimizer = self.center.optimizer
        state = map_leaves(as_tensor, saved["optimizer"])
        groups = zip(optimizer.param_groups, state["param_groups"], strict=True)
        for own, group in groups:
            numbers = {k for k, v in own.items() if isinstance(v, float | tuple)}
            if not numbers <= group.keys():
                raise UnsupportedError(
                    "AGNOptimizer: expected the checkpoint of a center with "
                    f"{sorted(numbers)}, got one with {sorted(group)}; start with the "
                    "optimizer that was saved, or in another directory."
                )
        for name, weight in saved["weights"].items():
            self.center.parameters[name].copy_(as_tensor(weight))
        optimizer.load_state_dict(state)


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process, which saves its own state.

    ``parameters`` are the weights that were pulled last, and ``optimizer`` is the one
    that was sent to the center.
    """

    backend = "pytorch"

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.device = "cpu"
        for name, weight in self.known.items():
            self.parameters[name] = Parameter(as_tensor(weight))

    def arrays(self) -> dict[str, Array]:
        return {name: as_array(p) for name, p in self.parameters.items()}

    def join(self, own: Mapping[str, Tensor], may_add: bool) -> dict[str, Parameter]:
        """Return the shared weights; none is added after the first ``AGNOptimizer``."""
        for name, parameter in own.items():
            if parameter.dtype not in (torch.float16, torch.float32, torch.float64):
                raise DtypeError(
                    "AGNOptimizer: expected weights of a dtype that NumPy has, got "
                    f"{parameter.dtype} for {name!r}; train float32 weights."
                )
        return super().join(own, may_add and not self.known)

    def rule_of(self, optimizer: Any, clips_rows: bool) -> Any:
        """Return the optimizer from :meth:`follow`, which has all later groups."""
        return self.optimizer

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> TorchWeights:
        """Return weights with the optimizer ``rule``, for another process."""
        center = Center()
        center.parameters, center.optimizer = self.parameters, rule
        return TorchWeights(center)

    def groups(self) -> list[list[str]]:
        names = {parameter: name for name, parameter in self.parameters.items()}
        groups = self.optimizer.param_groups
        return [[names[p] for p in group["params"] if p in names] for group in groups]

    @torch.no_grad()
    def pull(self, names: Iterable[str]) -> dict[str, Tensor]:
        pulled = self.member.pull(names)
        for name, weight in pulled.items():
            np.copyto(as_array(self.parameters[name]), weight)
        return {name: self.parameters[name].detach() for name in pulled}

    def push(self, changes: Mapping[str, Tensor], options: Options | None) -> None:
        arrays = {name: as_array(change) for name, change in changes.items()}
        self.send(arrays, map_leaves(on_cpu, options) if options else None)


def as_array(leaf: Any) -> Any:
    """Return a tensor as an array, which shares its memory if it is on the CPU."""
    return leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else leaf


def as_tensor(leaf: Any) -> Any:
    """Return an array as a tensor on the CPU; return anything else unchanged."""
    return torch.tensor(leaf, device="cpu") if isinstance(leaf, np.ndarray) else leaf


def on_cpu(leaf: Any) -> Any:
    """Return a tensor on the CPU; return anything else unchanged."""
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def start_adagrad(optimizer: Optimizer) -> None:
    """Create the sums that older torch creates only with the optimizer."""
    if not isinstance(optimizer, Adagrad):
        return
    for group in optimizer.param_groups:
        start = optimizer.defaults["initial_accumulator_value"]
        for weight in group["params"]:
            if weight.grad is not None and not optimizer.state[weight]:
                total = torch.full_like(weight, start)
                optimizer.state[weight] |= {"step": torch.tensor(0.0), "sum": total}
