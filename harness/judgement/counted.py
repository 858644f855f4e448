"""The valid records of an experiment or a benchmark in a folder, and their age."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.bench.compare import measured
from harness.bench.declare import Benchmark
from harness.declarations.declare import SCALES, Experiment
from harness.records.code import code_digest
from harness.records.files import read
from harness.records.record import Record, latest


def counted_records(of: Experiment | Benchmark, home: Path) -> list[Record]:
    """Return the settled records of all declared runs, one per run.

    For a benchmark these are the last measurement of each setup. Records that the file
    no longer declares are history: they are not judged.

    Raises:
        HarnessError: a file is damaged.
    """
    if isinstance(of, Benchmark):
        return [r for processes in measured(of, home).values() for r in processes]
    declared = {run.id for scale in SCALES for run in of.possible_runs(scale)}
    return [
        record
        for backend in of.backends
        for record in latest(read(home / f"{backend}.jsonl"))
        if record.settled and record.id in declared
    ]


def age_of(records: Sequence[Record]) -> str:
    """Return dates, version and commit of records, and whether the code has changed.

    A change of code says nothing about the numbers: most changes alter none.
    """
    dated = sorted((r for r in records if r.start), key=lambda r: str(r.start))
    if not dated:
        return "The date of these records is unknown." if records else ""
    last = dated[-1]
    days = sorted({str(record.start)[:10] for record in (dated[0], last)})
    version = f"Lockstep {last.subject['lockstep']}"
    commit = f", commit {last.code.commit[:8]}" if last.code.commit else ""
    text = f"Measured {' to '.join(days)}, last with {version}{commit}."
    current = (code_digest(r.task, r.subject["backend"]) for r in records)
    if any(r.code.digest != code for r, code in zip(records, current, strict=True)):
        text += " The code has changed since."
    return text
