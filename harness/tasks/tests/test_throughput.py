"""The throughput's task: a CPU proves nothing, a GPU is named, every mode trains."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from harness.declarations import declare
from harness.processes import environment
from harness.records.record import Outcome, Record
from harness.tasks.throughput import report, task
from harness.tests.synthetic import record_of

RUNS = declare.find("throughput").runs("quick")


def records(device: str, rate: float) -> list[Record]:
    made = []
    for run in RUNS:
        record = record_of(run, "pytorch", Outcome("ok", "", {}, {"rate": rate}))
        subject = {**record.subject, "device": device}
        made.append(dataclasses.replace(record, subject=subject))
    return made


def test_runs_on_a_cpu_are_no_answer() -> None:
    judgement = report.judge(records("cpu", 9.0))
    assert judgement.note.startswith("Not measured yet") and not judgement.tables


def test_records_of_a_cpu_do_not_mix_with_those_of_a_gpu() -> None:
    both = [*records("cpu", 1.0), *records("cuda", 9.0)]
    tables = report.judge(both).tables
    assert set(tables["rates"]["rate"]) == {9.0}
    rates = [report.METRICS["rate"].read(record) for record in (both[0], both[-1])]
    assert np.isnan(rates[0]) and rates[1] == 9.0


def test_a_gpu_is_recorded_by_its_model_and_a_cpu_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(get_device_name=lambda device: f"Toy of {device}")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert environment.device_name("torch", "cuda") == "Toy of cuda"
    assert environment.device_name("torch", "cpu") is None


@pytest.mark.parametrize("mode", get_args(task.Mode))
def test_every_mode_trains(mode: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    config = {**RUNS[0].config, "mode": mode, "rounds": 2}
    few, many = (
        task.train({**config, "warm_up": n}, 0, "pytorch", "cpu") for n in (1, 20)
    )
    assert few.status == many.status == "ok"
    assert many.summary["loss"] < few.summary["loss"]
    assert min(many.series["rate"]) > 0
