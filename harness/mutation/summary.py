"""The results of a backend's mutants: the share killed, and the survivors and why."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.mutation.digests import current_digest
from harness.records.files import read_lines
from harness.statistics import Interval, share_interval

REASONS = Path(__file__).parent / "survivors.toml"
"""File with the reasons why survivors are acceptable."""

Key = tuple[str, str, str]
"""File, line before and line after."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that no check noticed. ``reason`` is empty if none was given yet."""

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
        mutants: total number of mutants.
        drawn: number of mutants to be tried.
        killed: number killed by each kind: "case", "test", "time" or "crash".
        broken: number that could not be imported; neither killed nor survivors.
        survivors: the others that were tried.
        killed_at_once: number killed in their first trial. Later trials happen after a
            test was added, so they say nothing about mutants that were not tried yet.
    """

    backend: str
    mutants: int
    drawn: int
    killed: Mapping[str, int]
    broken: int
    survivors: Sequence[Survivor]
    killed_at_once: int

    @property
    def tried(self) -> int:
        """The number of mutants that were killed or survived."""
        return sum(self.killed.values()) + len(self.survivors)

    @property
    def exhaustive(self) -> bool:
        """Whether every mutant was tried, so that the share is exact."""
        return self.tried + self.broken == self.mutants

    @property
    def share(self) -> float | None:
        """The share killed, or None before any was tried."""
        return sum(self.killed.values()) / self.tried if self.tried else None

    @property
    def share_at_once(self) -> Interval | None:
        """The share killed in the first trial, with its 95% confidence interval."""
        return share_interval(self.killed_at_once, self.tried) if self.tried else None

    def __str__(self) -> str:
        """Return one line for the terminal."""
        counts = f"{sum(self.killed.values())} of {self.tried} mutants killed"
        share, first = self.share, self.share_at_once
        if share is None or first is None:
            return f"{self.backend}: {counts}"
        text = f"{self.backend}: {counts}, {share:.1%}"
        if self.exhaustive:
            return text
        interval = f"[{float(first.low):.1%}, {float(first.high):.1%}]"
        return f"{text}; at the first try {float(first.estimate):.1%} {interval}"


def summarize(backend: str, folder: Path, reasons: Path = REASONS) -> Summary | None:
    """Summarize the results of a backend. Return None if there are none.

    Lines about a module that has changed or no longer exists are ignored. Of several
    lines about a mutant, the last one is used.
    """
    listed = folder / f"{backend}.json"
    if not listed.exists():
        return None
    drawn = json.loads(listed.read_text("utf-8"))
    recorded = read_lines(folder / f"{backend}.jsonl")
    digests = {path: current_digest(path) for path in {r["path"] for r in recorded}}
    valid = [r for r in recorded if r["digest"] == digests[r["path"]]]
    first, lines = {r["id"]: r for r in reversed(valid)}, {r["id"]: r for r in valid}
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
    at_once = sum(line["status"] == "killed" for line in first.values())
    return Summary(backend, *counts, killed, broken, survivors, at_once)


def unexplained(
    lines: Iterable[Mapping[str, Any]], reasons: Path = REASONS
) -> set[str]:
    """Return the ids of mutants that survived their last trial and have no reason."""
    known, last = read_reasons(reasons), {line["id"]: line for line in lines}
    return {
        id_
        for id_, line in last.items()
        if line["status"] == "survived" and not _survivor(line, known).reason
    }


def _survivor(line: Mapping[str, Any], reasons: Mapping[Key, str]) -> Survivor:
    key = line["path"], line["before"], line["after"]
    path, before, after = key
    reason = reasons.get(key, "")
    return Survivor(path, line["definition"], before, after, reason)


def read_reasons(path: Path = REASONS) -> dict[Key, str]:
    """Return the reasons for survivors by file and change."""
    content = tomllib.loads(path.read_text("utf-8"))
    return {
        (entry["path"], entry["before"], entry["after"]): entry["reason"]
        for entry in content.get("survivor", [])
    }


def describe(line: Mapping[str, Any]) -> str:
    """Format a line of results for the terminal."""
    by = f" by {line['by']}" if line["by"] else ""
    place = f"{line['path']}, line {line['line']}"
    change = f"{line['before']}\n  {line['after']}"
    return f"{line['status']}{by} in {line['seconds']:g} s: {place}\n  {change}"
