"""Do one seed of each recorded arm again and compare the outcome with the record.

Nothing is written. Two processes on one machine with the same versions agree to the
bit; another processor or another version may add numbers in another order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from harness.declarations.declare import SCALES, Experiment, Run
from harness.declarations.toml_files import leaves
from harness.declarations.tune import FIRST_SEED
from harness.errors import HarnessError
from harness.processes.children import Children
from harness.records.files import RESULTS, folder, read
from harness.records.record import Outcome, Record, latest
from harness.runs.worker import Worker
from harness.tasks import TIMED
from lockstep import registry
from lockstep.errors import sentence

TOLERANCE = 1e-4
"""Relative. The precision of float32 is 6e-8; short runs lose about three digits."""


@dataclass(frozen=True)
class Check:
    """The comparison of an arm with its record.

    Attributes:
        arm: backend, varied settings and seed.
        result: ``equal`` to the bit, ``close`` within ``TOLERANCE``, or ``different``.
        detail: the largest difference; empty if equal.
    """

    arm: str
    result: Literal["equal", "close", "different"]
    detail: str = ""

    def __str__(self) -> str:
        how = {"equal": "equal to the bit", "close": f"within {TOLERANCE:g}"}
        text = f"{self.arm}: {how.get(self.result, self.result)}"
        return f"{text} ({self.detail})" if self.detail else text


def check(
    experiment: Experiment,
    backends: Sequence[str] = (),
    device: str = "cpu",
    root: Path = RESULTS,
) -> Iterator[Check]:
    """Yield a comparison with the published record of each arm, as soon as it is made.

    Args:
        backends: by default, all of the experiment that are installed.

    Raises:
        HarnessError: there is nothing to compare, or a backend cannot be used.
    """
    if experiment.task in TIMED:
        expected, got = "an experiment that can be repeated", "one that measures time"
        remedy = f"use python -m harness run {experiment.name} and compare the tables"
        raise HarnessError(sentence(experiment.name, expected, got, remedy))
    home = folder(experiment.name, True, root)
    usable = backends or [n for n in experiment.backends if registry.installed(n)]
    chosen = {
        name: _one_of_each_arm(experiment, read(home / f"{name}.jsonl"), device)
        for name in usable
    }
    if not any(chosen.values()):
        names = ", ".join(usable) or "an installed backend"
        expected = f"records of {names} on {device}"
        remedy = "choose another backend or device, or publish some by harness run"
        raise HarnessError(sentence(str(home), expected, "none", remedy))
    with ExitStack() as stack:
        for backend, records in chosen.items():
            worker: Worker | None = None
            for record in records:
                if worker is None or worker.ended:
                    worker = Worker(experiment.task, backend, device, 0, Children())
                    stack.callback(worker.stop)
                outcome = _repeated(record, worker)
                arm = f"{backend}, {_named(experiment, record)}"
                yield Check(arm, *compare_outcomes(record.outcome, outcome))


def _one_of_each_arm(
    experiment: Experiment, records: Sequence[Record], device: str
) -> list[Record]:
    """Return the first seed of each arm, of the largest scale that is recorded."""
    settled = {r.id: r for r in latest(records) if r.settled}
    for scale in reversed(SCALES):
        arms: dict[str, Record] = {}
        for run in experiment.possible_runs(scale):
            record = settled.get(run.id)
            if record and record.subject["device"] == device and run.seed < FIRST_SEED:
                arms.setdefault(json.dumps(run.config, sort_keys=True), record)
        if arms:
            return list(arms.values())
    return []


def _named(experiment: Experiment, record: Record) -> str:
    """Return the varied settings, the tuned one and the seed of a record."""
    settings = {**record.config, **dict(leaves(record.config))}
    paths = [*experiment.vary, *([experiment.tune.path] if experiment.tune else [])]
    words = [f"{path} {json.dumps(settings.get(path))}" for path in paths]
    return ", ".join([*words, f"seed {record.seed}"])


def _repeated(record: Record, worker: Worker) -> Outcome:
    """Do the run of a record again; return the outcome as a record would have it."""
    answer = worker.do(Run(record.experiment, record.task, record.config, record.seed))
    outcome = {each.name: answer[each.name] for each in fields(Outcome)}
    return Record.from_json(replace(record, **outcome).as_json()).outcome


def compare_outcomes(
    before: Outcome, after: Outcome
) -> tuple[Literal["equal", "close", "different"], str]:
    """Return how two outcomes of a run agree, and their largest difference.

    Numbers that runs no longer measure are counted, and are no difference.
    """
    if (before.status, before.reason) != (after.status, after.reason):
        states = (f"{each.status} {each.reason}".strip() for each in (before, after))
        return "different", "recorded {}, now {}".format(*states)
    old, new = _numbers(before), _numbers(after)
    if other := sorted(new.keys() - old.keys()):
        return "different", f"{len(other)} numbers without a record, such as {other[0]}"
    gaps = {name: _relative(old[name], new[name]) for name in new}
    worst = max(gaps, key=lambda name: gaps[name], default="")
    if not worst or gaps[worst] == 0:
        gone = len(old) - len(new)
        return "equal", f"{gone} numbers are no longer measured" if gone else ""
    detail = f"{worst}: recorded {old[worst]:.9g}, now {new[worst]:.9g}"
    return "close" if gaps[worst] <= TOLERANCE else "different", detail


def _numbers(outcome: Outcome) -> dict[str, float]:
    """Return every number of an outcome by its name."""
    return dict(outcome.summary) | {
        f"{name} at checkpoint {place}": value
        for name, column in outcome.series.items()
        for place, value in enumerate(column, start=1)
    }


def _relative(a: float, b: float) -> float:
    """Return the difference over the larger of two numbers. Two NaN are equal."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))
