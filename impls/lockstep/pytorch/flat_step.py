"""Float32 masters in flat buffers, and steps of an optimizer on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from lockstep.pytorch import foreach
from lockstep.pytorch.fused import has_hooks

HALF = {torch.float16: 65504.0, torch.bfloat16: (2 - 2**-7) * 2.0**127}
"""Dtype with a master -> the magnitude to which its weights are clamped."""
CHUNK = 1 << 20
"""About so many masters are rounded into weights at once, from the cache."""
ALIGNMENT = 16
"""A fused rule computes elements that do not fill a vector register with other bits."""
LONGEST = 1 << 20
"""About so many elements go at once: a rule may need as many more for a moment."""
STEP = "step"
ELEMENTWISE = {SGD, Adam, AdamW, Adagrad, RMSprop}
"""Optimizers whose rule treats each element by itself."""


class FlatMasters:
    """The masters of the weights of one device and dtype, and their gradients.

    They are views of flat buffers, so a norm or a division needs one kernel.
    """

    def __init__(self, weights: list[Tensor], masters: list[Tensor]) -> None:
        self.weights, self.masters = weights, masters
        self.device, self.dtype = weights[0].device, weights[0].dtype
        starts, size = [], 0
        for weight in weights:
            starts.append(size)
            size += -(-weight.numel() // ALIGNMENT) * ALIGNMENT
        self.places = [(s, w.shape) for s, w in zip(starts, weights, strict=True)]
        self.values = torch.zeros(size, dtype=torch.float32, device=self.device)
        self.gradients = torch.zeros_like(self.values)
        self.views = self.views_of(self.values)
        self.gradient_views = self.views_of(self.gradients)
        foreach.copy(self.views, [master.detach() for master in masters])
        for master, view in zip(masters, self.views, strict=True):
            master.data = view
        self.versions = [weight._version for weight in weights]

    def views_of(self, buffer: Tensor) -> list[Tensor]:
        return [buffer[s : s + shape.numel()].view(shape) for s, shape in self.places]

    def fits(self) -> bool:
        """Whether the weights are where they were, in the same dtype."""
        dtypes = {weight.dtype for weight in self.weights}
        return dtypes == {self.dtype} and self.weights[0].device == self.device

    def copy_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy dense gradients to float32; a weight without one gets zeros."""
        views = self.gradient_views
        dense = [g is not None and not g.is_sparse for g in gradients]
        if not all(dense):
            foreach.zero(
                [v for v, is_in in zip(views, dense, strict=True) if not is_in]
            )
        # After ``unscale_``, the gradient of a weight is a view of the buffer itself.
        if not all(dense) or any(map(is_, views, gradients)):
            rows = zip(views, gradients, dense, strict=True)
            pairs = [(v, g) for v, g, is_in in rows if is_in and v is not g]
            views, gradients = [v for v, _ in pairs], [g for _, g in pairs]
        if views:
            foreach.copy(views, gradients)

    @torch.no_grad()
    def write_weights(self) -> None:
        """Round the masters into the weights, clamped to the range of their dtype."""
        largest = HALF[self.dtype]
        for run in foreach.runs_alike(self.views, range(len(self.views)), CHUNK):
            first, last = self.places[run[0]], self.places[run[-1]]
            part = self.values[first[0] : last[0] + last[1].numel()]
            views = self.views[run[0] : run[-1] + 1]
            # No magnitude is larger than the norm, which is quick on the CPU.
            if not part.is_cpu or not torch.linalg.vector_norm(part).item() < largest:
                views = torch._foreach_clamp_max(views, largest)
                torch._foreach_clamp_min_(views, -largest)
            foreach.copy(self.weights[run[0] : run[-1] + 1], views)
        self.versions = [weight._version for weight in self.weights]

    @torch.no_grad()
    def follow_weights(self) -> None:
        """Take over weights that were written since the last step."""
        versions = [weight._version for weight in self.weights]
        if versions == self.versions:
            return
        largest = HALF[self.dtype]
        for k, weight in enumerate(self.weights):
            if versions[k] != self.versions[k]:
                master = self.views[k]
                # Where the weight is still the rounded master, that has more digits.
                rounded = master.clamp(-largest, largest).to(weight.dtype)
                master.copy_(torch.where(rounded.eq(weight), master, weight.float()))
        self.versions = versions


class Run(NamedTuple):
    """Neighbours in a buffer, and all of them as one parameter, ``values``.

    The state of each master is a view of ``state``, so that it may be updated alone.
    """

    group: dict[str, Any]
    masters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    values: Tensor
    state: dict[str, Tensor]
    steps: Tensor | None

    def is_ready(self) -> bool:
        """Whether a step of ``values`` equals a step of each master at present."""
        starts = not self.state and self.group["momentum"]
        if starts or not same([master.grad for master in self.masters], self.gradients):
            return False
        return self.steps is None or len(set(self.steps.tolist())) == 1

    def finish(self) -> None:
        """Give the masters the step count of ``values``, and increment versions."""
        increment_version(self.masters)
        if self.steps is not None:
            self.steps.fill_(self.state[STEP])


class FlatStep:
    """Steps of an optimizer, if it is elementwise, on a few long tensors."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._seen: list[Any] = []
        self._runs: list[Run] = []

    def step(self, flats: Sequence[Any]) -> None:
        optimizer = self.optimizer
        if type(optimizer) in ELEMENTWISE and not (
            "step" in vars(optimizer)
            or optimizer._optimizer_step_post_hooks
            or has_hooks(optimizer)
        ):
            if not same(self._parts(flats), self._seen):
                self._runs = list(runs_in(optimizer, flats))
                self._seen = self._parts(flats)
        else:
            self._runs, self._seen = [], []
        ready = [run for run in self._runs if run.is_ready()]
        groups, state = optimizer.param_groups, optimizer.state
        listed = [group["params"] for group in groups]
        taken = {id(master) for run in ready for master in run.masters}
        try:
            for run in ready:
                state[run.values] = dict(run.state)
            for group, parameters in zip(groups, listed, strict=True) if ready else ():
                flat = [run.values for run in ready if run.group is group]
                group["params"] = flat + [p for p in parameters if id(p) not in taken]
            optimizer.step()
        finally:
            for group, parameters in zip(groups, listed, strict=True):
                group["params"] = parameters
            for run in ready:
                del state[run.values]
                run.finish()

    def _parts(self, flats: Sequence[Any]) -> list[Any]:
        """Return all objects that runs consist of and that a user may replace."""
        entries = list(self.optimizer.state.values())
        found: list[Any] = [self.optimizer.state, *flats, *entries]
        for group in self.optimizer.param_groups:
            found += [group, group.get("fused"), *group["params"]]
        return found + [value for entry in entries for value in entry.values()]


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def runs_in(optimizer: Optimizer, flats: Sequence[Any]) -> Iterator[Run]:
    """Yield runs of masters on the CPU whose gradients and state can be contiguous."""
    places = {
        id(master): (flat, position)
        for flat in flats
        if flat.values.is_cpu
        for position, master in enumerate(flat.masters)
        if master.grad is flat.gradient_views[position]
    }

    def place(row: tuple[int, Tensor]) -> Any:
        """Return a key that is equal for neighbours in the group and in the buffer."""
        index, parameter = row
        flat, position = places.get(id(parameter), (None, index))
        entry = optimizer.state.get(parameter, {})
        fits = [
            isinstance(value, Tensor)
            and value.layout == torch.strided
            and value.shape == (torch.Size() if name == STEP else parameter.shape)
            and value.device == parameter.device
            for name, value in entry.items()
        ]
        stateless = isinstance(optimizer, SGD) and not group["momentum"]
        odd = group.get("fused") and parameter.numel() % ALIGNMENT
        if not all(fits) or not (entry or stateless) or odd:
            flat = None
        return flat, position - index, [(k, v.dtype) for k, v in entry.items() if flat]

    for group in optimizer.param_groups:
        for (flat, offset, kinds), rows in groupby(enumerate(group["params"]), place):
            positions = [index + offset for index, _ in rows]
            runs = foreach.runs_alike(flat.masters, positions, LONGEST) if flat else ()
            for run in runs:
                if len(run) > 1:
                    part = slice(run[0], run[-1] + 1)
                    yield make_run(optimizer, group, flat, part, kinds)


def make_run(
    optimizer: Optimizer, group: Any, flat: Any, which: slice, kinds: Any
) -> Run:
    """Return a run of masters, and make their state views of its state."""
    places, masters = flat.places[which], flat.masters[which]
    begin, end = places[0][0], places[-1][0] + places[-1][1].numel()
    values = flat.values[begin:end]
    values.grad = flat.gradients[begin:end]
    entries = [optimizer.state[master] for master in masters if kinds]
    state: dict[str, Tensor] = {}
    steps = None
    for name, dtype in kinds:
        old = [entry[name] for entry in entries]
        if name == STEP:
            steps = torch.stack(old)
            views = list(steps.unbind())
            state[name] = views[0]
        else:
            state[name] = torch.zeros_like(values, dtype=dtype)
            parts = [(start - begin, shape) for start, shape in places]
            views = [
                state[name][s : s + shape.numel()].view(shape) for s, shape in parts
            ]
            foreach.copy(views, old)
        for entry, view in zip(entries, views, strict=True):
            entry[name] = view
    return Run(group, masters, flat.gradient_views[which], values, state, steps)
