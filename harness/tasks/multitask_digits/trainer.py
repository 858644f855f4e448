"""The interface of the backends' trainers, and the recipe of a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from harness.tasks.multitask_digits.data import Plan
from lockstep.interface import Array

__all__ = ["Recipe", "Trainer"]


class Recipe(NamedTuple):
    """The recipe from which a backend builds its model and optimizer.

    Attributes:
        optimizer, arguments: the class of the optimizer, and its arguments by name.
        wrapper: ``none``, or the multitask wrapper, ``default`` or ``strict``.
        slots: names of the optimizer's slots, the same on every backend.
    """

    optimizer: str
    arguments: Mapping[str, Any]
    wrapper: str
    slots: Sequence[str]


class Trainer(Protocol):
    """The model and optimizer on one backend."""

    def reset(self, plan: Plan) -> None:
        """Use the images and the initial weights of a plan; reset all state."""
        ...

    def advance(self, batches: Array, weights: Array) -> None:
        """Train on len(batches) batches; ``weights`` scale the tasks' losses."""
        ...

    def measure(self) -> Mapping[str, float]:
        """Return name -> measured value after the steps so far.

        ``loss/TASK``: mean over the held-out images (nats, nats, variances).
        ``probe/TASK``: the probe's weight. ``path/TASK``: sum over the steps of the
        2-norm of the head's movement. ``state/probe/SLOT``, ``state/head/SLOT``: the
        2-norm of the slots of parity's probe and head.
        """
        ...
