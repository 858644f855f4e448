"""The weights that the workers of one process share, and the getter that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from lockstep.pytorch.core.foreach import add
from lockstep.pytorch.core.numbers import rounded
from lockstep.pytorch.gradients import gradients_set_to
from lockstep.pytorch.rule_optimizer import RuleOptimizer
from lockstep.pytorch.train_v1 import TrainV1
from lockstep.spec import agn as words
from lockstep.spec.agn import Update

__all__ = ["AGNCustomGetter", "Center", "base_of", "powers"]


class Center:
    """Shared weights with an optimizer of their own, which is made like the workers'.

    The first worker's optimizer is copied, with the shared weights in the place of the
    worker's own and without state. Before a push is applied its groups take over the
    hyper-parameters of the worker that pushes, so that schedules are followed.

    Args:
        device: where the shared weights live; None means where the first worker's do.

    Attributes:
        parameters: name -> shared weight.
        optimizer: what moves them; None before the first ``AGNOptimizer``.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self.device = device
        self.parameters: dict[str, Parameter] = {}
        self.optimizer: Optimizer | None = None

    def join(self, name: str, parameter: Tensor) -> Parameter:
        """Return the shared weight of this name; the first worker's is copied."""
        if name not in self.parameters:
            copied = parameter.detach().clone()
            self.parameters[name] = Parameter(copied.to(self.device or copied.device))
        shared = self.parameters[name]
        if (shared.shape, shared.dtype) != (parameter.shape, parameter.dtype):
            told = [f"{p.dtype} {list(p.shape)}" for p in (shared, parameter)]
            raise words.other_center(name, *told)
        return shared

    def follow(self, optimizer: Optimizer, shared: Mapping[Tensor, Parameter]) -> None:
        """Have an optimizer like a worker's; raise if its groups are other ones.

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
        names = {parameter: name for name, parameter in self.parameters.items()}
        for own, group in zip(theirs, ours, strict=False):
            found = [names[shared[p]] for p in own["params"] if p in shared]
            known = [names[p] for p in group["params"] if p in names]
            if found != known:
                raise words.other_groups(known, found)

    def pull(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the shared weights of these names: themselves, no copies."""
        return {name: self.parameters[name].detach() for name in names}

    @torch.no_grad()
    def push(self, update: Update) -> None:
        """Take a step on mean gradients, or add differences.

        The optimizer of an update is one mapping of hyper-parameters for each group.
        """
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
        everything = self.parameters.values()
        with gradients_set_to(everything, map(changes.get, everything)):
            self.optimizer.step()

    def slot(self, parameter: Tensor, name: str) -> Tensor | None:
        """Return a slot of a shared weight by its TF or torch name, or None."""
        if self.optimizer is None:
            return None
        return TrainV1.get_slot(self.optimizer, parameter, name)


class AGNCustomGetter:
    """Make the shared weight and the accumulator of each of a worker's parameters.

    torch has no variable scopes whose getter this could be: it is called with a model
    or its parameters instead. Workers of one process share one center.

    Args:
        worker_device: where the worker's parameters are, and its accumulators.
        center: the :class:`Center` of the other workers; None makes one.
        strict: as ``tf.contrib.opt.AGNCustomGetter`` (1.15): until the init op has run
            an accumulator holds the parameter's value.

    Attributes:
        center: what the workers share.
        names: parameter -> its name at the center.

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
        center: Center | None = None,
        strict: bool = False,
    ) -> None:
        self.worker_device = torch.device(worker_device)
        self.center = Center() if center is None else center
        self.strict = strict
        self.names: dict[Tensor, str] = {}
        self._global_map: dict[Tensor, Parameter] = {}
        self._grad_map: dict[Tensor, Tensor] = {}

    def __call__(
        self, parameters: nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]]
    ) -> list[Tensor]:
        """Enter parameters and return them, for the worker's optimizer.

        What does not require gradients passes through; what is known stays as it is. A
        name that is there already, of another module say, gets a number.

        Args:
            parameters: a module, its ``named_parameters()`` or its ``parameters()``,
                whose names are then their places: workers must give them in one order.

        Raises:
            UnsupportedError: a ValueError; a parameter is on another device, or the
                shared one of its name has another shape or dtype.
        """
        entered = list(named(parameters, len(self.names)))
        for name, parameter in entered:
            found, wanted = parameter.device, self.worker_device
            if found.type != wanted.type or wanted.index not in (None, found.index):
                raise words.other_device(name, str(wanted), str(found))
        for name, parameter in entered:
            if parameter.requires_grad and parameter not in self._global_map:
                name = words.unused_name(name, self.names.values())
                self._global_map[parameter] = self.center.join(name, parameter)
                self.names[parameter] = name
                # Quirk: docs/differences.md#agn-accumulator-start
                own = parameter.detach()
                start = own.clone() if self.strict else torch.zeros_like(own)
                self._grad_map[parameter] = start
        return [parameter for _, parameter in entered]


def named(parameters: Any, known: int) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters with their names, or their places after those ``known``."""
    if isinstance(parameters, nn.Module):
        parameters = parameters.named_parameters()
    for place, entry in enumerate(parameters, start=known):
        yield (str(place), entry) if isinstance(entry, Tensor) else entry


def base_of(optimizer: Optimizer) -> Optimizer:
    """Return the innermost optimizer: the one that owns the state."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def powers(optimizer: Optimizer) -> Mapping[str, str]:
    """Return the powers in the groups of a TF1 optimizer: name -> name of the beta."""
    base = base_of(optimizer)
    return (isinstance(base, RuleOptimizer) and base.spec.shared) or {}


def without_state(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer with its state forgotten, as if it were new."""
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for name, beta in powers(optimizer).items():
            group[name] = rounded(group[beta], torch.float32)
    return optimizer
