"""The weights that the workers of one process share, and the getter that makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.interface import Array
from lockstep.reference.optimizers import base_of
from lockstep.reference.state import Slots
from lockstep.reference.variable import Variable
from lockstep.spec import agn as words
from lockstep.spec.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME, Update

__all__ = ["AGNCustomGetter", "Center"]


class Center:
    """Shared variables with the slots that the wrapped rule keeps for them.

    An update is applied by the optimizer of the worker that pushes, so with its rate
    and its powers of beta; the slots of the shared variables are lent to it meanwhile.

    Attributes:
        variables: name of a worker's variable -> the shared one.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.slots: dict[Variable, Slots] = {}

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable of this name; the first worker's is copied."""
        if name not in self.variables:
            full = f"{GLOBAL_VARIABLE_NAME}/{name}"
            self.variables[name] = Variable(full, variable.value)
        shared = self.variables[name]
        found = shared.shape, shared.dtype
        if found != (variable.shape, variable.dtype):
            told = [f"{v.dtype} {list(v.shape)}" for v in (shared, variable)]
            raise words.other_center(name, *told)
        return shared

    def pull(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the shared weights of these names."""
        return {name: self.variables[name].value for name in names}

    def push(self, update: Update) -> None:
        """Apply mean gradients through the worker's optimizer, or add differences."""
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


class AGNCustomGetter:
    """Make the shared variable and the accumulator of each of a worker's variables.

    NumPy has no variable scopes whose getter this could be: it is called with the
    worker's trainable variables instead. Workers share one center::

        first = AGNCustomGetter("/cpu:0")
        first([w])
        second = AGNCustomGetter("/cpu:0", center=first.center)
        second([own_w])  # of the same name as w

    Args:
        worker_device: accepted, no effect.
        center: the :class:`Center` of the other workers; None makes one.
        strict: as ``tf.contrib.opt.AGNCustomGetter`` (1.15): until the init op has run
            an accumulator holds the variable's value.

    Attributes:
        center: what the workers share.
        names: variable -> its name there.
    """

    def __init__(
        self, worker_device: Any, center: Center | None = None, strict: bool = False
    ) -> None:
        self.worker_device = worker_device
        self.center = Center() if center is None else center
        self.strict = strict
        self.names: dict[Variable, str] = {}
        self._global_map: dict[Variable, Variable] = {}
        self._grad_map: dict[Variable, Variable] = {}

    def __call__(self, variables: Iterable[Variable]) -> list[Variable]:
        """Enter trainable variables and return them; those known stay as they are.

        A name that is there already gets a number, so that workers whose variables come
        in one order agree.

        Raises:
            UnsupportedError: a ValueError; the shared variable of a name has another
                shape or dtype.
        """
        entered = list(variables)
        for variable in entered:
            if variable not in self._global_map:
                name = words.unused_name(variable.name, self.names.values())
                self._global_map[variable] = self.center.join(name, variable)
                self.names[variable] = name
                # Quirk: docs/differences.md#agn-accumulator-start
                start = variable.value
                start = start if self.strict else np.zeros_like(start)
                full = f"{GRAD_VARIABLE_NAME}/{name}"
                self._grad_map[variable] = Variable(full, start)
        return entered
