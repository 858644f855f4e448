"""Old TensorFlow 1 programs, run on the original and ported on Lockstep.

``programs/programs.toml`` lists them. Beside each lies what it printed on TensorFlow
1.15, as lines of JSON. On Lockstep ``lockstep port`` changes its imports first.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.oracle.environment import quiet_variables
from harness.oracle.report import ProgramRow, Status
from harness.parity.distance import distance
from harness.processes.environment import child_variables
from lockstep.errors import unknown_name

FOLDER = Path(__file__).with_name("programs")
SECONDS = 300
"""After this time a program is killed."""
BY_HAND = "OpenSeq2Seq cannot be installed; what it documents, written as laws"


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

    def recorded(self) -> list[list[str]]:
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
    variables = quiet_variables() if python else child_variables()
    try:
        done = subprocess.run(
            [
                python or sys.executable,
                "-W",
                "ignore",
                path,
                *phase.get("arguments", []),
            ],
            cwd=folder,
            env={**variables, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{program.name}: expected an end within {SECONDS} s, got none"
        raise HarnessError(f"{text}; run it alone.") from error
    if done.returncode != phase.get("status", 0):
        last = (done.stderr.strip().splitlines() or ["no error was printed"])[-1]
        text = f"{program.name}: expected status {phase.get('status', 0)}"
        raise HarnessError(f"{text}, got {done.returncode}: {last}")
    return done.stdout.splitlines()


def replay(program: Program, python: Path) -> ProgramRow:
    """Compare both interpreters with the recording, and exchange checkpoints."""
    recorded, name = program.recorded(), program.name
    count, places = sum(map(len, recorded)), range(len(program.phases))
    try:
        if program.live:
            with tempfile.TemporaryDirectory() as folder:
                live = [run(program, k, Path(folder), python) for k in places]
            for _, where in differences(recorded, live):
                reason = f"on the original: {where}"
                return ProgramRow(name, "different", count, reason=reason)
        with tempfile.TemporaryDirectory() as folder:
            ours = [run(program, k, Path(folder), None) for k in places]
        apart = list(differences(recorded, ours))
        ulp, exchanged = max([0.0, *(one for one, _ in apart)]), None
        if program.exchange:
            exchanged = 0.0
            for first, second in ((python, None), (None, python)):
                with tempfile.TemporaryDirectory() as folder:
                    run(program, 0, Path(folder), first)
                    lines = run(program, 1, Path(folder), second)
                later = differences(recorded[1:], [lines])
                exchanged = max([exchanged, *(one for one, _ in later)])
    except HarnessError as error:
        return ProgramRow(name, "error", count, reason=str(error))
    if max(ulp, exchanged or 0.0) > program.ulp:
        beyond = [where for one, where in apart if one > program.ulp]
        reason = f"on Lockstep: {beyond[0] if beyond else 'after an exchange'}"
        return ProgramRow(name, "different", count, ulp, exchanged, reason)
    status: Status = "identical" if program.live else "not live"
    return ProgramRow(name, status, count, ulp, exchanged)


def record(program: Program, python: Path, versions: Mapping[str, str]) -> None:
    """Record what a program prints on the original, and its checkpoints.

    Where the original cannot be run, Lockstep's output is recorded. Review it: it
    should be a list of laws that hold.
    """
    with tempfile.TemporaryDirectory() as name:
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


def differences(
    recorded: Sequence[Sequence[str]], got: Sequence[Sequence[str]]
) -> Iterator[tuple[float, str]]:
    """Yield the distance in ULP and the place of all that differs, phase by phase."""
    for one, other in zip(recorded, got, strict=True):
        for number, lines in enumerate(zip_longest(one, other), 1):
            if None in lines:
                yield np.inf, f"line {number}: expected {lines[0]}, got {lines[1]}"
            else:
                expected, printed = map(json.loads, lines)
                yield from _apart(expected, printed, f"line {number}")


def _apart(recorded: Any, got: Any, where: str) -> Iterator[tuple[float, str]]:
    """Compare floats as float32, also those in a text; all else must be equal.

    The unit is the last place of the largest magnitude in a list of floats.
    """
    text = f"{where}: got {json.dumps(got)[:99]}, recorded {json.dumps(recorded)[:99]}"
    if _all_floats(recorded) and _all_floats(got):
        ulp = distance(np.array(got, np.float32), np.array(recorded, np.float32)).ulp
        if ulp:
            yield ulp, f"{text}; {ulp:g} ULP"
    elif isinstance(recorded, str) and isinstance(got, str):
        # Every second part is a decimal number.
        parts = [re.split(r"(-?\d+\.\d+(?:e[-+]?\d+)?)", s) for s in (recorded, got)]
        if parts[0][::2] != parts[1][::2]:
            yield np.inf, text
        else:
            for number, other in zip(parts[0][1::2], parts[1][1::2], strict=True):
                yield from _apart(float(number), float(other), where)
    elif isinstance(recorded, dict) and isinstance(got, dict) and {*recorded} == {*got}:
        for key in recorded:
            yield from _apart(recorded[key], got[key], f"{where}/{key}")
    elif isinstance(recorded, list) and isinstance(got, list):
        if len(recorded) != len(got):
            yield np.inf, text
        for number, pair in enumerate(zip(recorded, got, strict=False)):
            yield from _apart(*pair, f"{where}/{number}")
    elif recorded != got or type(recorded) is not type(got):
        yield np.inf, text


def _all_floats(value: Any) -> bool:
    """Whether a value is a float, or nested lists of equal shape with only floats."""
    if not isinstance(value, list):
        return isinstance(value, float)
    return all(map(_all_floats, value)) and len({np.shape(v) for v in value}) == 1
