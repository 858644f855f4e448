"""Sweeps: every arm is trained at several values of one setting, and one is chosen.

An experiment with ``[tune]`` trains each arm (a combination of ``vary``) at every value
on validation seeds, on its first backend. The value with the best median is chosen for
the arm. All backends then train the arm with it, on the seeds of the report. A choice
depends only on records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from harness.declarations.toml_files import (
    Count,
    Positive,
    Table,
    flat,
    leaves,
    wrong,
)
from harness.errors import HarnessError
from harness.records.metrics import Metric, metrics_of
from lockstep.errors import sentence

if TYPE_CHECKING:
    import pandas as pd

    from harness.declarations.declare import Experiment, Run
    from harness.records.record import Record

FIRST_SEED = 1000
"""First validation seed. A report has fewer seeds, so no seed is used for both."""

LEAST = 5
"""Smallest number of values: fewer show neither the optimum nor its width."""


def increasing(values: list[float]) -> list[float]:
    """Return the values of a sweep; raise unless each is larger than the last one."""
    if values != sorted(set(values)):
        raise wrong(f"expected numbers in increasing order, got {values}.")
    return values


Values = Annotated[list[Positive], Field(min_length=LEAST), AfterValidator(increasing)]


class Tune(Table):
    """The sweep of an experiment.

    Attributes:
        seeds: number of validation seeds: 1000, 1001, ...
        metric: the task's metric. Its median over these seeds decides.
        swept: the tuned setting with its values, as in the file.
    """

    seeds: Count
    metric: str
    swept: Annotated[
        dict[str, Values],
        BeforeValidator(flat),
        Field(alias="values", min_length=1, max_length=1),
    ]

    @property
    def path(self) -> str:
        """The tuned setting, such as ``optimizer.learning_rate``."""
        return next(iter(self.swept))

    @property
    def values(self) -> list[float]:
        """Its values, in increasing order."""
        return self.swept[self.path]

    @property
    def validation_seeds(self) -> range:
        """The seeds on which values are compared."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)

    def settings(self, arm: Mapping[str, Any], value: float) -> dict[str, Any]:
        """Return the settings of an arm with this value of the tuned setting."""
        return _put(arm, self.path.split("."), value)

    def value(self, config: Mapping[str, Any]) -> float:
        """Return the value of the tuned setting in a configuration."""
        value: float = dict(leaves(config))[self.path]
        return value


def _put(content: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = _put(content[first], rest, value) if rest else value
    return {**content, first: inner}


@dataclass(frozen=True)
class Choice:
    """The value chosen for one arm.

    Attributes:
        config: the settings of the arm with the chosen value.
        scores: value -> median of the metric; the worst score if it diverged.
    """

    config: Mapping[str, Any]
    value: float
    scores: Mapping[float, float]

    @property
    def at_edge(self) -> bool:
        """Whether the value is the first or the last of the sweep."""
        return self.value in (min(self.scores), max(self.scores))


def with_choices(experiment: Experiment, *sources: Sequence[Record]) -> Experiment:
    """Return the experiment with the values chosen from records, at every scale.

    At each scale, the first source that has any choices is used. Of several devices,
    the one with the most swept arms is used; if equal, the CPU.

    Args:
        sources: records of a folder, in any order. Records of other backends than the
            experiment's first one are ignored.
    """
    if experiment.tune is None:
        return experiment
    devices = [_by_device(records, experiment.backends[0]) for records in sources]
    chosen: dict[str, Sequence[Choice]] = {}
    for scale in experiment.scales:
        runs = experiment.validation_runs(scale)
        for of_source in devices:
            every = [_choices(experiment, runs, records) for records in of_source]
            chosen[scale] = max(every, key=len)
            if chosen[scale]:
                break
    return experiment.model_copy(update={"choices": chosen})


def _by_device(records: Sequence[Record], backend: str) -> list[dict[str, Record]]:
    """Return the settled records of a backend by id, for each device; first the CPU."""
    devices: dict[str, dict[str, Record]] = {"cpu": {}}
    for record in records:
        if record.settled and record.subject["backend"] == backend:
            devices.setdefault(record.subject["device"], {})[record.id] = record
    return list(devices.values())


def _choices(
    experiment: Experiment, runs: Sequence[Run], records: Mapping[str, Record]
) -> list[Choice]:
    """Choose a value for each arm whose validation runs are all recorded.

    The best median wins; if equal, the smallest value. A run that diverged, or whose
    metric is NaN, is worse than any other.

    Args:
        runs: all validation runs.
        records: the records of one backend and device by id.
    """
    tune = experiment.tune
    assert tune is not None
    metric = metrics_of(experiment.task)[tune.metric]
    sign = 1.0 if metric.better == "smaller" else -1.0
    arms: dict[str, dict[float, list[Run]]] = {}
    for run in runs:
        arm = json.dumps(tune.settings(run.config, math.nan), sort_keys=True)
        values = arms.setdefault(arm, {})
        values.setdefault(tune.value(run.config), []).append(run)
    choices = []
    for values in arms.values():
        if not all(run.id in records for of in values.values() for run in of):
            continue
        costs = {
            value: float(
                np.median([_cost(tune, metric, sign, records[run.id]) for run in of])
            )
            for value, of in values.items()
        }
        best = min(costs, key=lambda value: costs[value])
        scores = {value: sign * cost for value, cost in costs.items()}
        choices.append(Choice(values[best][0].config, best, scores))
    return choices


def _cost(tune: Tune, metric: Metric, sign: float, record: Record) -> float:
    """Return the cost of a run: infinite if it diverged."""
    if record.status == "diverged":
        return math.inf
    try:
        value = float(metric.read(record))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        expected = f"a record that has the metric {tune.metric!r}"
        got = f"{type(error).__name__}: {error}"
        remedy = "run the experiment anew, or name another metric in [tune]"
        text = sentence(record.experiment, expected, got, remedy)
        raise HarnessError(text) from error
    return math.inf if math.isnan(value) else sign * value


def sweep_table(experiment: Experiment, scale: str) -> pd.DataFrame:
    """Return one row per arm and value: settings, median metric, whether chosen.

    The settings are those that differ between arms.
    """
    import pandas as pd  # Not at the top: workers import this and should start fast.

    tune, chosen = experiment.tune, experiment.choices.get(scale, ())
    assert tune is not None
    settings = [dict(leaves(choice.config)) for choice in chosen]
    differing = [
        name
        for name in dict.fromkeys(name for each in settings for name in each)
        if name != tune.path
        and name.rpartition(".")[2] not in ("file", "text")  # of an own optimizer
        and len({repr(each.get(name)) for each in settings}) > 1
    ]
    rows = [
        {
            **{name: each.get(name) for name in differing},
            tune.path: value,
            tune.metric: score,
            "chosen": value == choice.value,
        }
        for choice, each in zip(chosen, settings, strict=True)
        for value, score in choice.scores.items()
    ]
    return pd.DataFrame(rows)


def choice_lines(experiment: Experiment, scale: str) -> list[str]:
    """Return one line per arm for a terminal: its settings and the chosen value."""
    tune, table = experiment.tune, sweep_table(experiment, scale)
    assert tune is not None
    chosen = table[table["chosen"]].drop(columns="chosen").astype(object)
    lines = []
    for row in chosen.where(chosen.notna(), None).to_dict("records"):
        value, score = row.pop(tune.path), row.pop(tune.metric)
        settings = {str(k).rpartition(".")[2]: v for k, v in row.items()}
        arm = ", ".join(f"{k} {v}" for k, v in settings.items() if v is not None)
        lines.append(f"{arm}: {tune.path} {value:g} ({tune.metric} {score:.3g})")
    return lines
