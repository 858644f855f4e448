"""What a run of each task would write, made up: nothing is trained.

The numbers are plausible and partly random; what a test wants to see in them it puts in
itself. See ``synthetic`` for records of the multitask experiment that follow its laws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.declarations.declare import Run
from harness.records.record import Outcome, Record
from harness.tasks import part
from harness.tasks.multitask_digits.task import TASKS
from harness.tests.synthetic import multitask_outcome, record_of

Generator = np.random.Generator


def made_up(run: Run, backend: str, rng: Generator) -> Record:
    """Return the record of a run that ended well."""
    settings = part(run.task, "task").Settings(**run.config)
    return record_of(run, backend, MAKERS[run.task](settings, backend, rng))


def _asynchronous(of: Any, backend: str, rng: Generator) -> Outcome:
    accuracy = rng.uniform(0.3, 1, 6).tolist()
    seconds = np.linspace(0.5, of.minibatches / of.workers, 6).tolist()
    series = {"seconds": seconds, "accuracy": accuracy}
    summary = {
        "accuracy": float(np.mean(accuracy[-5:])),
        "mean_accuracy": float(np.mean(accuracy)),
        "to_target": seconds[int(np.argmax(accuracy))],
        "staleness": 0.0 if of.method == "synchronous" else of.workers - 1.0,
    }
    return Outcome("ok", "", series, summary)


def _link(of: Any, backend: str, rng: Generator) -> Outcome:
    names, points = ("loss", "mrr", "mrr/validation", "norm/highest"), of.measured_at
    series = {name: rng.uniform(0.1, 3, len(points)).tolist() for name in names}
    series["step"] = [float(step) for step in points]
    return Outcome("ok", "", series, {"mrr/chance": 0.05})


def _mixed_text(of: Any, backend: str, rng: Generator) -> Outcome:
    names, points = ("bits", "scale", "skipped"), len(of.measured_at)
    series = {name: rng.uniform(1, 8, points).tolist() for name in names}
    series["step"] = [float(step) for step in of.measured_at]
    return Outcome("ok", "", series, {n: column[-1] for n, column in series.items()})


def _multitask(of: Any, backend: str, rng: Generator) -> Outcome:
    return multitask_outcome(of, float(rng.uniform(0.5, 2)), rng)


def _stable_rates(of: Any, backend: str, rng: Generator) -> Outcome:
    accuracies = rng.uniform(0, 1, len(of.rates)).tolist()
    series = {"rate": list(of.rates), "loss": accuracies, "accuracy": accuracies}
    return Outcome("ok", "", series)


def _training_throughput(of: Any, backend: str, rng: Generator) -> Outcome:
    if of.precision == "fp16":
        return Outcome("ok", "float16 is not timed on a CPU")
    names = ("bare", "wrapped", "bare again")
    return Outcome(
        "ok", "", {}, {f"rate/{n}": float(rng.uniform(9, 99)) for n in names}
    )


def _worker_processes(of: Any, backend: str, rng: Generator) -> Outcome:
    seconds = np.linspace(0, of.seconds, 6).tolist()
    accuracy = np.sort(rng.uniform(0.3, 1, 6)).tolist()
    summary = {
        "accuracy": float(np.mean(accuracy[-5:])),
        "mean_accuracy": float(np.mean(accuracy)),
        "to_target": seconds[-1],
        "steps": float(rng.uniform(50, 500)),
    }
    return Outcome("ok", "", {"seconds": seconds, "accuracy": accuracy}, summary)


def with_metric(record: Record, name: str, value: float) -> Record:
    """Return the record changed so that a metric of its task reads ``value``."""
    series = {k: list(column) for k, column in record.series.items()}
    key = name.replace(" ", "_").removeprefix("steps_")
    if record.task == "multitask_digits":
        for task in TASKS:
            series[f"{name}/{task}"][record.config["checkpoints"]] = value
    if key in series:
        series[key][-1] = value
    summary = {**record.summary, key: value}
    return dataclasses.replace(record, series=series, summary=summary)


MAKERS: Mapping[str, Callable[[Any, str, Generator], Outcome]] = {
    "asynchronous_digits": _asynchronous,
    "link_prediction": _link,
    "mixed_precision_text": _mixed_text,
    "multitask_digits": _multitask,
    "stable_rates": _stable_rates,
    "training_throughput": _training_throughput,
    "worker_processes": _worker_processes,
}
