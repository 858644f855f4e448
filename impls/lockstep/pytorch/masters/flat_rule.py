"""Steps of an elementwise optimizer on flat buffers instead of many masters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from lockstep.pytorch.base.foreign_state import MASTER
from lockstep.pytorch.masters.buffers import ALIGNMENT, FlatMasters
from lockstep.pytorch.tensors import foreach

__all__ = ["FlatRule"]

ELEMENTWISE = {
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
}
"""Optimizers whose rule treats each element by itself, with the same bits anywhere."""
STEP = "step"
LEAST_EPS = torch.finfo(torch.float32).tiny
"""With less, the zeros between tensors would become 0 / 0."""
LONGEST = 1 << 20
"""About so many elements go at once: a rule may need as many more for a moment."""

Group = dict[str, Any]
Kinds = tuple[tuple[str, torch.dtype], ...]


class Run(NamedTuple):
    """Masters that are contiguous in a buffer, and whose state is contiguous too.

    Attributes:
        group: the optimizer's group that contains the masters.
        masters: several masters of one buffer.
        gradients: the gradient of each master, a view into the buffer.
        values: all masters in one tensor, whose ``grad`` has all gradients.
        state: the state of ``values``. The state of each master is a view of it.
        steps: [n], the step count of each master; None if the rule counts no steps.
    """

    group: Group
    masters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    values: Tensor
    state: dict[str, Tensor]
    steps: Tensor | None

    def is_ready(self, optimizer: Optimizer) -> bool:
        """Whether a step of ``values`` equals a step of each master at present."""
        group, steps = self.group, self.steps
        if group["differentiable"] or group.get("eps", 1) < LEAST_EPS:
            return False
        is_stateless = isinstance(optimizer, torch.optim.SGD) and not group["momentum"]
        present = [master.grad for master in self.masters]
        if not (self.state or is_stateless) or not same(present, self.gradients):
            return False
        return steps is None or len(set(steps.tolist())) == 1

    def finish(self) -> None:
        """Give the masters the step count of ``values``, and increment versions."""
        increment_version(self.masters)
        if self.steps is not None:
            self.steps.fill_(self.state[STEP])


class FlatRule:
    """Steps of an optimizer on a few long tensors, equal bit for bit.

    During a step, the optimizer's groups contain these tensors instead of the masters.
    The state of each master is always a view of their state. So a master can leave its
    run for a step, for example because it has no gradient, and is then updated alone.

    Args:
        optimizer: any optimizer. One whose rule is not in the table steps as usual.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._seen: list[Any] = []
        self._runs: list[Run] = []

    def step(self, flats: Sequence[FlatMasters]) -> None:
        """Let the optimizer take its step.

        Args:
            flats: the buffers of masters and, if they lie there, their gradients.
        """
        runs = self._runs_of(flats) if flats and is_plain(self.optimizer) else []
        ready = [run for run in runs if run.is_ready(self.optimizer)]
        if not ready:
            self.optimizer.step()
            return
        groups, state = self.optimizer.param_groups, self.optimizer.state
        listed = [group["params"] for group in groups]
        taken = {id(master) for run in ready for master in run.masters}
        try:
            for run in ready:
                state[run.values] = dict(run.state)
            for group, parameters in zip(groups, listed, strict=True):
                flat = [run.values for run in ready if run.group is group]
                group["params"] = flat + [p for p in parameters if id(p) not in taken]
            self.optimizer.step()
        finally:
            for group, parameters in zip(groups, listed, strict=True):
                group["params"] = parameters
            for run in ready:
                del state[run.values]
                run.finish()

    def _runs_of(self, flats: Sequence[FlatMasters]) -> list[Run]:
        """Return the runs; build them again if any of their parts was replaced."""
        if not same(replaceable_objects(self.optimizer, flats), self._seen):
            self._runs = list(runs_in(self.optimizer, flats))
            self._seen = replaceable_objects(self.optimizer, flats)
        return self._runs


def is_plain(optimizer: Optimizer) -> bool:
    """Whether the rule is known, and no hook or patched ``step`` could see tensors."""
    return type(optimizer) in ELEMENTWISE and not (
        "step" in vars(optimizer)
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
    )


def replaceable_objects(
    optimizer: Optimizer, flats: Sequence[FlatMasters]
) -> list[Any]:
    """Return all objects that runs consist of and that a user may replace."""
    entries = list(optimizer.state.values())
    found: list[Any] = [optimizer.state, *flats, *entries]
    for group in optimizer.param_groups:
        found += [group, group.get("fused"), *group["params"]]
    return found + [value for entry in entries for value in entry.values()]


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def runs_in(optimizer: Optimizer, flats: Sequence[FlatMasters]) -> Iterator[Run]:
    """Yield runs of all masters whose gradients and state can be contiguous.

    Only on the CPU. On other devices the results were not compared, and reading the
    step counts may need a host sync.
    """
    places = {
        id(master): (flat, position)
        for flat in flats
        if flat.values.is_cpu and not flat.is_sharded
        for position, master in enumerate(flat.masters)
        if master.grad is flat.gradient_views[position]
    }

    def place(row: tuple[int, Tensor]) -> tuple[FlatMasters | None, int, Kinds | None]:
        """Return a key that is equal for masters that are neighbours in both lists."""
        index, parameter = row
        flat, position = places.get(id(parameter), (None, index))
        kinds = kinds_of(optimizer.state.get(parameter, {}), parameter)
        # A fused rule computes elements that do not fill a vector register with other
        # bits.
        if kinds is None or (group.get("fused") and parameter.numel() % ALIGNMENT):
            flat = None
        return flat, position - index, kinds

    for group in optimizer.param_groups:
        for (flat, offset, kinds), rows in groupby(enumerate(group["params"]), place):
            if flat is None or kinds is None:
                continue
            positions = [index + offset for index, _ in rows]
            for run in foreach.runs_alike(flat.masters, positions, LONGEST):
                if len(run) > 1:
                    yield make_run(optimizer, group, flat, run, kinds)


def kinds_of(entry: dict[str, Any], master: Tensor) -> Kinds | None:
    """Return names and dtypes of a master's state; None if it cannot be flat."""
    kinds = []
    for name, value in entry.items():
        if name == MASTER:
            continue
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            return None
        shape = torch.Size() if name == STEP else master.shape
        if (value.shape, value.device) != (shape, master.device):
            return None
        kinds.append((name, value.dtype))
    return tuple(kinds)


def make_run(
    optimizer: Optimizer,
    group: Group,
    flat: FlatMasters,
    positions: Sequence[int],
    kinds: Kinds,
) -> Run:
    """Return a run of masters, and make their state views of its state."""
    first, last = positions[0], positions[-1]
    places = flat.places[first : last + 1]
    begin, (start, shape) = places[0][0], places[-1]
    part = slice(begin, start + shape.numel())
    masters = flat.masters[first : last + 1]
    values = flat.values[part]
    values.grad = flat.gradients[part]
    entries = [optimizer.state[master] for master in masters if kinds]
    state, steps = {}, None
    for name, dtype in kinds:
        old = [entry[name] for entry in entries]
        if name == STEP:
            steps = torch.stack(old)
            views = [steps[k] for k in range(len(old))]
            state[name] = views[0]
        else:
            state[name] = torch.zeros_like(values, dtype=dtype)
            views = [
                state[name][start - begin : start - begin + shape.numel()].view(shape)
                for start, shape in places
            ]
            foreach.copy(views, old)
        for entry, view in zip(entries, views, strict=True):
            entry[name] = view
    gradients = flat.gradient_views[first : last + 1]
    return Run(group, masters, gradients, values, state, steps)
