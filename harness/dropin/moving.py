"""Port old code to Lockstep: only the lines of its import block change."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.errors import HarnessError
from lockstep.messages.errors import sentence

__all__ = ["BEGIN", "END", "Line", "imports", "lines", "move"]

BEGIN, END = "# --- imports ---", "# --- end of imports ---"
REST = "{rest}"


@dataclass(frozen=True)
class Line:
    """An import line of old code, and the lines that replace it."""

    original: str
    moved: Sequence[str]

    def change(self, line: str) -> list[str] | None:
        """Return the lines that replace ``line``, or None if this is another line."""
        head, placeholder, _ = self.original.partition(REST)
        if line != head and not (placeholder and line.startswith(head)):
            return None
        return [new.replace(REST, line.removeprefix(head)) for new in self.moved]


@cache
def lines() -> Sequence[Line]:
    """Read ``imports.toml``."""
    path = Path(__file__).with_name("imports.toml")
    return [Line(**entry) for entry in tomllib.loads(path.read_text("utf-8"))["line"]]


def move(program: str) -> str:
    """Return ``program`` with a changed import block.

    Raises:
        HarnessError: there is no import block.
    """
    before, block, after = _parted(program)
    moved = [new for line in block for new in _changed(line)]
    return "\n".join([*before, *moved, *after])


def imports(program: str) -> list[tuple[str, list[str]]]:
    """Return the lines of the import block that change, with their replacements."""
    _, block, _ = _parted(program)
    return [(line, _changed(line)) for line in block if _changed(line) != [line]]


def _parted(program: str) -> tuple[list[str], list[str], list[str]]:
    """Return the lines before, in and after the import block."""
    text = program.split("\n")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        expected = f"one import block from {BEGIN!r} to {END!r}"
        raise HarnessError(sentence("a program", expected, "none", "mark its imports"))
    begin, end = text.index(BEGIN), text.index(END)
    return text[: begin + 1], text[begin + 1 : end], text[end:]


def _changed(line: str) -> list[str]:
    changes = (entry.change(line) for entry in lines())
    return next((moved for moved in changes if moved is not None), [line])
