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
from harness.records.metrics import metrics_of
from harness.records.record import Outcome, Record
from harness.tasks import part
from harness.tasks.deep_digits.task import around
from harness.tasks.movie_genres.task import GENRES, RAREST
from harness.tasks.multitask_digits.task import TASKS
from harness.tasks.stable_rates.report import range_of
from harness.tasks.stable_rates.task import stable_range
from harness.tasks.worker_team.task import PERIODS
from harness.tests.synthetic import multitask_outcome, record_of

__all__ = ["made_up", "with_metric"]

Generator = np.random.Generator


def made_up(run: Run, backend: str, rng: Generator) -> Record:
    """Return the record of a run that ended well."""
    settings = part(run.task, "task").Settings(**run.config)
    return record_of(run, backend, MAKERS[run.task](settings, backend, rng))


def _asynchronous(of: Any, backend: str, rng: Generator) -> Outcome:
    accuracy = rng.uniform(0.3, 1, 6).tolist()
    seconds = np.linspace(0.5, of.minibatches / of.workers, 6).tolist()
    counts = np.linspace(1, of.minibatches, 6).tolist()
    series = {"minibatches": counts, "seconds": seconds, "accuracy": accuracy}
    summary = {
        "accuracy": float(np.mean(accuracy[-5:])),
        "mean_accuracy": float(np.mean(accuracy)),
        "seconds": seconds[-1],
        "to_target": seconds[int(np.argmax(accuracy))],
        "staleness": 0.0 if of.method == "synchronous" else of.workers - 1.0,
        "megabytes": 1.0,
    }
    return Outcome("ok", "", series, summary)


def _deep(of: Any, backend: str, rng: Generator) -> Outcome:
    points = len(of.measured_at)
    names = ("loss", "accuracy", "scale", "skipped", "zero/weights", "zero/activations")
    series = {name: rng.uniform(0, 1, points).tolist() for name in names}
    series["step"] = [float(step) for step in of.measured_at]
    summary = {name: column[-1] for name, column in series.items()}
    summary |= around(rng.uniform(1, 9, of.steps + 1).tolist(), of.overflow)
    if of.dtype == "float32":
        counts = {"-28": 60, "-22": 40, "-21": 1, "zero": 0}
        for kind in ("weights", "activations"):
            summary |= {f"{kind}/{name}": n for name, n in counts.items()}
    return Outcome("ok", "", series, summary)


def _link(of: Any, backend: str, rng: Generator) -> Outcome:
    names = (*part("link_prediction", "report").SERIES, "mrr/validation")
    chance = {"mrr/chance": 0.05, "hits/chance": 0.1}
    return Outcome("ok", "", _embedded(of, names, rng), chance)


def _recommender(of: Any, backend: str, rng: Generator) -> Outcome:
    timed = part("recommender", "task").TIMED if of.limit == "clip" else ()
    summary = {
        f"seconds/{what}/{name}": float(rng.uniform(1, 3))
        for what in ("step", "lookup")
        for name in timed
    }
    summary |= dict.fromkeys(part("recommender", "report").BASELINES, 0.2)
    series = _embedded(of, part("recommender", "report").SERIES, rng)
    return Outcome("ok", "", series, summary)


def _embedded(of: Any, names: Any, rng: Generator) -> dict[str, list[float]]:
    points = len(of.measured_at)
    series = {name: rng.uniform(0.1, 3, points).tolist() for name in names}
    return {"step": [float(step) for step in of.measured_at], **series}


def _genres(of: Any, backend: str, rng: Generator) -> Outcome:
    steps = np.array(of.measured_at, float)
    series = {"step": steps.tolist()}
    for genre in GENRES:
        share = rng.uniform(0.2, 1)
        series[f"informative/{genre}"] = np.round(share * steps).tolist()
        series[f"path/{genre}"] = (rng.uniform(0.5, 2) * steps).tolist()
        series[f"loss/{genre}"] = rng.uniform(0.8, 1.2, len(steps)).tolist()
    return Outcome("ok", "", series, {"baseline": 1.1})


def _mixed_text(of: Any, backend: str, rng: Generator) -> Outcome:
    names, points = ("bits", "scale", "skipped"), len(of.measured_at)
    series = {name: rng.uniform(1, 8, points).tolist() for name in names}
    series["step"] = [float(step) for step in of.measured_at]
    summary = {name: column[-1] for name, column in series.items()}
    own = {"mean_log2": 12.0, "lowest": 2.0, "to_target": series["step"][1]}
    return Outcome("ok", "", series, {**summary, **own})


def _multitask(of: Any, backend: str, rng: Generator) -> Outcome:
    return multitask_outcome(of, float(rng.uniform(0.5, 2)), rng)


def _stable_rates(of: Any, backend: str, rng: Generator) -> Outcome:
    accuracies = rng.uniform(0, 1, len(of.rates)).tolist()
    series = {"rate": list(of.rates), "loss": accuracies, "accuracy": accuracies}
    ends = stable_range(of.rates, accuracies, of.margin)
    return Outcome("ok", "", series, ends._asdict())


def _gpu_steps(of: Any, backend: str, rng: Generator) -> Outcome:
    counts = {"waits": int(rng.integers(4)), "launches": int(rng.integers(1, 50))}
    return Outcome("ok", "", {}, {"time": float(rng.uniform(10, 1000)), **counts})


def _throughput(of: Any, backend: str, rng: Generator) -> Outcome:
    return Outcome("ok", "", {}, {"rate": float(rng.uniform(10, 1000))})


def _training_throughput(of: Any, backend: str, rng: Generator) -> Outcome:
    if of.precision == "fp16":
        return Outcome("ok", "float16 is not timed on a CPU")
    names = ("bare", "wrapped", "bare again")
    return Outcome(
        "ok", "", {}, {f"rate/{n}": float(rng.uniform(9, 99)) for n in names}
    )


def _warm_up(of: Any, backend: str, rng: Generator) -> Outcome:
    weights = 4 * of.width
    per_byte = {"NovoGrad": 1, "AdamW": 2, "SGD": 1}[of.optimizer]
    bits = float(rng.uniform(2, 8))
    summary = {"bits": bits, "state": per_byte * weights, "weights": weights}
    return Outcome("ok", "", {}, summary)


def _worker_throughput(of: Any, backend: str, rng: Generator) -> Outcome:
    names = ("center/small", "adder/small", "center/large", "adder/large")
    alone = {name: float(rng.uniform(5, 9)) for name in names}
    return _workers(of, rng, alone)


def _slow_link(of: Any, backend: str, rng: Generator) -> Outcome:
    bandwidth = 1e6 * of.link_mbit / 8 * rng.uniform(0.9, 1)
    return _workers(of, rng, {"link/bandwidth": bandwidth, "link/latency": 1e-4})


def _workers(of: Any, rng: Generator, more: Mapping[str, float]) -> Outcome:
    """Return the outcome of a task with workers, and what it measures beside them."""
    step = of.step_ms / 1000
    summary = {"seconds/step": step, "seconds/exchange": 4e-3, "seconds/center": 2e-3}
    summary |= {"steps/ddp": of.workers / (2 * step), "bytes/ddp": 1.0 * of.model_bytes}
    series = {"staleness": [0.0, 1.0, 2.0]}
    for period in PERIODS:
        summary[f"steps/{period}"] = float(of.workers / step * rng.uniform(0.5, 1))
        summary[f"bytes/{period}"] = of.model_bytes / period
        series[f"pushes/{period}"] = rng.integers(1, 9, 3).astype(float).tolist()
    return Outcome("ok", "", series, {**summary, **more})


def with_metric(record: Record, name: str, value: float) -> Record:
    """Return the record changed so that a metric of its task reads ``value``."""
    changed = dataclasses.replace(
        record,
        series={k: list(column) for k, column in record.series.items()},
        summary=dict(record.summary),
        subject=dict(record.subject),
    )
    setter = SETTERS.get((record.task, name), _set_last)
    setter(changed, name, value)
    return changed


def _set_last(record: Any, name: str, value: float) -> None:
    record.series[name][-1] = value


def _set_multitask_loss(record: Any, name: str, value: float) -> None:
    for task in TASKS:
        record.series[f"loss/{task}"][record.config["checkpoints"]] = value


def _set_movement(record: Any, name: str, value: float) -> None:
    last = record.config["checkpoints"]
    for task in TASKS:
        seen = record.series[f"informative/{task}"]
        path = record.series[f"path/{task}"]
        path[last] = path[last // 2] + value * (seen[last] - seen[last // 2])


def _set_relative_movement(record: Any, name: str, value: float) -> None:
    rate = record.config["optimizer"]["learning_rate"]
    _set_movement(record, name, value * rate)


def _set_error(record: Any, name: str, value: float) -> None:
    for genre in GENRES if name == "error" else (RAREST,):
        record.series[f"loss/{genre}"][-1] = value**2


def _set_rarest_movement(record: Any, name: str, value: float) -> None:
    rate = record.config["optimizer"]["learning_rate"]
    half = record.config["checkpoints"] // 2
    seen = record.series[f"informative/{RAREST}"]
    path = record.series[f"path/{RAREST}"]
    path[-1] = path[half] + value * rate * (seen[-1] - seen[half])


def _set_above(record: Any, name: str, value: float) -> None:
    record.series["above"][-1] = value


def _set_lookup(record: Any, name: str, value: float) -> None:
    times = record.summary
    times["seconds/lookup/lookup"] = value * times["seconds/lookup/clip"]


def _set_step(record: Any, name: str, value: float) -> None:
    times = record.summary
    times["seconds/step/clip"] = value * times["seconds/step/lookup"]


def _set_on_gpu(record: Any, name: str, value: float) -> None:
    record.subject.update(device="cuda", device_name="Toy 1")
    record.summary[name] = value


def _set_over_bare(record: Any, name: str, value: float) -> None:
    variant = {"ratio": "wrapped", "control": "bare again"}[name]
    record.summary[f"rate/{variant}"] = value * record.summary["rate/bare"]


def _set_to_target(record: Any, name: str, value: float) -> None:
    record.summary["to_target"] = value


def _set_range(record: Any, name: str, value: float) -> None:
    """Write rates whose stable range are the first two; the other metrics stay."""
    before = range_of(record)
    numbers = {
        "highest rate": before.highest,
        "stable range": before.width,
        "best accuracy": before.best,
        name: value,
    }
    highest, width, best = numbers.values()
    count = len(record.series["rate"])
    record.series["rate"][:2] = [highest / width, highest]
    record.series["accuracy"] = [best, best, *[best - 1.0] * (count - 2)]


def _set_bits(record: Any, name: str, value: float) -> None:
    record.summary["bits"] = value


def _set_state(record: Any, name: str, value: float) -> None:
    record.summary["state"] = value * record.summary["weights"]


def _set_worker_metric(record: Any, name: str, value: float) -> None:
    """Write the number that is divided, so that its comparison reads ``value``."""
    before = metrics_of(record.task)[name].read(record)
    what, _, which = name.partition(", ")
    key = {
        "DDP over expected": "steps/ddp",
        "steps over DDP": f"steps/{which.removeprefix('period ')}",
        "steps over expected": f"steps/{which.removeprefix('period ')}",
        "round over DDP's step in bytes": f"bytes/{which.removeprefix('period ')}",
        "center over adder": f"center/{which}",
    }[what]
    record.summary[key] *= value / before


def _set_speed_of_links(record: Any, name: str, value: float) -> None:
    """Write all steps a second, so that their ratios to those of DDP stay."""
    before = metrics_of(record.task)[name].read(record)
    for key in ("steps/ddp", *(f"steps/{period}" for period in PERIODS)):
        record.summary[key] *= value / before


def _set_accuracy(record: Any, name: str, value: float) -> None:
    record.summary[name.replace(" ", "_")] = value


SETTERS: Mapping[tuple[str, str], Callable[[Any, str, float], None]] = {
    **{
        (task, name): _set_worker_metric
        for task in ("slow_link", "worker_throughput")
        for name in metrics_of(task)
    },
    ("slow_link", "steps over expected, period 10"): _set_speed_of_links,
    ("asynchronous_digits", "accuracy"): _set_accuracy,
    ("asynchronous_digits", "mean accuracy"): _set_accuracy,
    **{("gpu_steps", name): _set_on_gpu for name in metrics_of("gpu_steps")},
    ("mixed_precision_text", "steps to target"): _set_to_target,
    ("movie_genres", "error"): _set_error,
    ("movie_genres", "documentary error"): _set_error,
    ("movie_genres", "documentary movement"): _set_rarest_movement,
    ("multitask_digits", "loss"): _set_multitask_loss,
    ("multitask_digits", "head movement"): _set_movement,
    ("multitask_digits", "relative movement"): _set_relative_movement,
    ("recommender", "rows above the limit"): _set_above,
    ("recommender", "lookup time"): _set_lookup,
    ("recommender", "step time"): _set_step,
    ("stable_rates", "highest rate"): _set_range,
    ("stable_rates", "stable range"): _set_range,
    ("stable_rates", "best accuracy"): _set_range,
    ("throughput", "rate"): _set_on_gpu,
    ("training_throughput", "ratio"): _set_over_bare,
    ("training_throughput", "control"): _set_over_bare,
    ("warm_up", "bits a byte"): _set_bits,
    ("warm_up", "state"): _set_state,
}
"""How a metric is written into a record, where it is not the end of a series."""


MAKERS: Mapping[str, Callable[[Any, str, Generator], Outcome]] = {
    "asynchronous_digits": _asynchronous,
    "deep_digits": _deep,
    "gpu_steps": _gpu_steps,
    "link_prediction": _link,
    "mixed_precision_text": _mixed_text,
    "movie_genres": _genres,
    "multitask_digits": _multitask,
    "recommender": _recommender,
    "slow_link": _slow_link,
    "stable_rates": _stable_rates,
    "throughput": _throughput,
    "training_throughput": _training_throughput,
    "warm_up": _warm_up,
    "worker_throughput": _worker_throughput,
}
