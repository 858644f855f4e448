"""The interface of the backends' trainers with embeddings, and one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.embeddings.settings import EmbeddingSettings
from lockstep.interface import Array
from lockstep.optimizers import OPTIMIZERS

__all__ = [
    "Columns",
    "Plan",
    "Recipe",
    "Rows",
    "Trainer",
    "make_trainer",
    "prepare",
    "recipe_of",
    "trainer_of",
    "walk",
]

Columns = tuple[tuple[str, tuple[int, ...]], ...]
"""Name of a table, and the columns of a batch that hold its ids."""

Rows = Mapping[str, Array]
"""Name of a table -> its rows: [rows, width] float32."""

Measure = Callable[[int, Rows], Mapping[str, float]]
"""(Number of steps, tables after them) -> recorded values, including ``loss``."""


class Recipe(NamedTuple):
    """The recipe from which a backend builds tables and optimizer.

    Attributes:
        task: the package whose ``torch_model``, ``tf_model`` or ``keras_model`` has
            ``loss(rows, ...)``, with ``rows`` a mapping of tables to looked-up rows
            [batch, ids, width].
        numbers: further arguments of the loss.
        optimizer, arguments: the class of the optimizer, and its arguments.
        limit, max_norm: as in the settings.
        limited: the tables whose rows are limited.
        columns: the columns of a batch for each table.
    """

    task: str
    numbers: tuple[tuple[str, float], ...]
    optimizer: str
    arguments: tuple[tuple[str, Any], ...]
    limit: str
    max_norm: float
    limited: tuple[str, ...]
    columns: Columns


class Trainer(Protocol):
    """The tables and optimizer on one backend."""

    def reset(self, weights: Rows) -> None:
        """Set the tables to their first values; reset all state."""
        ...

    def advance(self, batches: Array) -> None:
        """Train on batches [steps, batch, ids] int32; return when that is done."""
        ...

    def tables(self) -> dict[str, Array]:
        """Return a copy of every table as stored."""
        ...

    def serve(self, table: str, ids: Array) -> None:
        """Look up ids [lookups, ids] as a served model does; return when finished."""
        ...


class Plan(NamedTuple):
    """The data of a run on any backend, drawn from one seed.

    Attributes:
        weights: first values of the tables by name.
        batches: [steps, batch, ids] int32.
        columns: the columns of a batch for each table.
        measure: the function that measures a run.
    """

    weights: Rows
    batches: Array
    columns: Columns
    measure: Measure

    def named(self, table: str, start: int, stop: int) -> Array:
        """Return the unique ids of a table in the steps start + 1, ..., stop."""
        columns = list(dict(self.columns)[table])
        return np.unique(self.batches[start:stop][:, :, columns])


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def recipe_of(
    task: str,
    settings: EmbeddingSettings,
    limited: tuple[str, ...],
    columns: Columns,
    **numbers: float,
) -> Recipe:
    """Return the recipe of a run; ``numbers`` are further arguments of the loss."""
    arguments = dict(settings.optimizer)
    optimizer = OPTIMIZERS[arguments.pop("name")].class_name
    bound = tuple(arguments.items())
    how = (settings.limit, settings.max_norm, limited, columns)
    return Recipe(task, tuple(numbers.items()), optimizer, bound, *how)


@cache
def trainer_of(recipe: Recipe, backend: str, device: str) -> Trainer:
    """Return the trainer of a recipe, shared by its runs so that it compiles once."""
    return make_trainer(recipe, backend, device)


def make_trainer(recipe: Recipe, backend: str, device: str) -> Trainer:
    """Return a new trainer of a recipe."""
    loss = backends.model(f"harness.tasks.{recipe.task}", backend).loss
    model = backends.model(__package__, backend)
    trainer: Trainer = model.EmbeddingTrainer(
        recipe, partial(loss, **dict(recipe.numbers)), device
    )
    return trainer


def walk(settings: EmbeddingSettings, plan: Plan, trainer: Trainer) -> Outcome:
    """Train and measure; the run has diverged if a loss is non-finite."""
    trainer.reset(plan.weights)
    rows = [_row(plan, 0, trainer)]
    for start, stop in pairwise(settings.measured_at):
        trainer.advance(plan.batches[start:stop])
        rows.append(_row(plan, stop, trainer))
        if not np.isfinite(rows[-1]["loss"]):
            reason = f"the loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    return Outcome("ok", "", _columns(rows))


def _row(plan: Plan, step: int, trainer: Trainer) -> dict[str, float]:
    with np.errstate(all="ignore"):  # a run that diverges is measured as well
        return {"step": step, **plan.measure(step, trainer.tables())}


def _columns(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
