"""Old programs, ported to Lockstep, print what they printed on TensorFlow 1.15."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.oracle import old_programs
from harness.oracle.old_programs import (
    Program,
    differences,
    find,
    programs,
    record,
    replay,
    run,
)
from harness.oracle.report import ProgramRow

PYTHON = Path(sys.executable)


def beyond(program: Program, recorded: list[list[str]], got: list[list[str]]) -> list:
    return [where for ulp, where in differences(recorded, got) if ulp > program.ulp]


@pytest.mark.slow
@pytest.mark.backend("tf")
@pytest.mark.parametrize("name", programs())
def test_a_program_prints_what_the_original_printed(name: str, tmp_path: Path) -> None:
    program = find(name)
    got = [run(program, k, tmp_path, None) for k in range(len(program.phases))]
    assert beyond(program, program.recorded(), got) == []


@pytest.mark.slow
@pytest.mark.backend("tf")
@pytest.mark.parametrize("name", [n for n, p in programs().items() if p.exchange])
def test_a_checkpoint_of_the_original_is_resumed(name: str, tmp_path: Path) -> None:
    program = find(name)
    shutil.copytree(program.checkpoints, tmp_path, dirs_exist_ok=True)
    (recorded,) = program.recorded()[1:]
    assert beyond(program, [recorded], [run(program, 1, tmp_path, None)]) == []


def test_a_missing_line_is_a_difference() -> None:
    ((ulp, where),) = differences([["1", "2"]], [["1"]])
    assert (ulp, where) == (float("inf"), "line 2: expected 2, got None")


@pytest.fixture
def number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    """A program without TensorFlow that prints a number, and its recording."""
    monkeypatch.setattr(old_programs, "FOLDER", tmp_path)
    (tmp_path / "number.py").write_text("print('{\"x\": 1.0}')\n")
    program = Program("number", "a number")
    program.recording.write_text('{"recorded": {"lines": [1]}}\n{"x": 1.0}\n')
    return program


def test_a_program_that_prints_its_recording_is_identical(number: Program) -> None:
    row = ProgramRow(name="number", status="identical", lines=1, ulp=0.0)
    assert replay(number, PYTHON) == row


def test_an_original_that_prints_something_else_is_different(number: Program) -> None:
    number.recording.write_text('{"recorded": {"lines": [1]}}\n{"x": 2.0}\n')
    row = replay(number, PYTHON)
    assert row.status == "different"
    assert row.reason.startswith("on the original: line 1/x: got 1.0, recorded 2.0")


def test_a_program_is_recorded_with_what_it_ran_on(number: Program) -> None:
    number.recording.write_text("")
    record(number, PYTHON, {"tensorflow": "1.15.5"})
    head, line = number.recording.read_text().splitlines()
    assert json.loads(head) == {"recorded": {"tensorflow": "1.15.5", "lines": [1]}}
    assert line == '{"x": 1.0}'


def test_a_program_that_fails_is_one_sentence(number: Program, tmp_path: Path) -> None:
    (tmp_path / "number.py").write_text("raise SystemExit('stop here')\n")
    with pytest.raises(HarnessError, match="number: expected status 0, got 1: stop"):
        run(number, 0, tmp_path, PYTHON)


def test_an_unknown_program_is_answered_with_the_known_ones() -> None:
    with pytest.raises(HarnessError, match="multitask_heads"):
        find("multitask_head")
