"""The programs that ``programs.toml`` declares, and what was recorded of each."""

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
    """One call of a program, and the status that it ends with."""

    arguments: Sequence[str] = ()
    status: int = 0


@dataclass(frozen=True)
class Program:
    """An old program, and how what it prints is judged."""

    name: str
    shows: str
    phases: Sequence[Phase] = (Phase(),)
    ulp: float = 0.0
    reason: str = ""
    exchange: bool = False
    live: bool = True

    @property
    def text(self) -> str:
        """The program as it was written for the original."""
        return (HOME / "programs" / f"{self.name}.py").read_text("utf-8")

    @property
    def recording(self) -> Path:
        """Where the lines lie that the original printed."""
        return HOME / "programs" / f"{self.name}.out.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Where the files lie that the first phase wrote on the original."""
        return HOME / "checkpoints" / self.name

    @property
    def recorded(self) -> Recording:
        """What the original printed."""
        expected = "what the original printed"
        if not self.recording.exists():
            remedy = "record it: python -m harness oracle --record"
            text = sentence(self.recording.name, expected, "no file", remedy)
            raise HarnessError(text)
        about, *lines = self.recording.read_text("utf-8").splitlines()
        return Recording(json.loads(about)["recorded"], lines)

    def of_phase(self, phase: Phase, lines: Sequence[str]) -> list[str]:
        """Return those of ``lines`` that a phase printed, by how many there are."""
        position = self.phases.index(phase)
        begin = sum(self.recorded.counts[:position])
        return list(lines[begin : begin + self.recorded.counts[position]])


@dataclass(frozen=True)
class Recording:
    """The lines that a program printed, and what it ran on."""

    about: Mapping[str, Any]
    lines: Sequence[str] = field(default=())

    @property
    def counts(self) -> Sequence[int]:
        """How many lines each phase printed."""
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
    """Return the program of this name.

    Raises:
        HarnessError: there is none.
    """
    if name not in programs():
        raise HarnessError(str(unknown_name("program", name, list(programs()))))
    return programs()[name]
