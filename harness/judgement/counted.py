"""Select the valid records of an experiment or a benchmark in a folder."""

from __future__ import annotations

from pathlib import Path

from harness.bench.compare import measured
from harness.bench.declare import Benchmark
from harness.declarations.declare import SCALES, Experiment
from harness.records.files import read
from harness.records.record import Record, latest

__all__ = ["counted_records"]


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
