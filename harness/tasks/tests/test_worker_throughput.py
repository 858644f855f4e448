"""Throughput of workers in processes of their own: what is measured and expected."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.errors import HarnessError
from harness.processes.children import Children
from harness.records.record import Record
from harness.runs.workers import Worker
from harness.tasks.worker_team import local_ray, measurement, tables
from harness.tasks.worker_team.settings import PERIODS
from harness.tasks.worker_throughput import report
from harness.tasks.worker_throughput.report import expected_steps, most_steps
from harness.tasks.worker_throughput.task import Settings
from harness.tests.makers import made_up

RUNS = declare.find("worker_throughput").runs("quick")
ALONE = {"seconds/step": 5e-3, "seconds/exchange": 4e-3, "seconds/center": 1e-3}


def records(expected: float = 1.0, ddp: float = 50.0) -> list[Record]:
    """Return records of workers that take so many times the expected steps."""
    made = []
    for run in RUNS:
        record = made_up(run, "pytorch", np.random.default_rng(0))
        summary = {**record.summary, **ALONE, "steps/ddp": ddp}
        workers = run.config["workers"]
        for period in PERIODS:
            steps = expected_steps(ALONE, period, workers)
            summary[f"steps/{period}"] = expected * steps
        made.append(dataclasses.replace(record, summary=summary))
    return made


# -- what is expected ------------------------------------------------------------------


def test_one_worker_takes_its_step_and_its_exchange() -> None:
    for period in PERIODS:
        seconds = period * 5e-3 + 4e-3
        assert expected_steps(ALONE, period, 1) == pytest.approx(period / seconds)


def test_many_workers_take_what_the_center_takes() -> None:
    assert expected_steps(ALONE, 10, 2000) == pytest.approx(10 / 1e-3, rel=0.01)
    assert most_steps(ALONE, 10, 2000) == pytest.approx(10 / 1e-3)


def test_a_center_that_seems_to_take_all_of_an_exchange_leaves_no_part_to_others() -> (
    None
):
    slow = {**ALONE, "seconds/center": 6e-3}
    assert expected_steps(slow, 1, 1) == pytest.approx(1 / (5e-3 + 6e-3))


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
    end = time.monotonic() + SECONDS_TO_END
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.2)
    assert not marked(mark)
    assert isinstance(answer, Mapping), how
    assert answer["status"] == "ok", answer["reason"]
    made = made_up(run, "pytorch", np.random.default_rng(0))
    outcome = {name: answer[name] for name in ("series", "summary")}
    record = dataclasses.replace(made, **outcome)
    assert set(record.summary) == set(made.summary)
    assert min(record.summary.values()) > 0
    # A step waits for 5 ms, and two workers cannot take more of them.
    assert max(record.summary[f"steps/{p}"] for p in PERIODS) < 2 / 5e-3
    for period in PERIODS:
        sent = period * record.summary[f"bytes/{period}"]
        assert sent == pytest.approx(Settings(**config).model_bytes)
    assert tables.mean_staleness(record, 1) == pytest.approx(1, abs=0.5)


def test_bytes_are_those_that_an_interface_has_sent(tmp_path: Path) -> None:
    counters = tmp_path / "dev"
    assert measurement.sent_bytes(counters, "lo") is None
    titles = "Inter-|   Receive      |  Transmit\n face |bytes packets |bytes packets\n"
    received, sent = "7 6 5 4 3 2 1 0", "800 8 0 0 0 0 0 0"
    counters.write_text(
        f"{titles}    lo: {received} {sent}\n  eth0:{received} 9{sent}\n"
    )
    assert measurement.sent_bytes(counters, "lo") == 800
    assert measurement.sent_bytes(counters, "eth0") == 9800
    assert measurement.sent_bytes(counters, "eth1") is None


def test_without_ray_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ray.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HarnessError, match="expected Ray, got none"):
        local_ray.require_ray("worker_throughput")


@pytest.mark.parametrize(
    "changed", [{"workers": 0}, {"workers": 1000}, {"step_ms": 0}, {"window": 0.01}]
)
def test_settings_that_make_no_run_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Settings(**{**RUNS[0].config, **changed})


# -- findings --------------------------------------------------------------------------


def test_the_table_compares_with_ddp_and_with_the_model() -> None:
    steps = expected_steps(ALONE, 10, 8)
    judgement = report.judge(records(expected=0.9, ddp=steps * 0.9 / 4))
    rows = judgement.tables["steps"].set_index(["workers", "mode"])
    assert rows.loc[(8, "period 10"), "over_ddp"] == pytest.approx(4)
    expected = rows["over_expected"].dropna().tolist()
    assert expected == pytest.approx([0.9] * len(expected))
    assert report.match(judgement.tables, judgement.tables)["matches"].all()


def test_bytes_that_are_not_counted_are_missing() -> None:
    uncounted = [
        dataclasses.replace(
            r, summary={k: v for k, v in r.summary.items() if k != "bytes/ddp"}
        )
        for r in records()
    ]
    judgement = report.judge(uncounted)
    ddp = judgement.tables["steps"]["mode"] == tables.DDP
    assert judgement.tables["steps"][ddp]["bytes_per_step"].isna().all()
    metric = report.METRICS["round over DDP's step in bytes, period 10"]
    assert np.isnan(metric.read(uncounted[0]))


def test_shares_of_staleness_are_of_all_pushes() -> None:
    table = tables.staleness(records())
    for _, rows in table.groupby(["workers", "period"]):
        assert rows["share"].sum() == pytest.approx(1)
