"""A worker's view of a center in another process, which adds the workers' pushes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lockstep.interface import Array
from lockstep.ray.served_center import layout
from lockstep.ray.worker import RemoteView
from lockstep.reference.agn import Center, Update
from lockstep.reference.arrays import Variable


class RemoteCenter(RemoteView, Center):
    """A center shared by several processes; see the base class."""

    backend = "reference"

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        return {name: variable.value for name, variable in self.variables.items()}

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable ``name``, with the center's value."""
        self.require_fit(layout({name: variable.value}))
        shared = super().join(name, variable)
        shared.value = self.known.get(name, shared.value)
        return shared

    def pull(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the shared weights by name."""
        for name, weight in self.member.pull(names).items():
            self.variables[name].value = np.array(weight)
        return super().pull(names)

    def push(self, update: Update) -> None:
        """Send the accumulated changes to the center."""
        self.send(update.changes)
