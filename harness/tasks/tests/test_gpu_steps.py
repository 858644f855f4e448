"""The task of steps on a GPU: each stack steps on a CPU too, which proves nothing."""

from __future__ import annotations

import dataclasses
from typing import get_args

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome, Record
from harness.tasks.gpu_steps import report, task
from harness.tests.synthetic import record_of

RUNS = declare.find("gpu_steps").runs("quick")


def records(device: str) -> list[Record]:
    """Return runs of which the k-th takes 100 (k + 1) us and waits k times."""
    made = []
    for k, run in enumerate(RUNS):
        summary = {"time": 100.0 * (k + 1), "waits": k}
        record = record_of(run, "pytorch", Outcome("ok", "", {}, summary))
        subject = {**record.subject, "device": device}
        made.append(dataclasses.replace(record, subject=subject))
    return made


def test_runs_on_a_cpu_are_no_answer() -> None:
    judgement = report.judge(records("cpu"))
    assert judgement.note.startswith("Not measured yet") and not judgement.tables
    assert np.isnan(report.METRICS["time"].read(records("cpu")[0]))


def test_the_table_has_the_time_and_the_waits_of_each_arm() -> None:
    steps = report.judge(records("cuda")).tables["steps"].set_index(["stack", "way"])
    k = [(run.config["stack"], run.config["way"]) for run in RUNS].index(
        ("bare", "host")
    )
    assert steps.loc["bare", "host"][["time", "waits"]].tolist() == [100 * (k + 1), k]


@pytest.mark.parametrize("way", ["host", "capturable"])
@pytest.mark.parametrize("stack", get_args(task.Stack))
def test_every_stack_steps(stack: str, way: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from harness.tasks.gpu_steps.torch_model import Stepper

    config = {**RUNS[0].config, "stack": stack, "way": way}
    outcome = task.train(config, 0, "pytorch", "cpu")
    assert outcome.status == "ok" and outcome.summary["time"] > 0
    assert len(outcome.series["time"]) == config["rounds"]
    stepper = Stepper(task.Settings(**config), "cpu")
    before = [weight.detach().clone() for weight in stepper.weights]
    stepper.take()
    pairs = zip(stepper.weights, before, strict=True)
    moved = [not (weight == old).all() for weight, old in pairs]
    assert all(moved[config["zeros"] :])


def test_a_cuda_graph_is_not_taken_on_a_cpu() -> None:
    config = {**RUNS[0].config, "way": "CUDA graph"}
    outcome = task.train(config, 0, "pytorch", "cpu")
    assert (outcome.status, dict(outcome.summary)) == ("ok", {})
