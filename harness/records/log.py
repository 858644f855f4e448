"""A file of JSON Lines to which a line is appended completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Mapping
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.errors import HarnessError
from harness.records.record import SCHEMA
from lockstep.errors import sentence

__all__ = ["Log", "damaged", "read_lines"]

RESTORE = "restore the file, or delete that line to have the run done again"
"""How to repair a damaged line."""


class Log:
    """A file of lines, open for appending by one process at a time.

    Raises:
        HarnessError: the file cannot be written, or another process is writing to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # No buffer: bytes that a full disk refuses must not be written later.
            self.file: RawIOBase = path.open("ab+", buffering=0)
        except OSError as error:
            remedy = "choose a folder that you may write to"
            got = error.strerror or str(error)
            text = sentence(str(path), "a file that can be written", got, remedy)
            raise HarnessError(text) from error
        _claim(self.file, path)
        _drop_torn_line(self.file, path)

    def append(self, content: Mapping[str, Any]) -> None:
        """Write one line and flush it to the disk. On failure write nothing."""
        line = json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        end = self.file.seek(0, os.SEEK_END)
        try:
            self._write(line.encode())
        except OSError as error:
            # If this fails too, the line stays incomplete, and readers ignore it.
            with contextlib.suppress(OSError):
                self.file.truncate(end)
            remedy = "make room and start again; nothing else is lost"
            text = sentence(str(self.path), "to append a line", str(error), remedy)
            raise HarnessError(text) from error

    def _write(self, line: bytes) -> None:
        """Write a line in one call. The system may write a part and then refuse."""
        written = self.file.write(line) or 0
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self.file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        empty = self.file.seek(0, os.SEEK_END) == 0
        self.file.close()
        if empty:
            self.path.unlink()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines. An incomplete last line is ignored with a warning.

    Raises:
        HarnessError: a line is damaged, or the file cannot be read.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        got, remedy = error.strerror or str(error), "check its permissions"
        text = sentence(str(path), "a file that can be read", got, remedy)
        raise HarnessError(text) from error
    if torn := lines.pop():
        _warn_of_torn_line(path, len(torn))
    contents = []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise damaged(path, number, str(error)) from error
        if not (isinstance(content, dict) and isinstance(content.get("id"), str)):
            raise damaged(path, number, "no object with a text for its id")
        contents.append(content)
    return contents


def damaged(path: Path, number: int, got: str, remedy: str = RESTORE) -> HarnessError:
    """Return the error for a line that cannot be read."""
    expected = f"a record of schema {SCHEMA}"
    return HarnessError(sentence(f"{path}, line {number}", expected, got, remedy))


def _claim(file: RawIOBase, path: Path) -> None:
    """Raise if another process writes to the file, where the system can tell."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        remedy = "wait for it, or stop it"
        text = sentence(str(path), "one writer", "another run at work", remedy)
        raise HarnessError(text) from error


def _drop_torn_line(file: RawIOBase, path: Path) -> None:
    """Remove the bytes after the last newline: they are an incomplete line."""
    file.seek(0)
    content = file.readall()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        _warn_of_torn_line(path, len(content) - whole)
        file.truncate(whole)


def _warn_of_torn_line(path: Path, size: int) -> None:
    text = f"{path}: the last line is torn ({size} bytes) and was ignored"
    warnings.warn(text, stacklevel=4)
