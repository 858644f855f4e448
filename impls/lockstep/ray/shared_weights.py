"""What a served center moves: weights as arrays, by some backend's rule or by none."""

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
    """The weights of a center in its own process, and the rule that moves them."""

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return weights by name; a later push does not move what was returned."""
        ...

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Move the weights of these names, with a worker's hyper-parameters."""
        ...

    def saved(self) -> Any:
        """Return weights and state as a tree of :mod:`lockstep.ray.tree`."""
        ...

    def load(self, saved: Any) -> None:
        """Take over what :meth:`saved` returned."""
        ...


class Membership(NamedTuple):
    """What a worker says of itself when it joins.

    Attributes:
        release: the version of lockstep.
        backend: the name of its backend.
        commit: what it pushes.
        layout: its weights.
        groups: names in each parameter group, where the rule has groups.
    """

    release: str
    backend: str
    commit: str
    layout: Layout
    groups: list[list[str]]

    def rule(self) -> str:
        """Return what state of the center belongs to, beside its weights."""
        if self.commit != GRADIENT:
            return f"commit={self.commit!r}"
        return f"commit={self.commit!r} on {self.backend} with groups {self.groups}"


class Start(NamedTuple):
    """What a worker hands to a center that has no weights yet."""

    weights: SharedWeights
    membership: Membership


class SummedWeights:
    """Weights to which changes are added as they are: w = w + change.

    Every backend can push to these, and their process needs no framework.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: np.array(weight) for name, weight in weights.items()}

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return weights; a push makes new arrays, so these stay as they are."""
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
        """Take over the weights."""
        self.weights = dict(saved["weights"])


def layout(weights: Mapping[str, Array]) -> Layout:
    """Return the dtype and the shape of each weight.

    Example:
        >>> layout({"w": np.zeros((2, 3), np.float32)})
        {'w': 'float32 [2, 3]'}
    """
    return {name: f"{w.dtype} {list(w.shape)}" for name, w in weights.items()}
