"""Float32 masters: creation, flat buffers, and training in place of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from lockstep.errors import warn_user
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.pytorch.base.gradients import dtype_name, named_parameters
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.masters.buffers import (
    FlatMasters,
    addresses_of,
    marks_of,
    same_marks,
    saturating_cast,
)
from lockstep.pytorch.rule_optimizer import RuleOptimizer
from lockstep.pytorch.tensors import shards
from lockstep.pytorch.variable_clipping import VariableClippingOptimizer
from lockstep.quirks import quirks_of

__all__ = ["MasterCopies", "make_masters", "require_masters", "use_masters"]

Masters = dict[Tensor, Tensor]
WIDE = {torch.float32, torch.float64}
"""Dtypes of parameters that are their own masters."""
EVERY = 100
"""So often, in steps, all weights are compared with their masters."""
WRITTEN = -1
"""In place of its version, for a tensor that was written or replaced."""


class MasterCopies:
    """The masters of the weights of one optimizer.

    Attributes:
        masters: weight -> master, for each half-precision weight.
    """

    _flats: list[FlatMasters] | None = None
    _steps = 0
    _finds_hidden = False

    def __init__(self, masters: Masters) -> None:
        self.masters = masters
        self.remember()

    def add(self, fresh: Masters) -> None:
        """Add further masters. What was written since the last step is still known."""
        self.masters.update(fresh)
        self._flats = None
        for marks, tensors in (
            (self._marks, fresh),
            (self._master_marks, fresh.values()),
        ):
            for stored, present in zip(marks, marks_of(tensors), strict=True):
                stored.extend(present)

    def of(self, parameter: Tensor) -> Tensor:
        """Return the master of a parameter, or the parameter if it has none."""
        return self.masters.get(parameter, parameter)

    def has(self, parameter: Any) -> bool:
        """Whether this is a weight with a master."""
        return isinstance(parameter, Tensor) and parameter in self.masters

    def weights(self, parameters: Iterable[Any]) -> list[Any]:
        """Return the parameters, with masters replaced by their weights."""
        of = {id(master): weight for weight, master in self.masters.items()}
        return [of.get(id(parameter), parameter) for parameter in parameters]

    def are_half(self) -> bool:
        """Whether every weight is still in half precision."""
        return all(words.has_master(dtype_name(weight)) for weight in self.masters)

    def require_half(self) -> None:
        """Raise for a weight that is no longer in half precision."""
        for weight in self.masters:
            if not words.has_master(dtype_name(weight)):
                raise refusals.WIDENED_SINCE.error(
                    dtype=weight.dtype, shape=list(weight.shape)
                )

    def buffers(self) -> list[FlatMasters]:
        """Return the flat buffers; rebuild them if a weight or master has moved.

        A weight moves to another device, and ``master.data = values`` moves a master
        out of its buffer. A copy of the masters has no buffers yet.
        """
        flats = self._flats
        stay = flats is not None and all([flat.fits_weights() for flat in flats])
        if not stay or addresses_of(self.masters.values()) != self._master_marks[1]:
            self.require_half()
            flats = self._flats = self._laid_out()
        return flats

    def _laid_out(self) -> list[FlatMasters]:
        """Return new buffers. A master that was written before is still marked so."""
        same = set(self.unchanged_masters())
        flats = flat_masters(self.masters)
        versions, addresses = marks_of(self.masters.values())
        kept = [v if place in same else WRITTEN for place, v in enumerate(versions)]
        self._master_marks = kept, addresses
        return flats

    def write_weights(self, flats: Iterable[FlatMasters]) -> None:
        """Round the masters of all buffers into their weights."""
        for flat in flats:
            flat.write_weights()
        self.remember()

    def clear_gradients(self, set_to_none: bool) -> None:
        """Clear the gradients of the weights, which no optimizer holds."""
        for weight in self.masters:
            if weight.grad is not None:
                weight.grad = None if set_to_none else weight.grad.detach().zero_()

    def remember(self) -> None:
        """Store the present versions and addresses of weights and masters."""
        self._marks = marks_of(self.masters)
        self._master_marks = marks_of(self.masters.values())

    def unchanged_masters(self) -> list[int]:
        """Return the positions of the masters that nobody has written or replaced."""
        are_same = same_marks(self._master_marks, self.masters.values())
        return [place for place, is_same in enumerate(are_same) if is_same]

    @torch.no_grad()
    def copy_changes(self) -> None:
        """Copy changed weights to their masters, as after ``model.load_state_dict``.

        A master stays if its weight is still the rounded master, because the master has
        more digits.
        """
        before, marks = self._marks, marks_of(self.masters)
        if marks == before:
            return
        self.buffers()
        self._marks = marks
        rows = zip(
            self.masters.items(),
            zip(*before, strict=True),
            zip(*marks, strict=True),
            strict=True,
        )
        changed = []
        for place, ((weight, master), then, now) in enumerate(rows):
            if now != then:
                weight_part, part = shards.parts_of([weight, master])
                part.copy_(newest(weight_part, part))
                changed.append(place)
        self._remember_masters(changed)

    def _remember_masters(self, places: Iterable[int]) -> None:
        """Store the present versions and addresses of these masters."""
        now = marks_of(self.masters.values())
        for place in places:
            for stored, present in zip(self._master_marks, now, strict=True):
                stored[place] = present[place]

    @torch.no_grad()
    def copy_hidden_changes(self) -> None:
        """Copy weights that were changed through ``.data``, which no version shows.

        This reads every weight. The first change that it finds causes a warning. A
        master that was itself written stays.
        """
        hidden = 0
        pairs = list(self.masters.items())
        unchanged = self.unchanged_masters()
        same = [pairs[place] for place in unchanged]
        for weight, master in differing(map(shards.parts_of, same)):
            value = newest(weight, master)
            if (value.ne(master) & ~value.isnan()).any():
                master.copy_(value)
                hidden += 1
        if hidden:
            self._remember_masters(unchanged)
        if hidden and not self._finds_hidden:
            self._finds_hidden = True
            warn_user(words.written_through_data(hidden))

    def is_due(self) -> bool:
        """Whether this step checks for changes through ``.data``.

        The first step checks, and then every hundredth. After the first change was
        found, every step checks, because the next update would overwrite the change.
        """
        self._steps += 1
        return self._finds_hidden or self._steps % EVERY == 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to copy or pickle, without buffers and versions.

        For each weight and each master: whether it was not written since the last step.
        """
        return {
            "masters": self.masters,
            "same_weights": same_marks(self._marks, self.masters),
            "same_masters": same_marks(self._master_marks, self.masters.values()),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.masters = state["masters"]
        self.remember()
        marked = (self._marks, "same_weights"), (self._master_marks, "same_masters")
        for (versions, _), key in marked:
            for place, is_same in enumerate(state.get(key, ())):
                versions[place] = versions[place] if is_same else WRITTEN


def newest(weight: Tensor, master: Tensor) -> Tensor:
    """Return the master, with the weight's elements where it was changed."""
    same = saturating_cast(master, weight.dtype).eq(weight) | weight.isnan()
    return torch.where(same, master, weight.float())


def differing(
    masters: Iterable[tuple[Tensor, Tensor]],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the weights, with their masters, that differ from the rounded master.

    This costs one host sync for each GPU. On the CPU, ``equal`` of integers is fastest.
    """
    elsewhere: dict[torch.device, list[tuple[Any, Tensor]]] = {}
    for weight, master in masters:
        bits = saturating_cast(master, weight.dtype).view(torch.int16)
        if not weight.is_cpu:
            flag = bits.ne(weight.view(torch.int16)).any()
            elsewhere.setdefault(weight.device, []).append(((weight, master), flag))
        elif not torch.equal(bits, weight.view(torch.int16)):
            yield weight, master
    for pairs, flags in (zip(*rows, strict=True) for rows in elsewhere.values()):
        yield from compress(pairs, torch.stack(flags).tolist())


def require_masters(optimizer: Optimizer, trained: Iterable[Tensor]) -> None:
    """Raise for a half-precision parameter without a master.

    ``trained`` are the parameters in the groups of ``optimizer``, the wrapper.
    """
    dtypes = {parameter.dtype for parameter in trained}
    for dtype in dtypes - WIDE:
        everything = named_parameters(optimizer).items()
        halves = [(p, name) for p, name in everything if p.dtype == dtype]
        only_float16 = quirks_of(optimizer.strict).half_precision_scalars
        if words.has_master(dtype_name(halves[0][0]), only_float16):
            raise words.halved_since(str(dtype), [name for _, name in halves])


def make_masters(weights: Iterable[Tensor], only_float16: bool) -> Masters:
    """Return a float32 parameter for each weight that is in half precision."""
    return {
        weight: Parameter(weight.detach().float().contiguous(), weight.requires_grad)
        for weight in weights
        if words.has_master(dtype_name(weight), only_float16)
    }


def flat_masters(masters: Masters) -> list[FlatMasters]:
    """Return flat buffers: one per device and dtype, with DTensors apart."""
    alike: dict[tuple[torch.device, torch.dtype, bool], list[Tensor]] = {}
    for weight in masters:
        key = weight.device, weight.dtype, shards.are_among([weight])
        alike.setdefault(key, []).append(weight)
    return [
        FlatMasters(weights, [masters[weight] for weight in weights])
        for weights in alike.values()
    ]


def use_masters(optimizer: Optimizer, masters: Masters, limits_rows: bool) -> None:
    """Replace weights by masters in an optimizer, and its state by float32.

    With ``limits_rows``, row clipping inside clips the masters of its parameters.
    """
    base = base_of(optimizer)
    for group in base.param_groups:
        for weight in group["params"]:
            if weight in masters and weight in base.state:
                slots = base.state.pop(weight)
                base.state[masters[weight]] = state_in_float32(
                    base, group, weight, masters[weight], slots
                )
        group["params"] = [masters.get(p, p) for p in group["params"]]
    while optimizer is not base:
        if isinstance(optimizer, VariableClippingOptimizer) and limits_rows:
            listed = optimizer.limits.items()
            clipped = {masters.get(p, p): axes for p, axes in listed}
            optimizer.limits = clipped
        optimizer = optimizer.inner_optimizer


def state_in_float32(
    base: Optimizer,
    group: dict[str, Any],
    weight: Tensor,
    master: Tensor,
    slots: dict[str, Any],
) -> dict[str, Any]:
    """Return the state of a weight in float32; initialize it again if it is new.

    So an initial value such as 0.1 is rounded to float32 and not to half precision.
    """
    if isinstance(base, RuleOptimizer):
        fresh = base.initial_slots(group, weight)
        if all(torch.equal(slots[name], value) for name, value in fresh.items()):
            return dict(base.initial_slots(group, master))
    if isinstance(base, torch.optim.Adagrad) and not slots["step"]:
        start = group["initial_accumulator_value"]
        return {**slots, "sum": torch.full_like(master, start, requires_grad=False)}
    return {
        name: value.float().contiguous() if has_dtype(value, weight.dtype) else value
        for name, value in slots.items()
    }


def has_dtype(value: Any, dtype: torch.dtype) -> bool:
    """Whether this is a tensor of a dtype.

    Adafactor's state has the dtype of its weight, but not its shape.
    """
    return isinstance(value, Tensor) and value.dtype == dtype
