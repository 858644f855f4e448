"""The weights of a served center as arrays, with a backend's update rule or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from lockstep.interface import Array
from lockstep.messages.workers.agn import GRADIENT

__all__ = ["Layout", "Membership", "SharedWeights", "Start", "SummedWeights", "layout"]

Layout = dict[str, str]
"""Name of a weight -> its dtype and shape, such as ``float32 [2, 3]``."""


class SharedWeights(Protocol):
    """The weights of a center in its own process, and the rule that updates them."""

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return weights by name; a later push does not change the returned arrays."""
        ...

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Update the weights of these names, with a worker's hyper-parameters."""
        ...

    def saved(self) -> Any:
        """Return weights and state as a tree of :mod:`lockstep.ray.tree`."""
        ...

    def load(self, saved: Any) -> None:
        """Load the result of :meth:`saved`."""
        ...


class Membership(NamedTuple):
    """The description of a worker that joins.

    Attributes:
        release: the version of lockstep.
        backend: the name of its backend.
        commit: the kind of its pushes.
        layout: the dtypes and shapes of its weights.
        groups: the names in each parameter group, if the rule has groups.
    """

    release: str
    backend: str
    commit: str
    layout: Layout
    groups: list[list[str]]

    def rule(self) -> str:
        """Return a description of the rule, which a checkpoint must match."""
        if self.commit != GRADIENT:
            return f"commit={self.commit!r}"
        return f"commit={self.commit!r} on {self.backend} with groups {self.groups}"


class Start(NamedTuple):
    """The data that a worker sends to a center without weights."""

    weights: SharedWeights
    membership: Membership


class SummedWeights:
    """Weights to which changes are added: w = w + change.

    Workers of every backend can push to them; their process needs no framework.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: np.array(weight) for name, weight in weights.items()}

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return weights; a push creates new arrays, so these do not change."""
        chosen = self.weights if names is None else names
        return {name: self.weights[name] for name in chosen}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Add changes; there are no hyper-parameters."""
        with np.errstate(all="ignore"):
            for name, change in changes.items():
                self.weights[name] = np.asarray(self.weights[name] + change)

    def saved(self) -> Any:
        """Return the weights."""
        return {"weights": self.weights}

    def load(self, saved: Any) -> None:
        """Load the weights."""
        self.weights = dict(saved["weights"])


def layout(weights: Mapping[str, Array]) -> Layout:
    """Return the dtype and the shape of each weight.

    Example:
        >>> layout({"w": np.zeros((2, 3), np.float32)})
        {'w': 'float32 [2, 3]'}
    """
    return {name: f"{w.dtype} {list(w.shape)}" for name, w in weights.items()}
