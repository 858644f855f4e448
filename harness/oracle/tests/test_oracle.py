"""The oracle run: where Python 3.7 is missing, what it reports, that it can fail."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.dropin.declared import Program
from harness.dropin.running import LOCKSTEP, Interpreter, original
from harness.errors import HarnessError
from harness.oracle import environment, programs, terminal
from harness.oracle.command import Request, run_oracle
from harness.oracle.environment import find_python, oracle_python
from harness.oracle.live.compare import compare
from harness.oracle.report import (
    CaseRow,
    ProgramRow,
    Report,
    judged,
    print_report,
    read_report,
    write_report,
)
from harness.parity.cases import GOLDEN

SAYS_37 = "#!/bin/sh\necho True\n"
SAYS_OTHER = "#!/bin/sh\necho False\n"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run_here(
    report_file: Path | None = None, families: tuple[str, ...] = ("multitask",)
) -> int:
    return terminal.run_in_terminal(GOLDEN, families, (), False, report_file)


def test_without_python_3_7_it_says_so_in_one_sentence_and_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in (environment.VARIABLE, "PYENV_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    report = tmp_path / "report.json"
    assert run_here(report) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("oracle: skipped: no Python 3.7 on PATH")
    assert not report.exists()


def test_an_install_that_fails_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail() -> Path:
        return oracle_python(tmp_path / "oracle")

    text = 'if [ "$1" = -c ]; then echo True; else echo no network >&2; exit 1; fi'
    python = script(tmp_path / "python3.7", f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv(environment.VARIABLE, str(python))
    monkeypatch.setattr(terminal, "oracle_python", fail)
    assert run_here() == 0
    assert "could not be installed: no network" in capsys.readouterr().out
    assert not (tmp_path / "oracle/stamp").exists()


def test_an_environment_with_a_current_stamp_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = script(tmp_path / "python3.7", SAYS_37)
    monkeypatch.setenv(environment.VARIABLE, str(python))
    made: list[Path] = []

    def build(base: Path, home: Path, target: Path) -> None:
        made.append(script(target, SAYS_37))

    monkeypatch.setattr(environment, "_build", build)
    home = tmp_path / "oracle"
    assert oracle_python(home) == oracle_python(home) == made[0]
    assert len(made) == 1
    (home / "stamp").write_text("of another recipe")
    oracle_python(home)
    assert len(made) == 2


@pytest.mark.parametrize("where", ["variable", "path", "pyenv", "home"])
def test_python_3_7_is_found(where: str, tmp_path: Path) -> None:
    places = {
        "variable": tmp_path / "named/python",
        "path": tmp_path / "bin/python3.7",
        "pyenv": tmp_path / "root/versions/3.7.16/bin/python3.7",
        "home": tmp_path / ".pyenv/versions/3.7.9/bin/python3.7",
    }
    variables = {
        environment.VARIABLE: str(places["variable"]),
        "PATH": str(tmp_path / "bin"),
        "PYENV_ROOT": str(tmp_path / "root"),
        "HOME": str(tmp_path),
    }
    assert find_python(variables) is None
    assert find_python(variables) != script(places[where], SAYS_37)
    assert find_python(variables) == places[where]


def test_a_shim_that_stands_for_another_python_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "bin/python3.7", SAYS_OTHER)
    right = script(tmp_path / "root/versions/3.7.1/bin/python3.7", SAYS_37)
    variables = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "root")}
    assert find_python(variables) == right


def line(**more: Any) -> dict[str, Any]:
    about = {"id": "a-0", "family": "a", "kind": "k", "source": "tensorflow"}
    return {**about, "status": "different", "compared": 3, "different": 1, **more}


@pytest.mark.parametrize(
    ("optimizer", "ulp", "status"),
    [
        ("RMSProp", 2.0, "listed"),
        ("RMSProp", 5.0, "different"),
        ("RMSProp", "inf", "different"),
        ("Momentum", 0.25, "different"),
    ],
)
def test_only_what_is_listed_may_differ(
    optimizer: str, ulp: float | str, status: str
) -> None:
    row = judged(line(optimizer=optimizer, ulp=ulp))
    assert row.status == status
    assert bool(row.reason) == (status == "listed")
    assert Report(cases=[row]).failed == (status != "listed")


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "oracle/report.json"
    bad = judged(line(ulp="inf", first={"where": "steps/0"}))
    program = ProgramRow("p", "identical", 3, 0.5, float("inf"), "why")
    report = Report({"tensorflow": "1.15.5"}, [bad], [program])
    write_report(report, path)
    assert read_report(path) == report
    assert read_report(tmp_path / "none.json") is None


def test_a_damaged_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"cases": [{"id": 1}]}')
    with pytest.raises(HarnessError, match=r"report\.json: expected a report"):
        read_report(path)


def test_differences_errors_and_what_is_not_live_are_printed() -> None:
    console = Console(record=True, width=160, file=io.StringIO())
    absent = CaseRow("b-0", "b", "k", "open_seq2seq", "not live")
    different = judged(line(ulp=1.0, first={"where": "steps/4/variables/w"}))
    print_report(Report(cases=[different, absent]), console)
    text = console.export_text()
    assert "steps/4/variables/w" in text
    assert "OpenSeq2Seq cannot be installed; its families: b" in text


def child(tmp_path: Path, *lines: dict[str, Any], status: int = 0) -> Path:
    """Write a program that stands for the interpreter of the originals."""
    said = "\n".join(f"echo '{json.dumps(one)}'" for one in lines)
    return script(tmp_path / "child", f"#!/bin/sh\n{said}\nexit {status}\n")


HEAD = {"cases": 1, "environment": {"tensorflow": "1.15.5"}}


def test_what_the_replay_prints_becomes_rows(tmp_path: Path) -> None:
    python = child(tmp_path, HEAD, line(status="identical"))
    seen: list[tuple[str, int]] = []
    request = Request(families=("multitask",))
    report = run_oracle(request, python, lambda *told: seen.append(told))
    assert [row.status for row in report.cases] == ["identical"]
    assert report.environment == {"tensorflow": "1.15.5"}
    assert seen == [("a", 1)]
    assert not report.failed


@pytest.mark.parametrize("status", [0, 1])
def test_a_replay_that_ends_early_is_an_error(tmp_path: Path, status: int) -> None:
    python = child(tmp_path, HEAD, status=status)
    request = Request(families=("multitask",))
    with pytest.raises(HarnessError, match="got 0 of 1"):
        run_oracle(request, python, lambda *told: None)


def test_an_unknown_family_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="multitask"):
        request = Request(families=("multitusk",))
        run_oracle(request, tmp_path / "nothing", lambda *told: None)


def test_a_missing_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    request = Request(tmp_path / "missing")
    with pytest.raises(HarnessError, match="--golden: expected a folder of golden"):
        run_oracle(request, tmp_path / "nothing", lambda *told: None)


@pytest.mark.parametrize(
    ("recorded", "found", "ulp"),
    [
        ({"a": [1.0, 2.0]}, {"a": np.float32([1, 2])}, 0),
        ({"a": [1.0, 2.0]}, {"a": np.float32([1, 2.0000002])}, 1),
        ({"a": ["nan", "-inf"]}, {"a": np.float32([np.nan, -np.inf])}, 0),
        ({"a": ["inf", 1.0]}, {"a": np.float32([-np.inf, 1])}, np.inf),
        ({"a": [1.0]}, {"a": np.float32([np.nan])}, np.inf),
        ({"a": [-0.0]}, {"a": np.float32([0])}, 0),
        ({"a": [0.1]}, {"a": np.float64([0.1])}, np.inf),
        ({"a": [0.577]}, {"a": np.float16([0.577])}, 0),
        ({"a": [1.0, 2.0]}, {"a": np.float32([1])}, np.inf),
        ({"a": []}, {"a": np.zeros([0, 3], np.float32)}, 0),
        ({"a": 3}, {"a": np.int64(3)}, 0),
        ({"a": 3}, {"a": np.int64(4)}, np.inf),
        ({"a": True}, {"a": np.bool_(True)}, 0),
        ({"a": "ref"}, {"a": "resource"}, np.inf),
        ({"a": None}, {"a": np.float32(1)}, np.inf),
        ({"a": 1.0}, {}, np.inf),
        ({"a": [{"b": 1}]}, {"a": []}, np.inf),
        ({}, {"a": np.float32(1)}, 0),
    ],
    ids=str,
)
def test_the_live_comparison_follows_the_format(
    recorded: Any, found: Any, ulp: float
) -> None:
    worst = max((value.ulp for value in compare(recorded, found)), default=0.0)
    assert worst == pytest.approx(ulp)


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    """A program without TensorFlow that prints a number, and its recording."""
    text = "import json\n# --- imports ---\n# --- end of imports ---\nX = 1.0\n"
    source = f"{text}print(json.dumps({{'x': X}}))\n"
    recording = tmp_path / "printing.out.jsonl"
    head = {"recorded": {"tensorflow": "1.15.5", "lines": [1]}}
    recording.write_text(f'{json.dumps(head)}\n{{"x": 1.0}}\n')
    monkeypatch.setattr(Program, "text", property(lambda program: source))
    monkeypatch.setattr(Program, "recording", property(lambda program: recording))
    return Program("printing", "a number")


@pytest.fixture
def live() -> Interpreter:
    """This Python in place of the originals'."""
    return original(LOCKSTEP.python, LOCKSTEP.variables)


def test_a_program_that_prints_what_was_recorded_is_identical(
    printing: Program, live: Interpreter
) -> None:
    row = programs.replay_program(printing, live)
    assert (row.status, row.lines, row.ulp) == ("identical", 1, 0.0)


def test_an_original_that_prints_something_else_is_different(
    printing: Program, live: Interpreter
) -> None:
    text = printing.recording.read_text().replace("1.0}", "2.0}")
    printing.recording.write_text(text)
    row = programs.replay_program(printing, live)
    assert row.status == "different"
    assert row.reason.startswith("on the original: line 1, x: got 1.0, recorded 2.0")


def test_a_program_is_recorded_with_what_it_ran_on(
    printing: Program, live: Interpreter
) -> None:
    printing.recording.write_text("")
    programs.record(printing, live, {"tensorflow": "1.15.5"})
    assert printing.recorded.about == {"tensorflow": "1.15.5", "lines": [1]}
    assert list(printing.recorded.lines) == ['{"x": 1.0}']
