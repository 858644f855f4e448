"""Old TensorFlow 1 programs, run on the original and ported on Lockstep.

``programs/programs.toml`` lists them. Beside each lies what it printed on TensorFlow
1.15, as lines of JSON. On Lockstep ``lockstep port`` changes its imports first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.oracle.distances import distances
from harness.oracle.report import ProgramRow
from harness.processes.environment import child_variables
from lockstep.errors import unknown_name

FOLDER = Path(__file__).with_name("programs")
SECONDS = 300
"""After this time a program is killed."""
BY_HAND = "OpenSeq2Seq cannot be installed; what it documents, written as laws"

Lines = list[list[str]]
"""What each phase of a program printed."""


@dataclass(frozen=True)
class Program:
    """A program for TensorFlow 1.15; ``programs.toml`` describes the fields."""

    name: str
    shows: str
    phases: Sequence[Mapping[str, Any]] = ({},)
    ulp: float = 0.0
    reason: str = ""
    exchange: bool = False
    live: bool = True

    @property
    def recording(self) -> Path:
        """The file with what the original printed."""
        return FOLDER / f"{self.name}.out.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder with the files that the first phase wrote on the original."""
        return FOLDER / "checkpoints" / self.name

    def recorded(self) -> Lines:
        """Return the lines that each phase printed on the original."""
        about, *lines = self.recording.read_text("utf-8").splitlines()
        counts, rest = json.loads(about)["recorded"]["lines"], iter(lines)
        return [[next(rest) for _ in range(count)] for count in counts]


@cache
def programs() -> Mapping[str, Program]:
    """Read ``programs.toml``."""
    content = tomllib.loads((FOLDER / "programs.toml").read_text("utf-8"))
    return {entry["name"]: Program(**entry) for entry in content["program"]}


def find(name: str) -> Program:
    """Return the program with this name."""
    if name not in programs():
        raise HarnessError(str(unknown_name("program", name, list(programs()))))
    return programs()[name]


def live_variables() -> dict[str, str]:
    """Return variables for a child of another Python, without those of this one."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**others, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1"}


def run(program: Program, place: int, folder: Path, python: Path | None) -> list[str]:
    """Run a phase and return the lines it printed.

    Args:
        place: the number of the phase.
        folder: it has the files of the phases before.
        python: the interpreter of the original; None for Lockstep.

    Raises:
        HarnessError: it ended with an unexpected status, or not at all.
    """
    from lockstep.port.rewrite import port  # The pages are written without libcst.

    phase = program.phases[place]
    source = (FOLDER / f"{program.name}.py").read_bytes()
    path = folder / f"{program.name}.py"
    path.write_bytes(source if python else port(source).output)
    command = [str(python or sys.executable), "-W", "ignore", str(path)]
    variables = live_variables() if python else child_variables()
    try:
        done = subprocess.run(
            [*command, *phase.get("arguments", [])],
            cwd=folder,
            env={**variables, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{program.name}: expected an end within {SECONDS} s, got none"
        raise HarnessError(f"{text}; run it alone.") from error
    expected = phase.get("status", 0)
    if done.returncode != expected:
        last = (done.stderr.strip().splitlines() or ["no error was printed"])[-1]
        text = f"{program.name}: expected status {expected}, got {done.returncode}"
        raise HarnessError(f"{text}: {last}")
    return done.stdout.splitlines()


def run_phases(program: Program, *pythons: Path | None) -> Lines:
    """Run all phases in one folder, each with its interpreter."""
    with TemporaryDirectory() as folder:
        return [run(program, k, Path(folder), p) for k, p in enumerate(pythons)]


def replay(program: Program, python: Path) -> ProgramRow:
    """Compare both interpreters with the recording, and exchange checkpoints."""
    recorded, count = program.recorded(), len(program.phases)
    row = ProgramRow(name=program.name, status="identical")
    row.lines = sum(map(len, recorded))
    try:
        if not program.live:
            row.status = "not live"
        elif apart := list(
            differences(recorded, run_phases(program, *[python] * count))
        ):
            row.status, row.reason = "different", f"on the original: {apart[0][1]}"
            return row
        apart = list(differences(recorded, run_phases(program, *[None] * count)))
        row.ulp = max([0.0, *(ulp for ulp, _ in apart)])
        if program.exchange:
            later: list[tuple[float, str]] = []
            for pythons in ((python, None), (None, python)):
                lines = run_phases(program, *pythons)[1:]
                later += differences(recorded[1:], lines)
            row.exchanged = max([0.0, *(ulp for ulp, _ in later)])
            apart += later
    except HarnessError as error:
        row.status, row.reason = "error", str(error)
        return row
    for ulp, where in apart:
        if ulp > program.ulp:
            row.status, row.reason = "different", f"on Lockstep: {where}"
            break
    return row


def record(program: Program, python: Path, versions: Mapping[str, str]) -> None:
    """Record what a program prints on the original, and its checkpoints.

    Where the original cannot be run, Lockstep's output is recorded. Review it: it
    should be a list of laws that hold.
    """
    with TemporaryDirectory() as name:
        folder, parts = Path(name), []
        for place in range(len(program.phases)):
            parts.append(run(program, place, folder, python if program.live else None))
            if program.exchange and place == 0:
                program.checkpoints.mkdir(parents=True, exist_ok=True)
                for pattern in ("checkpoint", "*.index", "*.data-*"):
                    for path in folder.glob(pattern):
                        shutil.copy(path, program.checkpoints)
    facts = dict(versions) if program.live else {"by": BY_HAND}
    head = {"recorded": {**facts, "lines": [len(part) for part in parts]}}
    lines = [json.dumps(head), *(line for part in parts for line in part)]
    program.recording.write_text("\n".join(lines) + "\n", "utf-8")


def differences(recorded: Lines, got: Lines) -> Iterator[tuple[float, str]]:
    """Yield the distance in ULP and the place of all that differs, phase by phase."""
    for one, other in zip(recorded, got, strict=True):
        for number, (expected, printed) in enumerate(zip_longest(one, other), 1):
            if expected is None or printed is None:
                yield np.inf, f"line {number}: expected {expected}, got {printed}"
                continue
            pair = json.loads(expected), json.loads(printed)
            for ulp, text in distances(*pair, f"line {number}"):
                if ulp:
                    yield ulp, text
