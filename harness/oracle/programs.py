"""Run old programs on the original and on Lockstep; compare with the recordings."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.dropin.declared import Program
from harness.dropin.judging import Apart, compare, largest
from harness.dropin.running import (
    LOCKSTEP,
    Interpreter,
    run,
    run_phase,
    take_checkpoints,
)
from harness.errors import HarnessError
from harness.oracle.report import ProgramRow, Status

__all__ = ["record", "replay_program"]

BY_HAND = "OpenSeq2Seq cannot be installed; what it documents, written as laws"


def replay_program(program: Program, original: Interpreter) -> ProgramRow:
    """Run a program on both interpreters, and resume each from the other's file.

    If the original gives the recording, but Lockstep's distance is larger than allowed,
    the status is ``different``, with the reason.
    """
    recorded, count = program.recorded.lines, len(program.recorded.lines)
    try:
        status: Status = "identical" if program.live else "not live"
        reason = ""
        if program.live and (apart := _apart(program, original)):
            first = f"on the original: {apart[0]}"
            return ProgramRow(program.name, "different", count, reason=first)
        with tempfile.TemporaryDirectory() as folder:
            parts = run(program, LOCKSTEP, Path(folder))
        apart = compare(recorded, [line for part in parts for line in part])
        exchanged = _exchanged(program, original) if program.exchange else None
    except HarnessError as error:
        return ProgramRow(program.name, "error", count, reason=str(error))
    worst = max(largest(apart), exchanged or 0.0)
    if worst > program.ulp:
        beyond = next((one for one in apart if one.ulp > program.ulp), None)
        status, reason = "different", f"on Lockstep: {beyond or 'after an exchange'}"
    return ProgramRow(program.name, status, count, largest(apart), exchanged, reason)


def record(program: Program, original: Interpreter, about: Mapping[str, str]) -> None:
    """Write a program's output on the original to its recording, and its checkpoints.

    If its original cannot be run, Lockstep's output is recorded. It must then be
    reviewed: it should be a list of laws that hold.
    """
    interpreter = original if program.live else LOCKSTEP
    with tempfile.TemporaryDirectory() as folder:
        if program.exchange:
            first = run_phase(program, program.phases[0], interpreter, Path(folder))
            take_checkpoints(Path(folder), program.checkpoints)
            rest = program.phases[1:]
            later = [run_phase(program, p, interpreter, Path(folder)) for p in rest]
            parts = [first, *later]
        else:
            parts = run(program, interpreter, Path(folder))
    facts = dict(about) if program.live else {"by": BY_HAND}
    head = {"recorded": {**facts, "lines": [len(part) for part in parts]}}
    lines = [json.dumps(head), *(line for part in parts for line in part)]
    program.recording.write_text("\n".join(lines) + "\n", "utf-8")


def _apart(program: Program, interpreter: Interpreter) -> Sequence[Apart]:
    with tempfile.TemporaryDirectory() as folder:
        parts = run(program, interpreter, Path(folder))
    return compare(program.recorded.lines, [line for part in parts for line in part])


def _exchanged(program: Program, original: Interpreter) -> float:
    """Resume each interpreter from the other's checkpoint; return the distance."""
    first, second = program.phases
    recorded = program.of_phase(second, program.recorded.lines)
    worst = 0.0
    for interpreters in ((original, LOCKSTEP), (LOCKSTEP, original)):
        with tempfile.TemporaryDirectory() as folder:
            run_phase(program, first, interpreters[0], Path(folder))
            lines = run_phase(program, second, interpreters[1], Path(folder))
        worst = max(worst, largest(compare(recorded, lines)))
    return worst
