"""Find records that were made by other code than the current one, and what changed.

Only sources are compared. Nothing is imported, so no framework is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records.code import Sources
from harness.records.files import read, read_code
from harness.records.record import Record, latest
from harness.records.verified import group_of, read_verified

__all__ = ["Freshness", "Staleness", "staleness_of"]

NAMED = 5
"""Number of modules that a sentence names. The others are counted."""


class Freshness:
    """Compares the records of one backend's file with the current code.

    Raises:
        HarnessError: a file is damaged.
    """

    def __init__(self, home: Path, backend: str, sources: Sources) -> None:
        self._code = read_code(home / f"{backend}.code.jsonl")
        self._verified = defaultdict(list)
        for verification in read_verified(home / f"{backend}.verified.jsonl"):
            self._verified[verification.group].append(verification)
        self._sources = sources
        self._changes: dict[str, tuple[str, ...] | None] = {}

    def changed(self, record: Record) -> tuple[str, ...] | None:
        """Return the modules that changed since a record was made or verified.

        The result is empty for a fresh record. It is None if the record's code is
        unknown: the record has schema 1, or no file contains its digest.
        """
        verified = self._verified.get(group_of(record), [])
        codes = [v.code for v in verified if v.follows(record)]
        codes += [record.code] if record.code else []
        changes = [self._changed(code.digest) for code in reversed(codes)]
        known = [change for change in changes if change is not None]
        return min(known, key=len) if known else None

    def is_stale(self, record: Record) -> bool:
        """Whether a record was made by other code, or by unknown code."""
        return self.changed(record) != ()

    def _changed(self, digest: str) -> tuple[str, ...] | None:
        """Return the modules that changed since a digest. Results are cached."""
        if digest not in self._changes:
            self._changes[digest] = self._compared(digest)
        return self._changes[digest]

    def _compared(self, digest: str) -> tuple[str, ...] | None:
        modules = self._code.get(digest)
        if modules is None:
            return None
        current = self._sources.digest
        return tuple(sorted(n for n, text in modules.items() if current(n) != text))


@dataclass(frozen=True)
class Staleness:
    """How many of the valid records are stale, and why.

    Attributes:
        records: number of valid records.
        stale: number of stale ones.
        unknown: number of stale ones whose code is unknown.
        modules: modules that changed since the other stale ones were made.
    """

    records: int
    stale: int
    unknown: int
    modules: tuple[str, ...]

    def __str__(self) -> str:
        if not self.stale:
            return f"None of {self.records} records is stale."
        are = "is" if self.stale == 1 else "are"
        text = f"{self.stale} of {self.records} records {are} stale"
        reasons = []
        if self.unknown:
            some = "" if self.unknown == self.stale else f"{self.unknown} of "
            reasons.append(f"the code that made {some}them is unknown")
        if self.modules:
            more = len(self.modules) - NAMED
            named = ", ".join(self.modules[:NAMED])
            named += f" and {more} more" if more > 0 else ""
            reasons.append(f"these modules changed: {named}")
        return f"{text}, because {' and '.join(reasons)}."


def staleness_of(
    home: Path, sources: Sources, records: Sequence[Record] | None = None
) -> Staleness:
    """Count the stale records of a folder.

    Args:
        records: the records to check. By default, the valid record of each run.

    Raises:
        HarnessError: a file is damaged.
    """
    backends = [path.stem for path in home.glob("*.jsonl") if "." not in path.stem]
    judges = {name: Freshness(home, name, sources) for name in sorted(backends)}
    if records is None:
        every = [latest(read(home / f"{name}.jsonl")) for name in judges]
        records = [record for some in every for record in some if record.settled]
    own = [(judges.get(record.subject["backend"]), record) for record in records]
    changes = [judge.changed(record) if judge else None for judge, record in own]
    stale = [change for change in changes if change != ()]
    modules = {name for change in stale for name in change or ()}
    unknown = sum(change is None for change in stale)
    return Staleness(len(changes), len(stale), unknown, tuple(sorted(modules)))
