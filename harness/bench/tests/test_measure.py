"""Measuring: native entries, what is recorded, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from harness.bench import measure
from harness.bench.compare import PROCESSES
from harness.bench.compare import read as read_files
from harness.bench.declare import MEASURED, find, read
from harness.bench.measure import ROUNDS, Request, bench, missing_jobs
from harness.errors import HarnessError
from harness.records.record import Record
from harness.tasks.own import text_of
from harness.tests.benched import ENVIRONMENT, write_times
from lockstep import registry

SMOKE = """
question = "Does it run?"
title = "Smoke"
task = "multitask_overhead"
answer = "It takes {}"
peers = { bare = "the bare optimizer" }

[[row]]
backend = "BACKEND"
setup = { model = "smoke", zeros = "half" }
peer = "bare"
headline = "as long"
what = "four small tensors"

[[row]]
backend = "BACKEND"
setup = { model = "smoke", zeros = "none" }
peer = "bare"
twice = true
what = "the same, every gradient present"
"""


def smoke(
    folder: Path, backend: str = "pytorch", scale: str = "quick", text: str = SMOKE
) -> Request:
    declared = folder / "smoke.toml"
    declared.write_text(text.replace("BACKEND", backend), "utf-8")
    return Request([read(declared)], scale, root=folder)


def records_of(request: Request, backend: str = "pytorch") -> list[Record]:
    return read_files(request.out / "smoke", backend)


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=300)


# One process measures as another does; TensorFlow alone takes seconds to start.
@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=[pytest.mark.soak] * (b != "pytorch")) for b in MEASURED],
)
def test_the_files_of_pytest_benchmark_are_the_records(
    backend: str, tmp_path: Path, console: Console
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    request = smoke(tmp_path, backend)
    (path,), failures = bench(request, console)
    assert not failures
    records = {record.id: record for record in records_of(request, backend)}
    setups = request.benchmarks[0].setups(backend, request.scale)
    assert set(records) == {setup.id for setup in setups}
    content = json.loads(path.read_text("utf-8"))
    assert set(content["machine_info"]) == {"subject", "environment"}
    assert set(content["commit_info"]) == {"id", "dirty"}
    entries = {entry["extra_info"]["setup"]: entry for entry in content["benchmarks"]}
    for setup in setups:
        entry, series = entries[setup.key], records[setup.id].series
        assert entry["stats"]["rounds"] == ROUNDS["quick"]
        assert set(series) == set(setup.variants)
        for seconds in series.values():
            assert len(seconds) == ROUNDS["quick"] and min(seconds) > 0
        # A round is the steps of all variants, and little else.
        spent = sum(min(times) for times in series.values())
        assert entry["stats"]["max"] > spent
    assert not list(missing_jobs(request)), "what is measured is measured again"


def test_a_setup_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, console: Console
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = SMOKE.replace('"smoke", zeros = "half"', '"smok", zeros = "half"')
    request = smoke(tmp_path, text=text)
    _, (failure,) = bench(request, console)
    assert failure.setup.config["model"] == "smok"
    assert "pytorch, smoke-smok-half: KeyError: 'smok'" in console.export_text()
    (fine,) = records_of(request)
    assert fine.config["zeros"] == "none"


OWN = """
question = "Does it run?"
title = "Smoke"
task = "own_optimizer"
answer = "It takes {}"
peers = { adam = "Adam" }
"""
ROW = """
[[row]]
backend = "pytorch"
setup = { model = "smoke", file = "PATH:make", text = "DIGEST" }
peer = "adam"
what = "an optimizer"
"""
OPTIMIZERS = {
    "works": "import torch\ndef make(parameters, learning_rate):\n"
    "    return torch.optim.SGD(parameters)",
    "crashes": "import os\ndef make(parameters, learning_rate):\n"
    "    os.kill(os.getpid(), 9)",
}


@pytest.mark.skipif(os.name != "posix", reason="ends by a signal")
def test_what_is_measured_before_a_crash_is_kept(
    tmp_path: Path, console: Console
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = OWN
    for name, source in OPTIMIZERS.items():
        path = tmp_path / f"{name}.py"
        path.write_text(source, "utf-8")
        row = ROW.replace("PATH", str(path)).replace("DIGEST", text_of(path))
        text += row
    request = smoke(tmp_path, text=text)
    first, last = next(missing_jobs(request)).setups
    assert "works" in first.config["file"]
    _, (failure,) = bench(request, console)
    assert failure.setup == last
    assert "ended with status -9" in failure.reason
    assert [record.id for record in records_of(request)] == [first.id]
    assert [job.setups for job in missing_jobs(request)] == [(last,)]


def test_a_restart_measures_only_the_missing_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    benchmark = find("multitask_overhead")
    request = Request([benchmark], "std", ["pytorch"], root=tmp_path)
    write_times(benchmark, tmp_path, {}, processes=2, publish=False)
    monkeypatch.setattr(measure, "describe", lambda *_: ENVIRONMENT)
    left = [job.number for job in missing_jobs(request)]
    assert left == list(range(2, PROCESSES))
    again = dataclasses.replace(request, again=True)
    assert len(list(missing_jobs(again))) == PROCESSES
    monkeypatch.setattr(measure, "describe", lambda *_: {"python": "4"})
    assert len(list(missing_jobs(request))) == PROCESSES


def test_unknown_names_are_refused_before_anything_is_timed(
    tmp_path: Path, console: Console
) -> None:
    request = Request([find("multitask_overhead")], root=tmp_path)
    with pytest.raises(HarnessError, match="did you mean 'pytorch'"):
        bench(dataclasses.replace(request, backends=["pytroch"]), console)
    assert not list(tmp_path.iterdir())
