"""Weights shared by the workers of a process, and the getter that creates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.messages.workers import center as words
from lockstep.messages.workers import getter as agn_getter
from lockstep.messages.workers import refusals
from lockstep.messages.workers.center import Update
from lockstep.pytorch.base.fused_step import in_layouts, step_starting_momentum
from lockstep.pytorch.base.gradients import gradients_set_to
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.base.train_v1 import TrainV1
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.tensors.foreach import add
from lockstep.pytorch.tensors.rounding import rounded
from lockstep.pytorch.workers.getter_parts import as_device, is_tensor, unused_place
from lockstep.quirks import quirks_of
from lockstep.ray.center import RayCenter, as_ray_host

__all__ = ["AGNCustomGetter", "Center", "powers"]

TAKEN = "a module, parameters or pairs (name, parameter)"


class Center(words.CenterOfProcess):
    """Shared weights with their own optimizer, a copy of the first worker's.

    The copy has no state, and updates the shared weights instead of the worker's.
    Before a push is applied, its groups get the hyper-parameters of the worker that
    pushes. So learning-rate schedules take effect.

    Args:
        device: the device of the shared weights; None means the first worker's.

    Attributes:
        parameters: name -> shared weight.
        optimizer: the optimizer of the shared weights; None before the first
            ``AGNOptimizer``.
        lock: held while a thread pushes, pulls, or adds weights or groups.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self.device = device
        self.parameters: dict[str, Parameter] = {}
        self.optimizer: Optimizer | None = None
        self.lock = words.CenterLock()

    def check(self, parameters: Mapping[str, Tensor], may_add: bool) -> None:
        """Raise unless ``parameters`` (name -> a worker's parameter) may join.

        Raises:
            UnsupportedError: a ValueError; a parameter's shape or dtype differs from
                the shared weight of its name, or the worker may not add its name.
        """
        if not may_add:
            agn_getter.check_names(self.parameters, parameters)
        for name, parameter in parameters.items():
            shared = self.parameters.get(name, parameter)
            if (shared.shape, shared.dtype) != (parameter.shape, parameter.dtype):
                raise refusals.OTHER_CENTER.error(
                    name=name,
                    shared=f"{shared.dtype} {list(shared.shape)}",
                    own=f"{parameter.dtype} {list(parameter.shape)}",
                )

    def join(self, name: str, parameter: Tensor) -> Parameter:
        """Return the shared weight ``name``; the first worker's value is copied."""
        if name not in self.parameters:
            copied = parameter.detach().clone()
            self.parameters[name] = Parameter(copied.to(self.device or copied.device))
        return self.parameters[name]

    def follow(self, optimizer: Optimizer, shared: Mapping[Tensor, Parameter]) -> None:
        """Create or extend the optimizer like a worker's; raise if its groups differ.

        ``shared``: the worker's parameter -> the shared weight.
        """
        theirs = optimizer.param_groups
        if self.optimizer is None:
            known = (p for group in theirs for p in group["params"])
            stand_in = {id(own): shared.get(own, own) for own in known}
            self.optimizer = without_state(deepcopy(optimizer, stand_in))
        ours = self.optimizer.param_groups
        for group in theirs[len(ours) :]:
            params = [shared.get(own, own) for own in group["params"]]
            self.optimizer.add_param_group({**group, "params": params})
        for own, group in zip(theirs, ours, strict=False):
            self._share_late(own["params"], group["params"], shared)
        names = {parameter: name for name, parameter in self.parameters.items()}
        for own, group in zip(theirs, ours, strict=False):
            own_names = [names[shared[p]] for p in own["params"] if p in shared]
            known = [names[p] for p in group["params"] if p in names]
            if own_names != known:
                raise words.other_groups(known, own_names)

    def _share_late(
        self,
        theirs: Sequence[Tensor],
        ours: list[Tensor],
        shared: Mapping[Tensor, Parameter],
    ) -> None:
        """Insert shared weights for parameters that were passed to the getter later.

        They were frozen at first, so the groups contained the first worker's parameters
        instead.
        """
        known = set(self.parameters.values())
        for place, (own, mine) in enumerate(zip(theirs, ours, strict=False)):
            if own in shared and mine not in known:
                ours[place] = shared[own]

    def pull(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return consistent copies of the shared weights by name."""
        with self.lock:
            return {name: self.parameters[name].detach().clone() for name in names}

    @torch.no_grad()
    def push(self, update: Update) -> None:
        """Update the shared weights by a step with mean gradients, or by differences.

        ``update.optimizer`` has one mapping of hyper-parameters for each group.
        """
        with self.lock:
            self._apply(update)

    def _apply(self, update: Update) -> None:
        changes = {
            self.parameters[name]: change.to(self.parameters[name].device)
            for name, change in update.changes.items()
        }
        if update.optimizer is None:
            add([p.detach() for p in changes], list(changes.values()))
            return
        groups = self.optimizer.param_groups
        for group, options in zip(groups, update.optimizer, strict=False):
            group.update(options)
        everything = list(self.parameters.values())
        gradients = in_layouts(everything, list(map(changes.get, everything)), groups)
        # A push may have parameters that no push had before.
        with gradients_set_to(everything, gradients):
            step_starting_momentum(base_of(self.optimizer), self.optimizer.step)

    def slot(self, parameter: Tensor, name: str) -> Tensor | None:
        """Return a slot of a shared weight by its TF or torch name, or None."""
        if self.optimizer is None:
            return None
        return TrainV1.get_slot(self.optimizer, parameter, name)


@documented
class AGNCustomGetter:
    """...

    torch has no variable scopes, so the getter is called with a model or its parameters
    instead. Workers of one process share one center.

    Args:
        worker_device: the device of the worker's parameters and accumulators.

    Attributes:
        names: parameter -> its name at the center.

    Raises:
        GetterError: a TypeError; ``center`` is no center, or torch does not know the
            device.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> first = AGNCustomGetter("cpu")
        >>> sgd = torch.optim.SGD(first(model), lr=0.1)
        >>> second = AGNCustomGetter("cpu", center=first.center)
        >>> _ = second(torch.nn.Linear(2, 1))
        >>> list(second.center.parameters)
        ['weight', 'bias']
    """

    def __init__(
        self,
        worker_device: torch.device | str,
        center: Center | RayCenter | str | None = None,
        strict: bool = False,
    ) -> None:
        self.center = center_of(center)
        self.worker_device = as_device(worker_device)
        self.strict = strict
        self.may_add = False
        self.names: dict[Tensor, str] = {}
        self._global_map: dict[Tensor, Parameter] = {}
        self._grad_map: dict[Tensor, Tensor] = {}

    def __call__(
        self, parameters: nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]]
    ) -> list[Tensor]:
        """Register parameters and return them, for the worker's optimizer.

        Parameters that do not require gradients are not registered, and known ones do
        not change. The worker that registers first may add parameters later; other
        workers can only use existing ones.

        Args:
            parameters: a module, its ``named_parameters()`` or its ``parameters()``.
                The last have their places as names, so all workers must pass them in
                the same order.

        Raises:
            GetterError: a TypeError; ``parameters`` is none of these.
            UnsupportedError: a ValueError; a parameter is on another device; its name
                is another parameter's; the center has no weight of its name, or one
                of another shape or dtype. Then nothing is registered.
        """
        if isinstance(parameters, nn.Module):
            parameters = parameters.named_parameters()
        entries = agn_getter.read_entries(parameters, is_tensor, TAKEN)
        with self.center.lock:
            new = self._named(entries)
            self.may_add = self.may_add or not self.center.parameters
            self.center.check(new, self.may_add)
            for name, parameter in new.items():
                self._enter(name, parameter)
        return [parameter for _, parameter in entries]

    def _enter(self, name: str, parameter: Tensor) -> None:
        """Register a parameter with its shared weight and its accumulator."""
        self._global_map[parameter] = self.center.join(name, parameter)
        self.names[parameter] = name
        keeps = quirks_of(self.strict).agn_accumulator_start
        own = parameter.detach()
        self._grad_map[parameter] = own.clone() if keeps else torch.zeros_like(own)

    def _named(self, entries: Iterable[tuple[str | None, Tensor]]) -> dict[str, Tensor]:
        """Return the new trained parameters by their names at the center."""
        new: dict[str, Tensor] = {}
        known, taken = set(self._global_map), set(self.names.values())
        for place, (own_name, parameter) in enumerate(entries, start=len(taken)):
            name = own_name or unused_place(place, taken)
            self._require_here(name, parameter)
            if not parameter.requires_grad or parameter in known:
                continue
            if name in taken:
                raise refusals.TAKEN_NAME.error(name=name)
            new[name] = parameter
            known.add(parameter)
            taken.add(name)
        return new

    def _require_here(self, name: str, parameter: Tensor) -> None:
        """Raise for a parameter that is not on the worker's device."""
        if is_lazy(parameter):
            raise refusals.NOT_BUILT.error(got=f"{name!r} without a shape")
        device, expected = parameter.device, self.worker_device
        if device.type != expected.type or expected.index not in (None, device.index):
            raise refusals.OTHER_DEVICE.error(
                name=name, worker_device=expected, got=device
            )


def center_of(center: Any) -> Center:
    """Return the center for an argument: a new one, the given one, or one on Ray."""
    if host := as_ray_host(center):
        # Imported here because it imports this module.
        from lockstep.pytorch.workers.remote import RemoteCenter

        return RemoteCenter(host)
    agn_getter.check_center(center, Center)
    return Center() if center is None else center.for_worker()


def powers(optimizer: Optimizer) -> Mapping[str, str]:
    """Return the powers of beta in a TF1 optimizer's groups: name -> beta's name."""
    base = base_of(optimizer)
    return (isinstance(base, RuleOptimizer) and base.spec.shared) or {}


def without_state(optimizer: Optimizer) -> Optimizer:
    """Clear the state of an optimizer, as if it were new, and return it."""
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for name, beta in powers(optimizer).items():
            group[name] = rounded(group[beta], torch.float32)
    return optimizer
