"""Sweeps: resumed after any death, going on after errors, refusing in one sentence."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import declare, run, worker
from harness.declare import Experiment
from harness.environment import child_variables
from harness.errors import HarnessError
from harness.progress import Lines
from harness.records.files import read
from harness.records.log import read_lines
from lockstep import registry

TINY = """
question = "Does it resume?"
title = "Tiny"
task = "multitask_digits"
backends = ["pytorch"]
[fixed]
batch = 2
hidden = 2
checkpoints = 2
absence = [1]
presence = 0.5
wrapper = "default"
[vary]
optimizer = [{ name = "GradientDescent", learning_rate = 0.1 }]
"""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.fixture
def tiny(tmp_path: Path) -> Experiment:
    """An experiment of 60 runs of 20 steps."""
    scales = "".join(
        f'[scale.{name}]\nseeds = 60\nsteps = 20\nbecause = "tiny"\n'
        for name in declare.SCALES
    )
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + scales, "utf-8")
    return declare.read(path)


@pytest.mark.slow
@needs_torch
def test_a_sweep_that_was_killed_goes_on_where_it_stopped(
    tiny: Experiment, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from harness import declare, run\n"
        "experiment = declare.read(Path(sys.argv[1]) / 'tiny.toml')\n"
        "run.sweep(experiment, 'quick', root=Path(sys.argv[1]))"
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

    (report,) = run.sweep(tiny, "quick", root=tmp_path)

    assert (report.kept, report.counts["ok"]) == (done, 60 - done)
    assert path.read_bytes().startswith(whole)
    assert sorted(record.seed for record in read(path)) == list(range(60))
    environments = read_lines(path.with_name("pytorch.environments.jsonl"))
    assert {record.environment for record in read(path)} == {
        line["id"] for line in environments
    }
    (again,) = run.sweep(tiny, "quick", root=tmp_path)
    assert (again.kept, again.counts.total()) == (60, 0)


@needs_torch
def test_published_runs_and_a_users_own_lie_apart(
    tiny: Experiment, tmp_path: Path
) -> None:
    run.sweep(tiny, "quick", publish=True, root=tmp_path)
    assert (tmp_path / "tiny" / "pytorch.jsonl").exists()
    assert not (tmp_path / "local").exists()


def test_what_a_run_raises_is_its_status_and_reason(tiny: Experiment) -> None:
    broken = declare.Run("tiny", tiny.task, {"steps": 1}, seed=0)
    outcome = worker.attempt(broken, "pytorch", "cpu")
    assert outcome.status == "error"
    assert outcome.reason.startswith("TypeError: ")
    assert "\n" not in outcome.reason


def scripted(*lines: str, status: int = 0, said: str = "") -> Any:
    """Return a worker that prints these lines and ends."""

    def run_lines(
        module: str,
        arguments: Any,
        stdin: str,
        on_line: Callable[[str], None],
        children: Any,
    ) -> tuple[int, str]:
        ids = [declare.Run(**json.loads(line)).id for line in stdin.splitlines()]
        for line, run_id in zip(lines, ["", *ids], strict=False):
            on_line(line.replace("ID", run_id))
        return status, said

    return run_lines


HELLO = '{"subject": {"backend": "pytorch", "device": "cpu"}, "environment": {}}\n'
DONE = (
    '{"id": "ID", "start": "2026-01-02T03:04:05Z", "load": 0.5, "duration": 0.1, '
    '"modules": {}, "status": "ok", "reason": "", "series": {}, "summary": {}}\n'
)
OK, BAD = DONE, DONE.replace('"ok", "reason": ""', '"error", "reason": "E"')


@needs_torch
def test_an_error_does_not_end_the_sweep_and_is_tried_again(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run_lines", scripted(HELLO, BAD, *[OK] * 59))
    (report,) = run.sweep(tiny, "quick", root=tmp_path)
    assert dict(report.counts) == {"error": 1, "ok": 59}
    assert report.failed
    assert "E (1 x)" in str(report)
    monkeypatch.setattr(run, "run_lines", scripted(HELLO, OK))
    (report,) = run.sweep(tiny, "quick", root=tmp_path)
    assert (report.kept, dict(report.counts), report.failed) == (59, {"ok": 1}, False)


@needs_torch
def test_a_worker_that_dies_is_reported(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = scripted(HELLO, OK, OK, '{"id": "I', status=-9, said="one\nout of memory\n")
    monkeypatch.setattr(run, "run_lines", dying)
    (report,) = run.sweep(tiny, "quick", root=tmp_path)
    assert (report.state, report.counts["ok"], report.failed) == ("stopped", 2, True)
    assert "signal 9, out of memory" in report.reason
    assert "58 runs are missing" in report.reason


@needs_torch
def test_a_device_that_is_not_there_is_one_sentence(
    tiny: Experiment, tmp_path: Path
) -> None:
    (report,) = run.sweep(tiny, "quick", device="xpu", root=tmp_path)
    assert (report.state, report.counts.total()) == ("stopped", 0)
    assert "pytorch: expected the device 'xpu'" in report.reason
    assert [path for path in tmp_path.rglob("*.jsonl")] == []


def test_a_missing_framework_is_skipped_unless_it_was_asked_for(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: False)
    (report,) = run.sweep(tiny, "quick", root=tmp_path)
    assert (report.state, report.failed) == ("skipped", False)
    assert "pip install 'lockstep-optimizers[torch]'" in report.reason
    with pytest.raises(HarnessError, match="expected torch to be installed"):
        run.sweep(tiny, "quick", ["pytorch"], root=tmp_path)
    assert not (tmp_path / "local").exists()


def test_an_unknown_backend_gives_the_nearest(tiny: Experiment, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="did you mean 'pytorch'"):
        run.sweep(tiny, "quick", ["torch"], root=tmp_path)


def test_a_folder_that_cannot_be_written_stops_before_any_work(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: True)
    monkeypatch.setattr(run, "run_lines", lambda *_: pytest.fail("work was done"))
    (tmp_path / "local").write_text("")
    with pytest.raises(HarnessError, match="choose a folder that you may write to"):
        run.sweep(tiny, "quick", root=tmp_path)


def test_progress_without_a_terminal_is_plain_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines({"tf": 3}) as lines:
        for _ in range(3):
            lines.advance("tf")
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("tf: 1 of 3 runs, about ")
    assert last == "tf: 3 of 3 runs, about 0 s left"


def wait_until(claim: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
