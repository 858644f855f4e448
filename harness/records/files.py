"""The folders of records, and their files of JSON Lines.

A file belongs to one experiment and one backend. ``pytorch.environments.jsonl`` is in
the same folder as ``pytorch.jsonl`` and holds each environment of these runs once. A
line is appended completely or not at all, by one process at a time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from io import RawIOBase
from pathlib import Path
from typing import Any, Self

from harness.errors import HarnessError
from harness.records.record import SCHEMA, Record, digest
from lockstep.errors import sentence

RESULTS = Path(__file__).parent.parent.parent / "results"


def folder(experiment: str, publish: bool = False, root: Path = RESULTS) -> Path:
    """Return the folder of an experiment's records: published, or the user's own."""
    return root / experiment if publish else root / "local" / experiment


def read(path: Path) -> list[Record]:
    """Read the records of a file. Return an empty list if there is no file.

    Raises:
        HarnessError: a line is damaged. Only an incomplete last line is accepted.
    """
    records = []
    for number, content in enumerate(read_lines(path), start=1):
        try:
            records.append(Record.from_json(content))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path, number, f"{type(error).__name__} ({error})") from error
    return records


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines. An incomplete last line is ignored with a warning.

    Raises:
        HarnessError: a line is no JSON object with a text for its id.
    """
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if torn:
        text = f"{path}: the last line is torn ({len(torn)} bytes) and was ignored"
        warnings.warn(text, stacklevel=2)
    contents = []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, number, str(error)) from error
        if not (isinstance(content, dict) and isinstance(content.get("id"), str)):
            raise _damaged(path, number, "no object with a text for its id")
        contents.append(content)
    return contents


def _damaged(path: Path, number: int, got: str) -> HarnessError:
    expected = f"a record of schema {SCHEMA}"
    remedy = (
        "restore the file, or delete that line to have the run done again; another "
        "schema is that of another version of Lockstep"
    )
    return HarnessError(sentence(f"{path}, line {number}", expected, got, remedy))


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
        _lock(self.file, path)
        # A process that was killed may have left an incomplete line.
        self.file.seek(0)
        self.file.truncate(self.file.readall().rfind(b"\n") + 1)

    def append(self, content: Mapping[str, Any]) -> None:
        """Write one line and flush it to the disk. On failure write nothing."""
        line = json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        end = self.file.seek(0, os.SEEK_END)
        try:
            # The system may write a part and then refuse.
            if self.file.write(line.encode()) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())
        except OSError as error:
            # If this fails too, the line stays incomplete, and readers ignore it.
            with contextlib.suppress(OSError):
                self.file.truncate(end)
            remedy = "make room and start again; nothing else is lost"
            text = sentence(str(self.path), "to append a line", str(error), remedy)
            raise HarnessError(text) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        empty = self.file.seek(0, os.SEEK_END) == 0
        self.file.close()
        if empty:
            self.path.unlink()


def _lock(file: RawIOBase, path: Path) -> None:
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


class Store:
    """The files of one experiment on one backend, open for appending.

    Attributes:
        records: all records of the file, including new ones.

    Raises:
        HarnessError: a file is damaged, cannot be written, or is being written to.
    """

    def __init__(self, home: Path, backend: str) -> None:
        path, beside = home / f"{backend}.jsonl", home / f"{backend}.environments.jsonl"
        with ExitStack() as opened:
            self._log = opened.enter_context(Log(path))
            self._environments = opened.enter_context(Log(beside))
            self.records = read(path)
            self._known = {line["id"] for line in read_lines(beside)}
            self._opened = opened.pop_all()

    def environment(self, content: Mapping[str, Any]) -> str:
        """Return the id of an environment. Write the environment if it is new."""
        identifier = digest(content, 8)
        if identifier not in self._known:
            self._environments.append({"id": identifier, **content})
            self._known.add(identifier)
        return identifier

    def append(self, record: Record) -> None:
        """Write a record; keep it as a reader of the file sees it, in float32."""
        content = record.as_json()
        copy = Record.from_json(content)  # Nothing unreadable is written.
        self._log.append(content)
        self.records.append(copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()
