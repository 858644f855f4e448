"""A run has the same outcome in every fresh process, and the one that is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.declarations import declare
from harness.declarations.declare import Run
from harness.processes.children import Children
from harness.records.equality import compare_outcomes
from harness.records.files import RESULTS, folder, read, read_environments
from harness.records.record import Outcome, Record
from harness.runs.workers import Worker
from harness.tests.synthetic import record_of
from lockstep import registry

Made = tuple[list[Outcome], Mapping[str, Any]]
"""The outcomes of runs of one process, and its environment."""


@pytest.fixture(scope="module", params=["pytorch", "tf"])
def backend(request: pytest.FixtureRequest) -> str:
    if not registry.installed(request.param):
        pytest.skip(f"{registry.find(request.param).framework} is not installed")
    return str(request.param)


def made(runs: Sequence[Run], backend: str) -> Made:
    """Do runs in a process of their own; return their outcomes and its environment."""
    worker = Worker(runs[0].task, backend, "cpu", 0, Children())
    answers = [worker.do(run) for run in runs]
    worker.end()
    assert worker.introduction is not None
    pairs = zip(runs, answers, strict=True)
    outcomes = [outcome_of(run, backend, answer) for run, answer in pairs]
    return outcomes, worker.introduction["environment"]


def outcome_of(run: Run, backend: str, answer: Any) -> Outcome:
    """Return what a worker answered, in float32, as a file has it."""
    assert isinstance(answer, Mapping)
    names = ("status", "reason", "series", "summary")
    record = record_of(run, backend, Outcome(**{name: answer[name] for name in names}))
    return Record.from_json(record.as_json()).outcome


SHORT = {"steps": 20, "checkpoints": 4}


def short(name: str, **settings: Any) -> Run:
    """Return the last run of an experiment, with other settings."""
    run = declare.find(name).runs("quick")[-1]
    return replace(run, config={**run.config, **settings})


def published_of(backend: str) -> Record:
    """Return a published record."""
    home = folder("absent_tasks", True, RESULTS)
    return next(r for r in read(home / f"{backend}.jsonl") if r.status == "ok")


@pytest.fixture(scope="module")
def first(backend: str) -> Made:
    """What one process made of a run, of another seed and of a published record."""
    run, published = short("absent_tasks", **SHORT), published_of(backend)
    of = (published.experiment, published.task, published.config, published.seed)
    return made([run, replace(run, seed=run.seed + 1), Run(*of)], backend)


def assert_same(outcome: Outcome, here: Any, other: Outcome, there: Any) -> None:
    assert outcome.status == "ok" and outcome.series
    equality = compare_outcomes(outcome, other, (here, there))
    assert equality.method == "to the bit because the processor and all versions match"
    assert equality.equal, str(equality)


@pytest.mark.parametrize(
    "backend", ["pytorch", pytest.param("tf", marks=pytest.mark.soak)], indirect=True
)
def test_two_fresh_processes_agree_to_the_bit(first: Made, backend: str) -> None:
    (outcome, *_), here = first
    (second,), there = made([short("absent_tasks", **SHORT)], backend)
    assert_same(outcome, here, second, there)


def test_another_seed_is_another_outcome(first: Made) -> None:
    (outcome, other, _), here = first
    assert not compare_outcomes(outcome, other, (here, here)).equal


def test_a_published_run_is_repeated(first: Made, backend: str) -> None:
    (*_, again), here = first
    published = published_of(backend)
    home = folder("absent_tasks", True, RESULTS)
    environments = read_environments(home / f"{backend}.environments.jsonl")
    then = environments[published.environment]
    equality = compare_outcomes(published.outcome, again, (then, here))
    assert equality.equal, str(equality)
