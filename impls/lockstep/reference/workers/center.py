"""Weights shared by the workers of one process, and the getter that creates them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array
from lockstep.messages.workers import center as words
from lockstep.messages.workers import getter as agn_getter
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.messages.workers.center import Update
from lockstep.quirks import quirks_of
from lockstep.ray.center import RayCenter, as_ray_host
from lockstep.reference.optimizers.classes import base_of
from lockstep.reference.optimizers.rules import Slots
from lockstep.reference.tensors.variable import Variable

__all__ = ["AGNCustomGetter", "Center"]


class Center(words.CenterOfProcess):
    """Shared variables and their optimizer slots.

    The optimizer of the worker that pushes applies the update, with its own learning
    rate and powers of beta. During the update it uses the shared variables' slots.

    Attributes:
        variables: name of a worker's variable -> the shared variable.
        slots: shared variable -> its slots.
        lock: held while a thread pushes, pulls, or adds variables.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.slots: dict[Variable, Slots] = {}
        self.lock = words.CenterLock()

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable ``name``; the first worker's value is copied."""
        if name not in self.variables:
            full = f"{GLOBAL_VARIABLE_NAME}/{name}"
            self.variables[name] = Variable(full, variable.value)
        shared = self.variables[name]
        like = shared.shape, shared.dtype
        if like != (variable.shape, variable.dtype):
            raise refusals.OTHER_CENTER.error(
                name=name,
                shared=f"{shared.dtype} {list(shared.shape)}",
                own=f"{variable.dtype} {list(variable.shape)}",
            )
        return shared

    def pull(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the shared weights by name."""
        with self.lock:
            return {name: self.variables[name].value for name in names}

    def push(self, update: Update) -> None:
        """Apply mean gradients with the worker's optimizer, or add differences."""
        with self.lock:
            self._apply(update)

    def _apply(self, update: Update) -> None:
        pairs = [
            (change, self.variables[name]) for name, change in update.changes.items()
        ]
        if update.optimizer is None:
            for change, variable in pairs:
                variable.value = np.asarray(variable.value + change)
            return
        base = base_of(update.optimizer)
        base.slots.update(self.slots)
        update.optimizer.apply_gradients(pairs)
        for variable in self.variables.values():
            if variable in base.slots:
                self.slots[variable] = base.slots.pop(variable)

    def slot(self, variable: Variable, name: str) -> Array | None:
        """Return a slot of a shared variable; None before its first push."""
        return self.slots.get(variable, {}).get(name)


@documented
class AGNCustomGetter:
    """Make the shared variable and the accumulator of each of a worker's variables.

    NumPy has no variable scopes, so the getter is called with the worker's trainable
    variables instead. Workers share one center::

        first = AGNCustomGetter("/cpu:0")
        first([w])
        second = AGNCustomGetter("/cpu:0", center=first.center)
        second([own_w])  # of the same name as w

    Args:
        worker_device: accepted, no effect.

    Attributes:
        ...
        names: variable -> its name at the center.
    """

    def __init__(
        self,
        worker_device: Any,
        center: Center | RayCenter | str | None = None,
        strict: bool = False,
    ) -> None:
        self.worker_device = worker_device
        self.center = center_of(center)
        self.quirks = quirks_of(strict)
        self.names: dict[Variable, str] = {}
        self.may_add = False
        self._global_map: dict[Variable, Variable] = {}
        self._grad_map: dict[Variable, Variable] = {}

    def __call__(self, variables: Iterable[Variable]) -> list[Variable]:
        """Register trainable variables and return them; known variables do not change.

        A name that is already taken gets a number, so workers must register their
        variables in the same order. The worker that registers first may add variables
        later; other workers can only use existing ones.

        Raises:
            GetterError: a TypeError; an entry is no variable, or there is none.
            UnsupportedError: a ValueError; the center has no variable of that name, or
                one of another shape or dtype.
        """
        entered = list(agn_getter.require_several(variables, is_variable, "variables"))
        for entry in entered:
            if not is_variable(entry):
                got = f"{type(entry).__name__} among them"
                raise agn_getter.not_variables("variables", got)
        with self.center.lock:
            new = self._named(entered)
            self.may_add = self.may_add or not self.center.variables
            if not self.may_add:
                agn_getter.check_names(self.center.variables, list(new))
            for name, variable in new.items():
                self._enter(name, variable)
        return entered

    def _enter(self, name: str, variable: Variable) -> None:
        """Register a variable with its shared variable and its accumulator."""
        self._global_map[variable] = self.center.join(name, variable)
        self.names[variable] = name
        start = variable.value
        if not self.quirks.agn_accumulator_start:
            start = np.zeros_like(start)
        self._grad_map[variable] = Variable(f"{GRAD_VARIABLE_NAME}/{name}", start)

    def _named(self, variables: Iterable[Variable]) -> dict[str, Variable]:
        """Return the new variables by their names at the center."""
        new: dict[str, Variable] = {}
        for variable in variables:
            if variable not in self._global_map and variable not in new.values():
                taken = {*self.names.values(), *new}
                new[words.unused_name(variable.name, taken)] = variable
        return new


def center_of(center: Any) -> Center:
    """Return the center for an argument: a new one, the given one, or one on Ray."""
    if host := as_ray_host(center):
        # Imported here because it imports this module.
        from lockstep.reference.workers.remote import RemoteCenter

        return RemoteCenter(host)
    agn_getter.check_center(center, Center)
    own: Center = Center() if center is None else center.for_worker()
    return own


def is_variable(found: Any) -> bool:
    """Return whether an object is a variable of the reference."""
    return isinstance(found, Variable)
