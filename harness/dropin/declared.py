"""The programs declared in ``programs.toml``, and their recordings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from lockstep.messages.errors import sentence, unknown_name

__all__ = ["HOME", "Phase", "Program", "find", "programs"]

HOME = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Phase:
    """One call of a program, and its expected exit status."""

    arguments: Sequence[str] = ()
    status: int = 0


@dataclass(frozen=True)
class Program:
    """A program for TensorFlow 1.15, and how its output is judged."""

    name: str
    shows: str
    phases: Sequence[Phase] = (Phase(),)
    ulp: float = 0.0
    reason: str = ""
    exchange: bool = False
    live: bool = True

    @property
    def text(self) -> str:
        """The source of the program, as it was written for the original."""
        return (HOME / "programs" / f"{self.name}.py").read_text("utf-8")

    @property
    def recording(self) -> Path:
        """The file with the lines that the original printed."""
        return HOME / "programs" / f"{self.name}.out.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder with the files that the first phase wrote on the original."""
        return HOME / "checkpoints" / self.name

    @property
    def recorded(self) -> Recording:
        """The recorded output of the original."""
        expected = "what the original printed"
        if not self.recording.exists():
            remedy = "record it: python -m harness oracle --record"
            text = sentence(self.recording.name, expected, "no file", remedy)
            raise HarnessError(text)
        about, *lines = self.recording.read_text("utf-8").splitlines()
        return Recording(json.loads(about)["recorded"], lines)

    def of_phase(self, phase: Phase, lines: Sequence[str]) -> list[str]:
        """Return the lines that a phase printed, based on the recorded counts."""
        position = self.phases.index(phase)
        begin = sum(self.recorded.counts[:position])
        return list(lines[begin : begin + self.recorded.counts[position]])


@dataclass(frozen=True)
class Recording:
    """The lines that a program printed, and the versions it ran on."""

    about: Mapping[str, Any]
    lines: Sequence[str] = field(default=())

    @property
    def counts(self) -> Sequence[int]:
        """Number of lines that each phase printed."""
        counts: Sequence[int] = self.about["lines"]
        return counts


@cache
def programs() -> Mapping[str, Program]:
    """Read ``programs.toml``."""
    entries = tomllib.loads((HOME / "programs.toml").read_text("utf-8"))["program"]
    by_name = {}
    for entry in entries:
        phases = tuple(Phase(**phase) for phase in entry.pop("phases", [{}]))
        program = Program(**entry, phases=phases)
        if program.ulp and not program.reason:
            expected = f"a reason for {program.ulp:g} ULP"
            text = sentence("programs.toml", expected, "none", "say why it is not 0")
            raise HarnessError(text)
        by_name[program.name] = program
    return by_name


def find(name: str) -> Program:
    """Return the program with this name.

    Raises:
        HarnessError: there is no such program.
    """
    if name not in programs():
        raise HarnessError(str(unknown_name("program", name, list(programs()))))
    return programs()[name]
