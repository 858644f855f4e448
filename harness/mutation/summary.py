"""What became of a backend's mutants: the share killed, and who survived and why."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.mutation.digests import current_digest
from harness.records.log import read_lines
from harness.statistics import Interval, share_interval

__all__ = ["REASONS", "Summary", "Survivor", "describe", "read_reasons", "summarize"]

REASONS = Path(__file__).parent / "survivors.toml"
"""Why survivors may live."""

Key = tuple[str, str, str]
"""File, line before and line after."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that no check noticed; ``reason`` is empty if nobody gave one yet."""

    path: str
    definition: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class Summary:
    """The results of one backend.

    Attributes:
        backend: its name.
        mutants: how many there are.
        drawn: how many are to be tried.
        killed: how many were killed, by what: "case", "test", "time" or "crash".
        broken: how many could not be imported; they count neither way.
        survivors: the others that were tried.
    """

    backend: str
    mutants: int
    drawn: int
    killed: Mapping[str, int]
    broken: int
    survivors: Sequence[Survivor]

    @property
    def tried(self) -> int:
        """The number of mutants that were killed or survived."""
        return sum(self.killed.values()) + len(self.survivors)

    @property
    def exhaustive(self) -> bool:
        """Whether every mutant was tried, so that the share is no estimate."""
        return self.tried + self.broken == self.mutants

    @property
    def share(self) -> Interval | None:
        """The share killed, with its interval of 95 %; None before any was tried."""
        if not self.tried:
            return None
        return share_interval(sum(self.killed.values()), self.tried)

    def __str__(self) -> str:
        """Return one line for the terminal."""
        counts = f"{sum(self.killed.values())} of {self.tried} mutants killed"
        share = self.share
        if share is None:
            return f"{self.backend}: {counts}"
        percent = f"{float(share.estimate):.1%}"
        if not self.exhaustive:
            percent += f" [{float(share.low):.1%}, {float(share.high):.1%}]"
        return f"{self.backend}: {counts}, {percent}"


def summarize(backend: str, folder: Path, reasons: Path = REASONS) -> Summary | None:
    """Summarize the results of a backend; None where there are none.

    A line about a module that was changed since, or is gone, is left out.
    """
    listed = folder / f"{backend}.json"
    if not listed.exists():
        return None
    drawn = json.loads(listed.read_text("utf-8"))
    recorded = read_lines(folder / f"{backend}.jsonl")
    digests = {path: current_digest(path) for path in {r["path"] for r in recorded}}
    lines = {r["id"]: r for r in recorded if r["digest"] == digests[r["path"]]}
    known = read_reasons(reasons)
    killed = Counter(
        line["kind"] for line in lines.values() if line["status"] == "killed"
    )
    survivors = [
        _survivor(line, known)
        for line in lines.values()
        if line["status"] == "survived"
    ]
    broken = sum(line["status"] == "broken" for line in lines.values())
    survivors.sort(key=lambda each: (each.path, each.definition, each.after))
    counts = drawn["mutants"], drawn["drawn"]
    return Summary(backend, *counts, killed, broken, survivors)


def _survivor(line: Mapping[str, Any], reasons: Mapping[Key, str]) -> Survivor:
    key = line["path"], line["before"], line["after"]
    path, before, after = key
    reason = reasons.get(key, "")
    return Survivor(path, line["definition"], before, after, reason)


def read_reasons(path: Path = REASONS) -> dict[Key, str]:
    """Return why survivors may live."""
    content = tomllib.loads(path.read_text("utf-8"))
    return {
        (entry["path"], entry["before"], entry["after"]): entry["reason"]
        for entry in content.get("survivor", [])
    }


def describe(line: Mapping[str, Any]) -> str:
    """Return a line of results for the terminal."""
    by = f" by {line['by']}" if line["by"] else ""
    place = f"{line['path']}, line {line['line']}"
    change = f"{line['before']}\n  {line['after']}"
    return f"{line['status']}{by} in {line['seconds']:g} s: {place}\n  {change}"
