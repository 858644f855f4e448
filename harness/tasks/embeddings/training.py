"""Shared code of tasks with embeddings, whose rows may have limited norms.

A step names a few rows of each table. Their norms are limited by
``VariableClippingOptimizer`` after the step, by one of a task's alternatives, or not at
all. Rows are measured in NumPy, in the same way for all backends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, training
from harness.tasks.schema import Count, Measured, Optimizer, Real, settings
from lockstep.interface import Array

Rows: TypeAlias = Mapping[str, Array]
"""Name of a table -> its rows: [rows, width] float32."""

OVER = 1 + 1e-6
"""A norm is above the limit from this factor on, because clipping is exact to ULPs."""


@settings
class EmbeddingSettings(Measured):
    """The settings of one run, whatever its rows represent.

    Attributes:
        limit: ``none``; ``clip``, rows after each step, by the wrapper; ``normalise``,
            every row to ``max_norm`` before each step; ``penalty``, a part of the loss;
            ``lookup``, rows as they are looked up. A task has some of them.
        max_norm: the largest norm of an unchanged row.
        start: the root mean square of the initial norms of limited rows.
        batch: examples per step.
        width: elements of a row.
    """

    optimizer: Optimizer
    limit: str
    max_norm: Real
    start: Real
    batch: Count
    width: Count


class Plan(NamedTuple):
    """The data of a run on any backend, drawn from one seed.

    Attributes:
        weights: first values of the tables by name.
        batches: [steps, batch, ids] int32.
        columns: for each table, the columns of a batch that hold its ids.
        limited: the tables whose rows are limited.
    """

    weights: Rows
    batches: Array
    columns: Mapping[str, tuple[int, ...]]
    limited: tuple[str, ...]

    def ids(self, table: str, start: int, stop: int) -> Array:
        """Return the unique ids of a table in the steps start + 1, ..., stop."""
        return np.unique(self.batches[start:stop][:, :, list(self.columns[table])])


def trainer_of(
    task: str,
    of: EmbeddingSettings,
    plan: Plan,
    backend: str,
    device: str,
    numbers: Mapping[str, float] = MappingProxyType({}),
    copy: int = 0,
) -> Any:
    """Return a trainer, shared by runs that differ only in data so it compiles once.

    Args:
        task: its name is that of its loss in the model files, a function of
            ``numbers`` and of ``rows``: table -> looked-up rows [batch, ids, width].
        numbers: further arguments of the loss.
        copy: trainers with different numbers are not shared.
    """
    model = backends.model(task, backend)
    loss = partial(getattr(model, task), **numbers)
    shapes = [table.shape for table in plan.weights.values()]
    recipe = of.optimizer, of.limit, of.max_norm, shapes, numbers, copy
    return training.once(
        (task, backend, device, recipe),
        lambda: model.Trainer(of, plan, loss, device),
    )


def walk(
    of: EmbeddingSettings,
    plan: Plan,
    trainer: Any,
    measure: Callable[[int, Rows], Mapping[str, float]],
) -> Outcome:
    """Train and measure; ``measure`` gets the number of steps and the tables then."""
    trainer.reset(plan.weights)

    def advance(start: int, stop: int) -> None:
        trainer.advance(plan.batches[start:stop])

    return training.walk(
        of.measured_at, advance, lambda step: measure(step, trainer.tables())
    )


def norms(table: Array) -> Array:
    """Return the 2-norm of each row: [rows] float64."""
    result: Array = np.linalg.norm(table.astype(np.float64), axis=1)
    return result
