"""Results as facts: JSON Lines that only ever grow, one line a run.

A file belongs to one experiment and one backend. Beside ``pytorch.jsonl`` stands
``pytorch.environments.jsonl``: each environment that runs were made in, once. A line is
appended whole or not at all; what a killed process left behind is no line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from harness.errors import HarnessError
from lockstep.spec.errors import sentence

__all__ = [
    "RESULTS",
    "SCHEMA",
    "Log",
    "Outcome",
    "Record",
    "Status",
    "digest",
    "folder",
    "latest",
    "read",
    "read_environments",
    "read_lines",
]

RESULTS = Path(__file__).parent.parent / "results"
SCHEMA = 1
Status = Literal["ok", "diverged", "error", "skipped"]
STATUSES = ("ok", "diverged", "error", "skipped")


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        reason: one sentence unless the status is ``ok``; then what the run was told,
            mostly nothing.
        series: columns of equal length, one entry a checkpoint.
        summary: single numbers.
    """

    status: Status
    reason: str = ""
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    summary: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One line: which run, on what, and what became of it.

    Attributes:
        id: the run's id, the same on every backend.
        config: every setting of the task.
        subject: what was run: backend, device, and the versions of both libraries.
        environment: id of a line in the file of environments.
    """

    experiment: str
    id: str
    task: str
    config: Mapping[str, Any]
    seed: int
    subject: Mapping[str, str]
    environment: str
    status: Status
    reason: str
    series: Mapping[str, Sequence[float]]
    summary: Mapping[str, float]
    schema: int = SCHEMA

    @property
    def settled(self) -> bool:
        """Whether the run need not be done again; errors are tried once more."""
        return self.status in ("ok", "diverged")

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is a record of: run, backend and device."""
        return self.id, self.subject["backend"], self.subject["device"]

    def as_json(self) -> dict[str, Any]:
        """Return the record for JSON: float32 in shortest form, null if not finite."""
        content = dataclasses.asdict(self)
        content["series"] = {k: list(map(_shortest, v)) for k, v in self.series.items()}
        content["summary"] = {k: _shortest(v) for k, v in self.summary.items()}
        return {"schema": content.pop("schema"), **content}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """Read a record back; null becomes NaN."""
        fields = dict(content)
        if fields["schema"] != SCHEMA or fields["status"] not in STATUSES:
            raise ValueError(f"schema {fields['schema']}, status {fields['status']}")
        _require_kinds(fields)
        series = fields["series"].items()
        fields["series"] = {k: [_number(v) for v in values] for k, values in series}
        fields["summary"] = {k: _number(v) for k, v in fields["summary"].items()}
        run = {name: fields[name] for name in ("experiment", "task", "config", "seed")}
        # That of a benchmark is the id of its setup, the same in every benchmark.
        if fields["id"] not in (digest(run, 12), digest(fields["config"], 12)):
            raise ValueError(
                f"id {fields['id']} of a run whose id is {digest(run, 12)}"
            )
        return cls(**fields)


def folder(experiment: str, publish: bool = False, root: Path = RESULTS) -> Path:
    """Return where an experiment's records lie: the published ones or a user's own."""
    return root / experiment if publish else root / "local" / experiment


class Log:
    """A file of lines, open for appending by one process at a time.

    Raises:
        HarnessError: the file cannot be written, or another process is writing to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: what a full disk refuses must not be written later.
            self.file: RawIOBase = path.open("ab+", buffering=0)
        except OSError as error:
            remedy = "choose a folder that you may write to"
            got = error.strerror or str(error)
            text = sentence(str(path), "a file that can be written", got, remedy)
            raise HarnessError(text) from error
        _claim(self.file, path)
        _drop_torn_line(self.file, path)

    def append(self, content: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on the disk; on failure write nothing."""
        line = json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        end = self.file.seek(0, os.SEEK_END)
        try:
            self._write(line.encode())
        except OSError as error:
            # The line is cut off again, or else is torn, which the next reader ignores.
            with contextlib.suppress(OSError):
                self.file.truncate(end)
            remedy = "make room and start again; nothing else is lost"
            text = sentence(str(self.path), "to append a line", str(error), remedy)
            raise HarnessError(text) from error

    def _write(self, line: bytes) -> None:
        """Write a line at once; the system may take a part of it before it refuses."""
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


def read(path: Path) -> list[Record]:
    """Read the records of a file; none if there is no file.

    Raises:
        HarnessError: a line other than a torn last one is damaged.
    """
    records = []
    for number, content in enumerate(read_lines(path), start=1):
        try:
            records.append(Record.from_json(content))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _damaged(path, number, f"{type(error).__name__} ({error})") from error
    return records


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines; a torn last line is ignored with a warning."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    if torn := lines.pop():
        _warn_of_torn_line(path, len(torn))
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


def read_environments(path: Path) -> set[str]:
    """Return the ids of the environments of a file, each checked by its content."""
    known = set()
    for number, content in enumerate(read_lines(path), start=1):
        described = {name: value for name, value in content.items() if name != "id"}
        if content["id"] != digest(described, 8):
            got = f"id {content['id']} of what has the id {digest(described, 8)}"
            raise _damaged(path, number, got)
        known.add(content["id"])
    return known


def latest(records: Sequence[Record]) -> list[Record]:
    """Return one record a key: the last one, but a settled one rather than another."""
    chosen: dict[tuple[str, str, str], Record] = {}
    for record in records:
        if record.key not in chosen or not chosen[record.key].settled:
            chosen[record.key] = record
    return list(chosen.values())


def digest(content: Any, digits: int) -> str:
    """Return the first hexadecimal digits of SHA-256 over content as sorted JSON."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _require_kinds(fields: Mapping[str, Any]) -> None:
    """Raise ValueError unless every field holds what its name promises."""
    texts = ("experiment", "id", "task", "environment", "reason")
    wrong = [name for name in texts if not isinstance(fields[name], str)]
    tables = ("config", "subject", "series", "summary")
    wrong += [name for name in tables if not isinstance(fields[name], dict)]
    wrong += ["seed"] if type(fields["seed"]) is not int else []
    if wrong:
        raise ValueError(f"another kind of value in {', '.join(wrong)}")
    subject = fields["subject"]
    named = {"backend", "device"} <= subject.keys()
    if not (named and all(isinstance(text, str) for text in subject.values())):
        raise ValueError("subject without texts for backend and device")
    if not all(isinstance(column, list) for column in fields["series"].values()):
        raise ValueError("series that are no lists")


def _damaged(path: Path, number: int, got: str) -> HarnessError:
    expected = f"a record of schema {SCHEMA}"
    remedy = "restore the file, or delete that line to have the run done again"
    return HarnessError(sentence(f"{path}, line {number}", expected, got, remedy))


def _claim(file: RawIOBase, path: Path) -> None:
    """Refuse a file that another process writes to (where the system can tell)."""
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
    """Cut off what follows the last newline: it never became a line."""
    file.seek(0)
    content = file.readall()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        _warn_of_torn_line(path, len(content) - whole)
        file.truncate(whole)


def _warn_of_torn_line(path: Path, size: int) -> None:
    text = f"{path}: the last line is torn ({size} bytes) and was ignored"
    warnings.warn(text, stacklevel=4)


def _shortest(value: float) -> float | int | None:
    """Return an integer as it is, else the float32 with the fewest digits."""
    if isinstance(value, int):
        return value
    return float(str(np.float32(value))) if math.isfinite(value) else None


def _number(value: Any) -> float:
    """Return a number of a record; null is NaN, and nothing else is a number."""
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{value!r} where a number should be")
    return value
