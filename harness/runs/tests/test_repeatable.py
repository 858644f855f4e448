"""A run has the same outcome in every fresh process of one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from harness.declarations import declare
from harness.declarations.declare import Run
from harness.processes.children import Children
from harness.records.record import Outcome
from harness.runs.check import compare_outcomes
from harness.runs.worker import Worker
from lockstep import registry


@pytest.mark.parametrize(
    "backend", ["pytorch", pytest.param("tf", marks=pytest.mark.soak)]
)
def test_two_fresh_processes_agree_to_the_bit_and_two_seeds_do_not(
    backend: str,
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    last = declare.find("absent_tasks").runs("quick")[-1]
    run = replace(last, config={**last.config, "steps": 20, "checkpoints": 4})
    first, other = outcomes([run, replace(run, seed=run.seed + 1)], backend)
    (second,) = outcomes([run], backend)
    assert first.status == "ok" and first.series
    assert compare_outcomes(first, second) == ("equal", "")
    assert compare_outcomes(first, other)[0] == "different"


def outcomes(runs: Sequence[Run], backend: str) -> list[Outcome]:
    """Do runs in a process of their own."""
    worker = Worker(runs[0].task, backend, "cpu", 0, Children())
    answers = [worker.do(run) for run in runs]
    worker.end()
    made = []
    for answer in answers:
        assert isinstance(answer, Mapping)
        names = ("status", "reason", "series", "summary")
        made.append(Outcome(**{name: answer[name] for name in names}))
    return made
