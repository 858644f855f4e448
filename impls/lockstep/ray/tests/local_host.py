"""A served center in this process, behind the boundary that processes have."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from lockstep.ray.served_center import ServedCenter


class LocalHost:
    """Calls a served center with copies of the arguments, as another process does.

    Attributes:
        center: the served center; None before it is made.
        lost: how many replies to pushes to lose: the call is made, and then made again,
            as Ray does it.
        calls: the names of the methods that were called.
    """

    def __init__(self, folder: Path, every: int = 1, on_nonfinite: str = "refuse"):
        self.arguments = "toy", str(folder), every, on_nonfinite
        self.center: ServedCenter | None = None
        self.lost = 0
        self.calls: list[str] = []

    def __deepcopy__(self, memo: Any) -> LocalHost:
        return self

    def exists(self) -> bool:
        return self.center is not None

    def make(self) -> bool:
        is_new = not self.exists()
        self.center = self.center or ServedCenter(*self.arguments)
        return is_new

    def remove(self) -> None:
        self.center = None

    def crash(self) -> None:
        """Let the process die and be started again."""
        self.center = ServedCenter(*self.arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        assert self.center is not None
        self.calls.append(method)
        reply = getattr(self.center, method)(*copied(arguments))
        if self.lost and method == "push":
            self.lost -= 1
            return self.call(method, *arguments)
        return copied(reply)


def copied(value: Any) -> Any:
    """Return what another process has of a value."""
    return pickle.loads(pickle.dumps(value))
