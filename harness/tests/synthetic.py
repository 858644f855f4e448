"""Records as runs would write them, made up from what they are to show."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.declarations.declare import Experiment, Run
from harness.records.files import folder
from harness.records.record import Outcome, Record
from harness.tasks.absent_heads import laws
from harness.tasks.multitask_digits.task import TASKS, Settings

Factor = Callable[[Settings], float]


def as_the_laws_say(settings: Settings) -> float:
    """The movement per informative step that the law gives for this run."""
    window = (settings.steps // 2, settings.steps)
    return laws.movement(
        settings.optimizer, settings.wrapper, settings.presence, window
    )


def without_harm(settings: Settings) -> float:
    """Zeros do nothing."""
    return 1.0


def publish(
    experiment: Experiment,
    root: Path,
    factor: Factor = as_the_laws_say,
    scale: str = "quick",
    keep: float = 1.0,
    diverged: int = 0,
    publish: bool = True,
) -> None:
    """Write records of every run of a scale.

    ``keep`` is what is left of a slot after each absent step with the wrapper;
    ``diverged`` runs of each backend end early.
    """
    for backend in experiment.backends:
        path = folder(experiment.name, publish, root) / f"{backend}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for number, run in enumerate(experiment.runs(scale)):
                record = _record(run, backend, factor, keep, number < diverged)
                file.write(json.dumps(record.as_json()) + "\n")


def _record(
    run: Run, backend: str, factor: Factor, keep: float, diverged: bool
) -> Record:
    settings = Settings(**run.config)
    rng = np.random.default_rng((run.seed, settings.steps))
    outcome = multitask_outcome(settings, factor(settings), rng, keep)
    if diverged:
        columns = {name: column[:4] for name, column in outcome.series.items()}
        outcome = Outcome("diverged", "a loss was not finite", columns)
    return record_of(run, backend, outcome)


def multitask_outcome(
    settings: Settings, factor: float, rng: np.random.Generator, keep: float = 1.0
) -> Outcome:
    """Return a run in which zeros move a weight ``factor`` times as far.

    ``keep`` is what is left of a slot after each absent step with the wrapper.
    """
    steps = np.array(settings.measured_at)
    absent = np.maximum(steps - settings.steps, 0)
    series = {"step": steps}
    for task in TASKS:
        noise = 1 + 0.01 * rng.standard_normal()
        informative = np.round(steps * settings.presence)
        moved = laws.unit(settings.optimizer) * factor * informative * noise
        series[f"informative/{task}"] = informative.astype(int)
        series |= {f"probe/{task}": moved, f"path/{task}": 2 * moved}
        series[f"loss/{task}"] = noise / (1 + 0.01 * informative)
    for optimizer, slot in laws.RATES:
        if optimizer == settings.optimizer["name"]:
            bare = settings.wrapper == "none"
            decay = laws.decay(settings.optimizer, slot) if bare else keep
            series[f"state/head/{slot}"] = 3 * decay**absent
    columns = {name: column.tolist() for name, column in series.items()}
    return Outcome("ok", "", columns)


def record_of(run: Run, backend: str, outcome: Outcome) -> Record:
    """Return the record of a run that led to ``outcome`` on the CPU."""
    subject = {"backend": backend, "device": "cpu", "lockstep": "0"}
    return Record(
        **dataclasses.asdict(run),
        **vars(outcome),
        id=run.id,
        subject=subject,
        environment="0",
    )
