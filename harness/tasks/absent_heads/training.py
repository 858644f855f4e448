"""Shared code of the tasks whose heads are absent from some of the steps.

They compare three ways to handle an absent head: feed its optimizer zeros; also divide
the loss of a step by its number of present tasks; or do not update the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, training
from lockstep.interface import Array
from lockstep.optimizers import OPTIMIZERS

Wrapper: TypeAlias = Literal["none", "mean", "default", "strict"]
"""How a step handles absent tasks. ``default`` and ``strict``: the multitask wrapper in
this mode. ``none``: zeros are fed. ``mean``: zeros are fed, and the loss of a step is
the mean over the present tasks; otherwise it is their sum."""

WRAPPED = ("default", "strict")


class Recipe(NamedTuple):
    """The recipe from which a backend builds its model and optimizer.

    Attributes:
        optimizer: the setting.
        wrapper: ``none``, ``default`` or ``strict``.
        slots: names of the optimizer's slots, the same on every backend.
        hidden: the width of the trunk; a compiled step has fixed shapes.
    """

    optimizer: Mapping[str, Any]
    wrapper: str
    slots: tuple[str, ...]
    hidden: int


def trainer_of(task: str, of: Any, backend: str, device: str) -> Any:
    """Return the trainer of a task, shared by runs so that it compiles once."""
    slots: tuple[str, ...] = ()
    if "file" not in of.optimizer:
        arguments = dict(of.optimizer)
        spec = OPTIMIZERS[arguments.pop("name")]
        slots = tuple(slot.name for slot in spec.active_slots(arguments))
    wrapper = of.wrapper if of.wrapper in WRAPPED else "none"
    recipe = Recipe(of.optimizer, wrapper, slots, of.hidden)
    return training.once(
        (task, recipe, backend, device),
        lambda: backends.model(task, backend).Trainer(recipe, device),
    )


def walk(of: Any, plan: Any, trainer: Any, heads: Sequence[str]) -> Outcome:
    """Do one run; ``informative/HEAD`` counts the steps in which a head is present.

    Args:
        plan: has ``batches`` [steps, batch] and ``presence`` [steps, heads], 1 where a
            head is present and 0 where it is absent.
    """
    weights = loss_weights(plan.presence, of.wrapper)
    trainer.reset(plan)

    def advance(start: int, stop: int) -> None:
        trainer.advance(plan.batches[start:stop], weights[start:stop])

    def measure(step: int) -> dict[str, float]:
        counts = plan.presence[:step].sum(axis=0, dtype=np.int64).tolist()
        return {**by_head(heads, informative=counts), **trainer.measure()}

    losses = [f"loss/{head}" for head in heads]
    return training.walk(of.measured_at, advance, measure, losses)


def draw_weights(
    stream: np.random.Generator, shapes: Mapping[str, tuple[int, int]]
) -> dict[str, Array]:
    """Draw weights of variance 1/inputs; each layer's last input is the bias."""
    return {
        name: (stream.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }


def loss_weights(presence: Array, wrapper: Wrapper) -> Array:
    """Return the factor of each head's loss: [steps, heads] float32."""
    weights = presence.astype(np.float32)
    if wrapper != "mean":
        return weights
    counts = np.maximum(weights.sum(axis=1, keepdims=True), 1)
    return np.asarray(weights / counts, np.float32)


def by_head(heads: Sequence[str], **values: Sequence[float]) -> dict[str, float]:
    """Return KIND/HEAD -> value for values by kind, in the order of the heads."""
    return {
        f"{kind}/{head}": value
        for kind, column in values.items()
        for head, value in zip(heads, column, strict=True)
    }
