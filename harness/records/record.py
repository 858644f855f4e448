"""A record: a run, its machine and code, and its outcome."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

SCHEMA = 3
"""Version of the format that is written and read."""

Status = Literal["ok", "diverged", "error", "skipped"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        reason: one sentence unless the status is ``ok``. With ``ok`` it is what the run
            logged, usually nothing.
        series: columns of equal length, one entry per checkpoint.
        summary: single numbers.
    """

    status: Status
    reason: str = ""
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    summary: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """The code that computed a run.

    Attributes:
        commit: of the repository; None if git knows none.
        dirty: whether tracked code differed from the commit, or some was untracked.
        digest: of the files, by ``code.code_digest``; empty if unknown.
    """

    commit: str | None = None
    dirty: bool | None = None
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line: a run, its machine and code, and its outcome, in this order.

    The oldest records lack ``scale`` and what describes the start.

    Attributes:
        id: the run's id, the same on every backend.
        config: every setting of the task.
        subject: backend, device, and the versions of Lockstep and of the framework.
        environment: id of a line in the environments file.
        scale: ``quick``, ``std`` or ``full``.
        command: the arguments of ``harness`` that started the run.
        process: number of the worker process within the command.
        start: UTC, to the second, as ISO 8601.
        duration: seconds.
        load: average number of busy processes in the minute before the start; None
            if the system cannot tell.
        prediction: digest of the experiment's predictions at that time; empty if it had
            none.
    """

    experiment: str
    id: str
    task: str
    config: Mapping[str, Any]
    seed: int
    subject: Mapping[str, str]
    code: Code = Code()
    environment: str
    scale: str | None = None
    command: str | None = None
    process: int | None = None
    start: str | None = None
    duration: float | None = None
    load: float | None = None
    prediction: str = ""
    status: Status
    reason: str
    series: Mapping[str, Sequence[float]]
    summary: Mapping[str, float]

    @property
    def settled(self) -> bool:
        """Whether the run is finished. Runs that ended with an error are repeated."""
        return self.status in ("ok", "diverged")

    @property
    def key(self) -> tuple[str, str, str]:
        """Run, backend and device: records with the same key record the same run."""
        return self.id, self.subject["backend"], self.subject["device"]

    @property
    def outcome(self) -> Outcome:
        """The part that is identical when the run is repeated in a fresh process."""
        return Outcome(self.status, self.reason, self.series, self.summary)

    def as_json(self) -> dict[str, Any]:
        """Return the record for JSON: shortest form of float32, null if not finite."""
        # Not asdict of all: it copies every number of the series, which is slow.
        return {
            "schema": SCHEMA,
            **vars(self),
            "code": dataclasses.asdict(self.code),
            "series": {k: list(map(_shortest, v)) for k, v in self.series.items()},
            "summary": {k: _shortest(v) for k, v in self.summary.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """Build a record from JSON. Null becomes NaN.

        Raises:
            KeyError, TypeError, AttributeError: a key is missing or unknown, or its
                value is no table.
            ValueError: the schema, a number or the id is wrong.
        """
        fields = dict(content)
        schema = fields.pop("schema")
        if schema != SCHEMA:
            raise ValueError(f"schema {schema}")
        fields["code"] = Code(**fields["code"])
        series = fields["series"].items()
        fields["series"] = {k: list(map(_number, column)) for k, column in series}
        fields["summary"] = {k: _number(v) for k, v in fields["summary"].items()}
        record = cls(**fields)
        run = {name: fields[name] for name in ("experiment", "task", "config", "seed")}
        expected = digest(run, 12)
        if record.key[0] != expected:  # A key needs a subject.
            raise ValueError(f"id {record.id} of a run whose id is {expected}")
        return record


def latest(records: Sequence[Record]) -> list[Record]:
    """Return the valid record of each key.

    This is its first settled record, or else its last one.
    """
    chosen: dict[tuple[str, str, str], Record] = {}
    for record in records:
        before = chosen.get(record.key)
        if before is None or not before.settled:
            chosen[record.key] = record
    return list(chosen.values())


def digest(content: Any, digits: int) -> str:
    """Return the first hexadecimal digits of SHA-256 of the content as sorted JSON."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _shortest(value: float) -> float | int | None:
    """Return an integer unchanged, else the float32 with the fewest digits."""
    if isinstance(value, int):
        return value
    return float(str(np.float32(value))) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    """Return a number of a record; null is NaN."""
    if value is None:
        return math.nan
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} where a number should be")
    return value
