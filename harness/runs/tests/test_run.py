"""Sweeps: resumed after any death, going on after errors, refusing in one sentence."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.errors import HarnessError
from harness.processes.environment import child_variables
from harness.records.files import read, read_lines
from harness.runs import run, worker
from harness.runs.run import Request
from harness.tests.declared import declared
from lockstep import registry

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.fixture
def tiny(tmp_path: Path) -> Experiment:
    """An experiment of 60 runs of 20 steps."""
    return declared(tmp_path)


def sweep(experiment: Experiment, root: Path, **options: Any) -> list[run.Report]:
    return run.sweep([experiment], Request("quick", root=root, **options))


# Its like, without a kill: test_a_sweep_that_was_stopped_goes_on.
@pytest.mark.soak
@needs_torch
def test_a_sweep_that_was_killed_goes_on_where_it_stopped(
    tiny: Experiment, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.runs import run; "
        "from harness.declarations import declare\n"
        "experiment = declare.read(Path(sys.argv[1]) / 'tiny.toml')\n"
        "run.sweep([experiment], run.Request('quick', root=Path(sys.argv[1]), jobs=2))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=child_variables()
    )
    path = tmp_path / "local" / "tiny" / "pytorch.jsonl"
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    before = path.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    done = whole.count(b"\n")
    assert 5 <= done < 60

    (report,) = sweep(tiny, tmp_path)

    assert (report.settled, report.counts["ok"]) == (done, 60 - done)
    assert path.read_bytes().startswith(whole)
    assert sorted(record.seed for record in read(path)) == list(range(60))
    environments = read_lines(path.with_name("pytorch.environments.jsonl"))
    assert {record.environment for record in read(path)} == {
        line["id"] for line in environments
    }
    (again,) = sweep(tiny, tmp_path)
    assert (again.settled, again.counts.total()) == (60, 0)


@needs_torch
def test_published_runs_and_a_users_own_lie_apart(tmp_path: Path) -> None:
    sweep(declared(tmp_path, seeds=2), tmp_path, publish=True)
    assert (tmp_path / "tiny" / "pytorch.jsonl").exists()
    assert not (tmp_path / "local").exists()


def test_what_a_run_raises_is_its_status_and_reason(tiny: Experiment) -> None:
    broken = declare.Run("tiny", tiny.task, {"steps": 1}, seed=0)
    outcome = worker.attempt(broken, "pytorch", "cpu")
    assert outcome.status == "error"
    assert outcome.reason.startswith("ValidationError: ")
    assert "\n" not in outcome.reason


@needs_torch
def test_a_device_that_is_not_there_is_one_sentence(
    tiny: Experiment, tmp_path: Path
) -> None:
    (report,) = sweep(tiny, tmp_path, device="xpu")
    assert (report.state, report.counts.total()) == ("stopped", 0)
    assert "pytorch: expected the device 'xpu'" in report.reason
    assert [path for path in tmp_path.rglob("*.jsonl")] == []


def test_a_missing_framework_is_skipped_unless_it_was_asked_for(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: False)
    (report,) = sweep(tiny, tmp_path)
    assert (report.state, report.failed) == ("skipped", False)
    assert "pip install torch" in report.reason
    with pytest.raises(HarnessError, match="expected torch to be installed"):
        sweep(tiny, tmp_path, backends=["pytorch"])
    assert not (tmp_path / "local").exists()


def test_a_folder_that_cannot_be_written_stops_before_any_work(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: True)
    monkeypatch.setattr(run, "do_all", lambda *_: pytest.fail("work was done"))
    (tmp_path / "local").write_text("")
    with pytest.raises(HarnessError, match="choose a folder that you may write to"):
        sweep(tiny, tmp_path)


def wait_until(claim: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
