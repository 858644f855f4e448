"""The task of steps on a GPU: each stack steps on a CPU too, which proves nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Record
from harness.tasks.gpu_steps import report
from harness.tasks.gpu_steps.task import GRAPH, STACKS, Settings
from lockstep.errors import LockstepError, OutOfRangeError

RUNS = declare.find("gpu_steps").runs("quick")
CPU = {"backend": "pytorch", "device": "cpu"}
GPU = {"backend": "pytorch", "device": "cuda", "device_name": "Toy 1"}
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def record(run: declare.Run, subject: dict[str, str], **summary: float) -> Record:
    return Record(
        **dataclasses.asdict(run),
        id=run.id,
        subject=subject,
        environment="0",
        status="ok",
        reason="",
        series={},
        summary=summary,
    )


def judged(subject: dict[str, str]) -> Any:
    """Judge runs of which the k-th takes 100 (k + 1) us, waits k times."""
    return report.judge(
        [
            record(run, subject, time=100.0 * (k + 1), waits=k, launches=9)
            for k, run in enumerate(RUNS)
        ]
    )


def test_runs_on_a_cpu_are_no_answer() -> None:
    judgement = judged(CPU)
    assert judgement.note.startswith("Not measured yet")
    assert dict(judgement.tables) == {}
    assert report.match(judgement.tables, judgement.tables).empty
    assert np.isnan(report.METRICS["waits"].read(record(RUNS[0], CPU, waits=1)))


def test_the_table_compares_all_wrappers_with_a_bare_step() -> None:
    judgement = judged(GPU)
    ways = [(run.config["stack"], run.config["way"]) for run in RUNS]
    bare, graph = map(ways.index, [("bare", "host"), ("all", GRAPH)])
    table = judgement.tables["steps"].set_index(["stack", "way"])
    assert table.loc["all", GRAPH]["over_bare"] == (graph + 1) / (bare + 1)
    assert report.match(judgement.tables, judgement.tables)["matches"].all()


def test_settings_that_cannot_be_used_are_one_sentence() -> None:
    with pytest.raises(LockstepError, match="did you mean 'multitask'"):
        Settings(**{**RUNS[0].config, "stack": "multitasks"})
    with pytest.raises(OutOfRangeError, match="rounds: expected a whole number > 0"):
        Settings(**{**RUNS[0].config, "rounds": 0})


@needs_torch
@pytest.mark.parametrize(
    ("stack", "way"),
    [*((s, "host") for s in STACKS), ("bare", "capturable"), ("scaling", "capturable")],
)
def test_every_stack_steps(stack: str, way: str) -> None:
    from harness.tasks.gpu_steps import task, torch_model

    config = {**RUNS[0].config, "stack": stack, "way": way}
    outcome = task.train(config, 0, "pytorch", "cpu")
    assert outcome.status == "ok"
    assert set(outcome.summary) == {"time"} and outcome.summary["time"] > 0
    assert len(outcome.series["time"]) == config["rounds"]
    stepper = torch_model.Stepper(Settings(**config), "cpu")
    before = [weight.detach().clone() for weight in stepper.weights]
    stepper.take()
    moved = [
        not (weight == old).all()
        for weight, old in zip(stepper.weights, before, strict=True)
    ]
    leaves_out = stack in ("multitask", "all")
    zeros = config["zeros"]
    assert all(moved[zeros:])
    assert not any(moved[:zeros]) or not leaves_out


@needs_torch
def test_a_cuda_graph_is_not_taken_on_a_cpu() -> None:
    from harness.tasks.gpu_steps import task

    outcome = task.train({**RUNS[0].config, "way": GRAPH}, 0, "pytorch", "cpu")
    assert (outcome.status, outcome.summary) == ("ok", {})
    assert outcome.reason == "a CUDA graph needs a GPU"
