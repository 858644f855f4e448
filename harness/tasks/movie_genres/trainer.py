"""The interface of the backends' trainers, and the recipe of a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from harness.tasks.movie_genres.data import Plan
from lockstep.interface import Array

__all__ = ["Recipe", "Trainer"]


class Recipe(NamedTuple):
    """The recipe from which a backend builds its optimizer.

    Attributes:
        optimizer, arguments: the class of the optimizer, and its arguments by name.
        wrapper: ``none``, or the multitask wrapper, ``default`` or ``strict``.
    """

    optimizer: str
    arguments: Mapping[str, Any]
    wrapper: str


class Trainer(Protocol):
    """The model and optimizer on one backend."""

    def reset(self, plan: Plan) -> None:
        """Use the ratings and the initial weights of a plan; reset all state."""
        ...

    def advance(self, batches: Array, weights: Array) -> None:
        """Train on len(batches) batches; ``weights`` scale the genres' losses."""
        ...

    def measure(self) -> Mapping[str, float]:
        """Return name -> measured value after the steps so far.

        ``loss/GENRE``: mean squared error over the held-out ratings of the genre, in
        stars squared. ``path/GENRE``: sum over the steps of the 2-norm of the head's
        movement.
        """
        ...
