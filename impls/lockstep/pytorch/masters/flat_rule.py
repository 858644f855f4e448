"""The elementwise rule of a wrapped optimizer, on flat memory."""

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
    """Masters side by side in a buffer, and their state side by side, too.

    Attributes:
        group: the optimizer's group that has them.
        masters: several of one buffer.
        gradients: those in the buffer, a view for each master.
        values: all masters in one tensor, whose ``grad`` has all gradients.
        state: the state of ``values``; that of each master is a view of it.
        steps: [n], how many steps each master took; None where nobody counts.
    """

    group: Group
    masters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    values: Tensor
    state: dict[str, Tensor]
    steps: Tensor | None

    def is_ready(self, optimizer: Optimizer) -> bool:
        """Whether one step of ``values`` is a step of each master, now."""
        group, steps = self.group, self.steps
        if group["differentiable"] or group.get("eps", 1) < LEAST_EPS:
            return False
        is_stateless = isinstance(optimizer, torch.optim.SGD) and not group["momentum"]
        present = [master.grad for master in self.masters]
        if not (self.state or is_stateless) or not same(present, self.gradients):
            return False
        return steps is None or len(set(steps.tolist())) == 1

    def finish(self) -> None:
        """Let each master have taken the step that ``values`` took."""
        increment_version(self.masters)
        if self.steps is not None:
            self.steps.fill_(self.state[STEP])


class FlatRule:
    """Lets an optimizer take its steps on few long tensors, with the same bits.

    Its groups have them in place of masters while it takes a step. Its state of each
    master is a view of theirs at any time, so a master for which this is not possible,
    as one without a gradient, is trained by itself, in the same step or a later one.

    Args:
        optimizer: any; what is not in the table is left alone.
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
        runs = self._runs_of(flats) if is_plain(self.optimizer) else []
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
        """Return the runs; they are made anew when anything in them was replaced."""
        if not same(what_is_in(self.optimizer, flats), self._seen):
            self._runs = list(runs_in(self.optimizer, flats))
            self._seen = what_is_in(self.optimizer, flats)
        return self._runs


def is_plain(optimizer: Optimizer) -> bool:
    """Whether its rule is known, and nobody else looks into its step."""
    return type(optimizer) in ELEMENTWISE and not (
        "step" in vars(optimizer)
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
    )


def what_is_in(optimizer: Optimizer, flats: Sequence[FlatMasters]) -> list[Any]:
    """Return everything that runs are made of, and that others may replace."""
    entries = list(optimizer.state.values())
    found: list[Any] = [optimizer.state, *flats, *entries]
    for group in optimizer.param_groups:
        found += [group, group.get("fused"), *group["params"]]
    return found + [value for entry in entries for value in entry.values()]


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def runs_in(optimizer: Optimizer, flats: Sequence[FlatMasters]) -> Iterator[Run]:
    """Yield runs of all masters whose gradients and state can be side by side.

    On the CPU: elsewhere the bits were not compared, and to look at steps may wait.
    """
    places = {
        id(master): (flat, position)
        for flat in flats
        if flat.values.is_cpu and not flat.is_sharded
        for position, master in enumerate(flat.masters)
        if master.grad is flat.gradient_views[position]
    }

    def place(row: tuple[int, Tensor]) -> tuple[FlatMasters | None, int, Kinds | None]:
        """Return what is the same for those that are neighbours in both lists."""
        index, parameter = row
        flat, position = places.get(id(parameter), (None, index))
        kinds = kinds_of(optimizer.state.get(parameter, {}), parameter)
        # A fused rule computes what does not fill a vector with other bits.
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
                    yield side_by_side(optimizer, group, flat, run, kinds)


def kinds_of(entry: dict[str, Any], master: Tensor) -> Kinds | None:
    """Return names and dtypes of a master's state; None if it must stay as it is."""
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


def side_by_side(
    optimizer: Optimizer,
    group: Group,
    flat: FlatMasters,
    positions: Sequence[int],
    kinds: Kinds,
) -> Run:
    """Return a run of masters; from now on their state is views of its state."""
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
