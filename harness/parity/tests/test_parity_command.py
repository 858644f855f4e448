"""The command ``parity``: what it replays, reports and refuses, and how it ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.commands.cli import app
from harness.errors import HarnessError
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.command import Request, run_parity
from harness.parity.report import write_report
from harness.parity.row import Row
from harness.parity.tests.judged import MULTITASK, changed, judged
from harness.processes.children import ROOT
from lockstep.errors import UnknownNameError


def reference_only(**options: Any) -> Request:
    return Request(backends=["reference"], **options)


def test_a_failing_case_sets_the_exit_status_and_the_report(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "multitask.json").read_text("utf-8"))
    content["cases"] = content["cases"][:2]
    content["cases"][0]["expected"]["steps"][0]["global_step"] = 7
    (tmp_path / "multitask.json").write_text(json.dumps(content), "utf-8")
    report = tmp_path / "out" / "report.json"
    arguments = ["parity", "--backend", "reference", "--golden", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--report", str(report)])
    assert result.exit_code == 1
    rows = [Row.from_json(row) for row in json.loads(report.read_text("utf-8"))]
    assert [row.status for row in rows] == ["failed", "passed"]
    assert rows[0].max_ulp == math.inf


AGN = '{"format": 1, "family": "agn", "cases": '


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("{", "expected JSON"),
        ('{"format": 2, "family": "agn", "cases": []}', "got format 2"),
        (AGN + '[{"id": 1}]}', "the keys of FORMAT.*id Input should be"),
        (
            AGN + '[{"id": "1", "kind": "", "inputs": null, "expected": {}}]}',
            "the keys of FORMAT.*inputs Input should be",
        ),
    ],
)
def test_a_damaged_golden_file_is_one_sentence(
    tmp_path: Path, damage: str, words: str
) -> None:
    (tmp_path / "multitask.json").write_text(damage, "utf-8")
    with pytest.raises(HarnessError, match=words):
        read_cases(tmp_path)


def test_an_empty_or_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"expected \*\.json files, got none"):
        read_cases(tmp_path)
    with pytest.raises(HarnessError, match="a folder of golden files"):
        read_cases(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Request(backends=["tensorflow"]), UnknownNameError, "expected one of"),
        (Request(families=["multitsk"]), HarnessError, "did you mean 'multitask'"),
        (Request(modes=["eagr"]), UnknownNameError, "did you mean 'eager'"),
        (reference_only(case="multitask-p-03"), HarnessError, "did you mean"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(
    request_: Request, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_parity(request_, lambda row: None)


def test_a_report_is_read_back(tmp_path: Path) -> None:
    rows = [judged(MULTITASK), judged(changed(MULTITASK, family="dance"))]
    write_report(rows, tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [Row.from_json(row) for row in content] == rows
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["report.environment.json", "report.json"]
    about = json.loads((tmp_path / names[0]).read_text("utf-8"))
    assert about["numpy"] == np.__version__


def test_a_child_that_dies_fails_its_cases_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "dies"
    script.write_text("#!/bin/sh\necho 'last words' >&2\nexit 3\n", "utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    result = run_parity(reference_only(families=["multitask"]), lambda row: None)
    assert {row.status for row in result.rows} == {"failed", "skipped"}
    failed = next(row for row in result.rows if row.status == "failed")
    assert failed.reason.endswith("with status 3: last words")


WAITING = """
import signal
import sys
from harness.parity.command import Request, run_parity
# A shell's background job ignores SIGINT, and so would this child of such a job.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.executable = sys.argv[1]
run_parity(Request(families=["multitask"]), print)
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("end", [os.killpg, os.kill], ids=["group", "parent alone"])
def test_ctrl_c_ends_the_drivers_that_run_and_starts_no_others(
    tmp_path: Path, end: Callable[[int, int], None]
) -> None:
    started, script = tmp_path / "started", tmp_path / "waits"
    started.touch()
    words = f"#!/bin/sh\necho $$ >> '{started}'\nexec sleep 300\n"
    script.write_text(words, "utf-8")
    script.chmod(0o755)
    command = [sys.executable, "-c", WAITING, str(script)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as run:
        deadline = time.monotonic() + 60
        while len(started.read_text("utf-8").split()) < 2:
            assert time.monotonic() < deadline, "two drivers never began"
            time.sleep(0.05)
        end(run.pid, signal.SIGINT)
        try:
            assert run.wait(timeout=60) != 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    workers = [int(number) for number in started.read_text("utf-8").split()]
    assert len(workers) == 2
    for number in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_device_that_is_not_there_is_one_error() -> None:
    request = Request(backends=["reference"], families=["multitask"], device="cuda")
    with pytest.raises(HarnessError, match="reference: expected the device 'cuda'"):
        run_parity(request, lambda row: None)
