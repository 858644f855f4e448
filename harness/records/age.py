"""When records were made, and whether the code has changed since."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.code import code_digest
from harness.records.record import Record

__all__ = ["age_of", "changed"]


def changed(records: Sequence[Record]) -> int:
    """Return how many records were made by other code than the current one."""
    current = [code_digest(r.task, r.subject["backend"]) for r in records]
    pairs = zip(records, current, strict=True)
    return sum(record.code.digest != code for record, code in pairs)


def age_of(records: Sequence[Record]) -> str:
    """Return dates, version and commit of records, and whether the code has changed.

    A change of code says nothing about the numbers: most changes alter none.
    """
    dated = sorted((r for r in records if r.start), key=lambda r: str(r.start))
    if not dated:
        return "The date of these records is unknown." if records else ""
    days = sorted({str(record.start)[:10] for record in (dated[0], dated[-1])})
    last = dated[-1]
    version = f"Lockstep {last.subject['lockstep']}"
    commit = f", commit {last.code.commit[:8]}" if last.code.commit else ""
    text = f"Measured {' to '.join(days)}, last with {version}{commit}."
    return f"{text} The code has changed since." if changed(records) else text
