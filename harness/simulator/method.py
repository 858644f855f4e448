"""The interface of a method of data-parallel training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from lockstep.interface import Array, Gradient

Weights: TypeAlias = Mapping[str, Array]
"""Name of a variable -> its value, of any shape and dtype."""

Gradients: TypeAlias = Mapping[str, Gradient]
"""Name of a variable -> its gradient; absent ones are None or left out."""


class Pushed(NamedTuple):
    """A message that has arrived at the server.

    Attributes:
        arrays: the arrays by name; only their bytes count for the network.
        extra: further numbers, which do not count as bytes.
        staleness: the number of pushes of others that the server applied since this
            worker's last pull.
    """

    arrays: Weights
    extra: Any
    staleness: int


class Method(Protocol):
    """A method: pure functions of the state of a worker and of the server.

    Attributes:
        period: local steps between two pushes of a worker.
        waits_for_all: whether the server waits for a push of every worker and applies
            them together.
    """

    period: int
    waits_for_all: bool

    def worker(self, weights: Weights) -> Any:
        """Return the state of a worker that starts from the server's weights."""
        ...

    def server(self, weights: Weights) -> Any:
        """Return the state of the server."""
        ...

    def weights_of(self, state: Any) -> Weights:
        """Return the weights of a worker or of the server."""
        ...

    def local_step(self, worker: Any, gradients: Gradients) -> Any:
        """Return a worker after one step on its own gradients."""
        ...

    def push(self, worker: Any) -> tuple[Weights, Any]:
        """Return a worker's message at the end of a round: arrays and other numbers."""
        ...

    def apply(self, server: Any, pushed: Sequence[Pushed]) -> tuple[Any, list[Weights]]:
        """Return the server after these pushes, and the reply to each."""
        ...

    def pull(self, worker: Any, reply: Weights) -> Any:
        """Return a worker after it received the reply to its push."""
        ...
