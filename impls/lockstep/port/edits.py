"""A program as bytes, and edits that change only parts of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.port.syntax import Span

__all__ = ["Edit", "Source"]

NEWLINE = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True)
class Edit:
    """A part of the program and the text that replaces it."""

    span: Span
    text: str


class Source:
    """The UTF-8 text of a program."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        match = NEWLINE.search(data)
        self.newline = match.group().decode() if match else "\n"

    def text(self, span: Span) -> str:
        """Return a part of the program."""
        return self.data[span.start : span.end].decode()

    def line_of(self, place: int) -> int:
        """Return the number of the line with the byte at ``place``."""
        return len(NEWLINE.findall(self.data[:place])) + 1

    def line_end(self, place: int) -> int:
        """Return the end of the line with the byte at ``place``."""
        match = NEWLINE.search(self.data, place)
        return match.start() if match else len(self.data)

    def indent(self, place: int) -> str:
        """Return the indentation of the line with the byte at ``place``."""
        begins = (self.data.rfind(newline, 0, place) for newline in (b"\n", b"\r"))
        match = re.match(rb"[ \t]*", self.data[max(begins) + 1 :])
        return match.group().decode() if match else ""

    def ends_line(self, place: int) -> bool:
        """Whether the rest of the line is empty or a comment."""
        rest = self.data[place : self.line_end(place)].strip()
        return not rest or rest.startswith(b"#")

    def edit_below(self, place: int, lines: Iterable[str]) -> Edit:
        """Return the edit that adds lines below the line with the byte at ``place``."""
        end, begin = self.line_end(place), self.newline + self.indent(place)
        text = "".join(begin + line if line else self.newline for line in lines)
        return Edit(Span(end, end), text)

    def edited(self, edits: Iterable[Edit]) -> bytes:
        """Return the program after all edits; they must not overlap."""
        data = self.data
        last_first = sorted(edits, key=lambda e: (e.span.start, e.span.end))[::-1]
        for edit in last_first:
            before, after = data[: edit.span.start], data[edit.span.end :]
            data = before + edit.text.encode() + after
        return data
