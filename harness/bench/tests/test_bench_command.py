"""Measuring: native entries, what is recorded, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bench import command
from harness.bench.command import Request, bench
from harness.bench.compare import PROCESSES
from harness.bench.declare import MEASURED, find, read
from harness.bench.process import Measurement
from harness.bench.process import read as read_files
from harness.errors import HarnessError
from harness.records.record import Record
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


def records_of(request: Request, backend: str = "pytorch") -> list[Record]:
    return read_files(request.root / "local" / "smoke", backend)


# One process measures as another does; TensorFlow alone takes seconds to start.
@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=[pytest.mark.soak] * (b != "pytorch")) for b in MEASURED],
)
def test_the_files_of_pytest_benchmark_are_the_records(
    backend: str, tmp_path: Path
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    request = smoke(tmp_path, backend)
    (path,), failed = bench(request, print)
    assert not failed
    records = {record.id: record for record in records_of(request, backend)}
    setups = request.benchmarks[0].setups(backend, request.scale)
    assert set(records) == set(setups)
    content = json.loads(path.read_text("utf-8"))
    assert set(content["machine_info"]) == {"subject", "environment"}
    entries = {entry["extra_info"]["setup"]: entry for entry in content["benchmarks"]}
    for key, setup in setups.items():
        entry, series = entries[setup.key], records[key].series
        assert entry["stats"]["rounds"] == 3
        assert set(series) == set(setup.variants)
        for seconds in series.values():
            assert len(seconds) == 3 and min(seconds) > 0
        # A round is the steps of all variants, and little else.
        spent = sum(min(times) for times in series.values())
        assert entry["stats"]["max"] > spent
    lines: list[str] = []
    assert bench(request, lines.append) == ([], 0)
    assert not lines, "what is measured already was measured again"


def test_a_setup_that_fails_is_reported_with_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    request = smoke(tmp_path)
    path = request.benchmarks[0].path
    text = path.read_text("utf-8").replace(
        'model = "smoke", zeros = "half"', 'model = "smok", zeros = "half"'
    )
    path.write_text(text, "utf-8")
    request = dataclasses.replace(request, benchmarks=[read(path)])
    lines: list[str] = []
    _, failed = bench(request, lines.append)
    assert failed == 1
    assert "did you mean 'smoke'" in lines[-1]
    (fine,) = records_of(request)
    assert fine.config["zeros"] == "none"


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
def test_a_process_that_crashes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = smoke(tmp_path)
    (tmp_path / "crash").mkdir()
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    (tmp_path / "crash" / "torch.py").write_text(crash, "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "crash")
    lines: list[str] = []
    assert bench(request, lines.append) == ([], 2)
    assert "2 of them failed" in lines[-2]
    assert "ended with status -9" in lines[-1]


def fake(
    sequence: list[tuple[str, int]], crash: Callable[[int], bool] = lambda number: False
) -> Callable[..., Measurement]:
    """Return what stands for a measuring process; Ctrl-C where it would crash."""

    def measure(job: command.Job, children: object) -> Measurement:
        if crash(job.number):
            raise KeyboardInterrupt
        sequence.append((job.backend, job.number))
        machine = {
            "subject": {"backend": job.backend, "device": job.device},
            "environment": command.describe("torch", job.device),
        }
        start = f"2026-01-01T00:00:0{job.number}Z"
        entries = [
            {
                "extra_info": {
                    "setup": setup.key,
                    "task": setup.task,
                    "config": setup.config,
                    "seconds": {name: [1e-3, 2e-3] for name in setup.variants},
                    "start": start,
                }
            }
            for setup in job.setups
        ]
        return Measurement({"machine_info": machine, "benchmarks": entries}, {})

    return measure


def test_a_restart_measures_only_the_missing_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    request, first, second = smoke(tmp_path, scale="std"), [], []
    monkeypatch.setattr(command, "measure", fake(first, lambda number: number >= 2))
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
