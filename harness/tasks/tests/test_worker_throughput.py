"""Workers in separate processes on one machine: what is measured and expected."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import time
import types
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.processes.children import Children
from harness.records.record import Record
from harness.runs.worker import Worker
from harness.tasks.worker_team.report import expected as expected_steps
from harness.tasks.worker_team.task import PERIODS, start_ray
from harness.tasks.worker_throughput import report
from harness.tests.makers import made_up

RUNS = declare.find("worker_throughput").runs("quick")
ALONE = {"seconds/step": 5e-3, "seconds/exchange": 4e-3, "seconds/center": 1e-3}


def records(expected: float = 1.0, ddp: float = 50.0, **changed: float) -> list[Record]:
    """Return records of workers that take so many times the expected steps."""
    made = []
    for run in RUNS:
        record = made_up(run, "pytorch", np.random.default_rng(0))
        alone = {**ALONE, **{f"seconds/{name}": of for name, of in changed.items()}}
        summary = {**record.summary, **alone, "steps/ddp": ddp}
        record = dataclasses.replace(record, summary=summary)
        for period in PERIODS:
            steps = expected_steps(record, period)
            summary[f"steps/{period}"] = expected * steps
        made.append(record)
    return made


def with_workers(count: int, **changed: float) -> Record:
    """Return a record of a run with so many workers."""
    record = records(**changed)[0]
    return dataclasses.replace(record, config={**record.config, "workers": count})


# -- what is expected ------------------------------------------------------------------


@pytest.mark.parametrize("period", PERIODS)
def test_one_worker_takes_its_step_and_its_exchange(period: int) -> None:
    alone = period / (period * 5e-3 + 4e-3)
    assert expected_steps(with_workers(1), period) == pytest.approx(alone)


def test_many_workers_take_what_the_center_takes() -> None:
    many = with_workers(2000)
    assert expected_steps(many, 10) == pytest.approx(10 / 1e-3, rel=0.01)


def test_a_center_slower_than_an_exchange_leaves_no_part_to_the_worker() -> None:
    alone = 1 / (5e-3 + 6e-3)
    slow = with_workers(1, center=6e-3)
    assert expected_steps(slow, 1) == pytest.approx(alone)


# -- what is measured ------------------------------------------------------------------


PROCESSES = Path("/proc")
SECONDS_TO_END = 20.0
"""How long the processes of Ray may take to end on a busy machine."""


def marked(mark: str) -> list[str]:
    """Return the ids of processes that inherited a mark; none where it is not told."""
    return [
        path.parent.name
        for path in PROCESSES.glob("[0-9]*/environ")
        if mark.encode() in environment_of(path)
    ]


def environment_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # It has ended, or is another user's.
        return b""


def require_end(mark: str) -> None:
    """Wait until no process is left that inherited a mark."""
    end = time.monotonic() + SECONDS_TO_END
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.2)
    assert not marked(mark)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None
    or importlib.util.find_spec("torch") is None,
    reason="needs Ray and PyTorch",
)
def test_a_run_measures_ddp_and_every_period_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK_OF_TEST", mark)
    # On a busy machine too, forty steps of 5 ms end within the window.
    config = {**RUNS[0].config, "workers": 2, "window": 2.0, "large_mb": 1.0}
    run = dataclasses.replace(RUNS[0], config=config)
    worker = Worker(run.task, "pytorch", "cpu", 0, Children())
    answer = worker.do(run)
    if PROCESSES.is_dir():
        assert marked(mark)
    how = worker.end()
    require_end(mark)
    assert isinstance(answer, Mapping), how
    assert answer["status"] == "ok", answer["reason"]
    made = made_up(run, "pytorch", np.random.default_rng(0))
    outcome = {name: answer[name] for name in ("series", "summary")}
    record = dataclasses.replace(made, **outcome)
    assert set(record.summary) == set(made.summary)
    assert min(record.summary.values()) > 0
    # A step waits for 5 ms, and two workers cannot take more of them.
    assert max(record.summary[f"steps/{p}"] for p in PERIODS) < 2 / 5e-3


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_start_of_ray_that_timed_out_is_tried_again(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def init(**options: Any) -> None:
        starts.append(options)
        if len(starts) <= failures:
            raise RuntimeError("Failed to start GCS.")

    ray: Any = types.ModuleType("ray")
    ray.init, ray.shutdown = init, lambda: None
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("os.environ", {})
    if failures < 3:
        assert start_ray() is ray
        assert len(starts) == failures + 1
    else:
        with pytest.raises(RuntimeError, match="start GCS"):
            start_ray()


# -- findings --------------------------------------------------------------------------


def test_the_table_compares_with_ddp_and_with_the_model() -> None:
    [of_eight] = [r for r in records() if r.config["workers"] == 8]
    steps = expected_steps(of_eight, 10)
    judgement = report.judge(records(expected=0.9, ddp=steps * 0.9 / 4))
    rows = judgement.tables["steps"].set_index(["workers", "mode"])
    assert rows.loc[(8, "period 10"), "over_ddp"] == pytest.approx(4)
    expected = rows["over_expected"].dropna().tolist()
    assert expected == pytest.approx([0.9] * len(expected))


def test_without_a_run_that_ended_well_there_is_no_answer() -> None:
    skipped = [dataclasses.replace(r, status="skipped") for r in records()]
    assert not report.judge(skipped).tables
