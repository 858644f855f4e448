"""The throughput's task: a CPU proves nothing, a GPU is named, every mode trains."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.processes import environment
from harness.records.record import Record
from harness.tasks.throughput import report
from harness.tasks.throughput.task import MODES, Settings
from lockstep.errors import LockstepError, OutOfRangeError

RUNS = declare.find("throughput").runs("quick")
CPU = {"backend": "pytorch", "device": "cpu"}
GPU = {"backend": "pytorch", "device": "cuda", "device_name": "Toy 1"}


def record(run: declare.Run, subject: dict[str, str], rate: float) -> Record:
    return Record(
        **dataclasses.asdict(run),
        id=run.id,
        subject=subject,
        environment="0",
        status="ok",
        reason="",
        series={},
        summary={"rate": rate},
    )


def judged(subject: dict[str, str], fp16: float) -> Any:
    records = [
        record(run, subject, fp16 if run.config["mode"].endswith("fp16") else 100.0)
        for run in RUNS
    ]
    return report.judge(records)


def test_runs_on_a_cpu_are_no_answer() -> None:
    judgement = judged(CPU, 1000.0)
    assert judgement.note.startswith("Not measured yet")
    assert dict(judgement.tables) == {}
    assert report.match(judgement.tables, judgement.tables).empty


def test_runs_on_a_cpu_have_no_metric() -> None:
    cpu, gpu = (record(RUNS[0], subject, 7.0) for subject in (CPU, GPU))
    assert np.isnan(report.METRICS["rate"].read(cpu))
    assert report.METRICS["rate"].read(gpu) == 7.0


def test_records_of_a_cpu_do_not_mix_with_those_of_a_gpu() -> None:
    both = [
        record(run, device, rate)
        for run in RUNS
        for device, rate in ((CPU, 1.0), (GPU, 9.0))
    ]
    table = report.judge(both).tables["rates"]
    assert set(table["rate"]) == {9.0}


def test_settings_that_cannot_be_used_are_one_sentence() -> None:
    with pytest.raises(LockstepError, match="did you mean 'masters fp16'"):
        Settings(**{**RUNS[0].config, "mode": "master fp16"})
    with pytest.raises(OutOfRangeError, match="rounds: expected a whole number > 0"):
        Settings(**{**RUNS[0].config, "rounds": 0})


def test_a_gpu_is_recorded_by_its_model_and_a_cpu_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(get_device_name=lambda device: f"Toy of {device}")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert environment.device_name("torch", "cuda") == "Toy of cuda"
    assert environment.device_name("torch", "cpu") is None


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_trains(mode: str) -> None:
    from harness.tasks.throughput import task

    config = {**RUNS[0].config, "mode": mode, "rounds": 2, "warm_up": 20}
    outcome = task.train(config, 0, "pytorch", "cpu")
    assert outcome.status == "ok"
    assert outcome.summary["loss"] < outcome.summary["before"]
    assert min(outcome.series["rate"]) > 0
