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


@pytest.fixture(params=["pytorch", "tf"])
def backend(request: pytest.FixtureRequest) -> str:
    if not registry.installed(request.param):
        pytest.skip(f"{registry.find(request.param).framework} is not installed")
    return str(request.param)


def made(run: Run, backend: str) -> tuple[Outcome, Mapping[str, Any]]:
    """Do a run in a process of its own; return its outcome and its environment."""
    ((outcome,), environment) = made_together([run], backend)
    return outcome, environment


def made_together(
    runs: Sequence[Run], backend: str
) -> tuple[list[Outcome], Mapping[str, Any]]:
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


def short(name: str, **settings: Any) -> Run:
    """Return the last run of an experiment, with other settings."""
    run = declare.find(name).runs("quick")[-1]
    return replace(run, config={**run.config, **settings})


@pytest.mark.parametrize(
    "name", ["absent_tasks", pytest.param("lost_updates", marks=pytest.mark.soak)]
)
def test_two_fresh_processes_agree_to_the_bit(name: str, backend: str) -> None:
    run = short(name, steps=20, checkpoints=4)
    (first, here), (second, there) = made(run, backend), made(run, backend)
    assert first.status == "ok" and first.series
    equality = compare_outcomes(first, second, (here, there))
    assert equality.method == "to the bit because the processor and all versions match"
    assert equality.equal, str(equality)


def test_another_seed_is_another_outcome() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    run = short("absent_tasks", steps=20, checkpoints=4)
    both = [run, replace(run, seed=run.seed + 1)]
    (first, other), here = made_together(both, "pytorch")
    assert not compare_outcomes(first, other, (here, here)).equal


def test_a_published_run_is_repeated(backend: str) -> None:
    home = folder("learning_rate_policies", True, RESULTS)
    published = next(r for r in read(home / f"{backend}.jsonl") if r.status == "ok")
    environments = read_environments(home / f"{backend}.environments.jsonl")
    run = Run(published.experiment, published.task, published.config, published.seed)
    again, here = made(run, backend)
    then = environments[published.environment]
    equality = compare_outcomes(published.outcome, again, (then, here))
    assert equality.equal, str(equality)
