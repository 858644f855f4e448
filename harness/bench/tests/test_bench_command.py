"""Measuring: native entries, what is recorded, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bench import command
from harness.bench.command import Request, bench, rounded
from harness.bench.compare import PROCESSES
from harness.bench.declare import MEASURED, find, read
from harness.bench.process import Measurement, Result
from harness.errors import HarnessError
from harness.records.files import read as read_records
from lockstep import registry

SMOKE = """
question = "Does it run?"
title = "Smoke"
task = "{task}"
answer = "It takes {{}}"
peers = {{ bare = "the bare optimizer" }}
rounds = {{ quick = 3, std = 4 }}

[[row]]
backend = "{backend}"
setup = {{ model = "smoke", zeros = "half" }}
peer = "bare"
headline = "as long"
what = "four small tensors"

[[row]]
backend = "{backend}"
setup = {{ model = "smoke", zeros = "none" }}
peer = "bare"
twice = true
what = "the same, every gradient present"
"""


def smoke(
    folder: Path,
    backend: str = "pytorch",
    task: str = "multitask_overhead",
    scale: str = "quick",
) -> Request:
    declared = folder / "smoke.toml"
    declared.write_text(SMOKE.format(backend=backend, task=task), "utf-8")
    return Request([read(declared)], scale, root=folder)


def records_of(request: Request, backend: str = "pytorch") -> list[command.Record]:
    return read_records(request.root / "local" / "smoke" / f"{backend}.jsonl")


# One process measures as another does; TensorFlow alone takes seconds to start.
@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=[pytest.mark.soak] * (b != "pytorch")) for b in MEASURED],
)
def test_native_entries_have_the_times_that_are_recorded(
    backend: str, tmp_path: Path
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    request = smoke(tmp_path, backend)
    bench(request, print)
    records = {record.id: record for record in records_of(request, backend)}
    setups = request.benchmarks[0].setups(backend, request.scale)
    assert set(records) == set(setups)
    content = json.loads((request.native / f"{backend}-quick-0.json").read_text())
    entries = {entry["extra_info"]["setup"]: entry for entry in content["benchmarks"]}
    assert set(entries) == {setup.key for setup in setups.values()}
    for key, setup in setups.items():
        entry, series = entries[setup.key], records[key].series
        assert entry["stats"]["rounds"] == 3
        assert set(series) == set(setup.variants)
        for variant in setup.variants:
            seconds = entry["extra_info"]["seconds"][variant]
            assert list(map(rounded, seconds)) == series[variant]
            assert len(seconds) == 3 and min(seconds) > 0
        # A round is the steps of all variants, and little else.
        spent = sum(min(times) for times in series.values())
        assert entry["stats"]["max"] > spent
    lines: list[str] = []
    bench(request, lines.append)
    assert not lines, "what is measured already was measured again"


def test_a_setup_that_fails_is_recorded_as_an_error_with_its_reason(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    request = smoke(tmp_path)
    path = request.benchmarks[0].path
    text = path.read_text("utf-8").replace(
        'model = "smoke", zeros = "half"', 'model = "smok", zeros = "half"'
    )
    path.write_text(text, "utf-8")
    request = dataclasses.replace(request, benchmarks=[read(path)])
    bench(request, print)
    failed, fine = sorted(records_of(request), key=lambda record: record.status)
    assert (failed.status, fine.status) == ("error", "ok")
    assert "did you mean 'smoke'" in failed.reason
    assert not failed.series


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
def test_a_process_that_crashes_is_recorded_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = smoke(tmp_path)
    (tmp_path / "crash").mkdir()
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    (tmp_path / "crash" / "torch.py").write_text(crash, "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "crash")
    lines: list[str] = []
    bench(request, lines.append)
    records = records_of(request)
    assert len(records) == 2
    assert {record.status for record in records} == {"error"}
    assert all("ended with status -9" in record.reason for record in records)
    assert "2 of them failed" in lines[-2]
    assert "ended with status -9" in lines[-1]


def fake(
    sequence: list[tuple[str, int]], crash: Callable[[int], bool] = lambda number: False
) -> Callable[..., Measurement]:
    """Return what stands for a measuring process; Ctrl-C where it would crash."""

    def measure(job: command.Job) -> Measurement:
        if crash(job.number):
            raise KeyboardInterrupt
        sequence.append((job.backend, job.number))
        environment = command.describe("torch", job.device)
        subject = {"backend": job.backend, "device": job.device}
        results = {
            setup.key: Result(
                "",
                "2026-01-01T00:00:00Z",
                0.1,
                1.0,
                {name: [1e-3, 2e-3] for name in setup.variants},
            )
            for setup in job.setups
        }
        return Measurement(subject, environment, results)

    return measure


def test_a_restart_measures_only_the_missing_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    request, first, second = smoke(tmp_path, scale="std"), [], []
    monkeypatch.setattr(command, "measure", fake(first, lambda number: number == 2))
    with pytest.raises(KeyboardInterrupt):
        bench(request, print)
    assert first == [("pytorch", 0), ("pytorch", 1)]
    assert {record.process for record in records_of(request)} == {0, 1}
    monkeypatch.setattr(command, "measure", fake(second))
    bench(request, print)
    assert [number for _, number in second] == list(range(2, PROCESSES))
    bench(request, print)
    assert len(second) == PROCESSES - 2


def test_unknown_names_are_refused_before_anything_is_timed(tmp_path: Path) -> None:
    request = Request([find("multitask_overhead")], root=tmp_path)
    with pytest.raises(HarnessError, match="did you mean 'pytorch'"):
        bench(dataclasses.replace(request, backends=["pytroch"]))
    assert not list(tmp_path.iterdir())
