"""Time two commits of the library side by side.

Both are timed by the benchmarks of this checkout, in processes that take turns.
"""

from __future__ import annotations

import dataclasses
import io
import math
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from harness.bench.compare import MICROSECONDS, Times, measured
from harness.bench.declare import Row
from harness.bench.measure import Failure, Request, missing_jobs, run_all
from harness.errors import HarnessError
from harness.processes.children import ROOT
from harness.statistics import t_interval
from harness.timing import low_quantile

SIDES = ("before", "after")

COLUMNS = (
    *("benchmark", "backend", "what", "peer", "before", "after"),
    *("ratio", "low", "high", "reason", "verdict"),
)
"""The columns of the result.

``before`` and ``after`` are microseconds per step, the geometric mean of the processes.
``ratio`` is (a' / p') / (a / p), where a is the row's time, p that of its peer in the
same rounds, and ' marks ``after``; its interval is over pairs of processes. So a slow
moment of the machine cancels. Without a peer it is a' / a; a single pair has no
interval. ``reason`` says why there are no times, and is empty if there are. ``verdict``
is ``slower`` or ``faster`` if the interval lies beyond 1, or the reason.
"""


def compare_commits(revisions: str, request: Request, console: Console) -> pd.DataFrame:
    """Time the rows of benchmarks on the commits ``A..B``; ``A..``: on this checkout.

    Nothing is recorded.

    Raises:
        HarnessError: a commit does not exist.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folders = {side: Path(temporary) / side for side in SIDES}
        first, _, second = revisions.partition("..")
        libraries = {
            "before": library_of(first or "HEAD", folders["before"]),
            "after": library_of(second, folders["after"]),
        }
        jobs = [
            job.model_copy(update={"out": folders[side], "library": libraries[side]})
            for job in missing_jobs(dataclasses.replace(request, again=True))
            for side in SIDES[:: -1 if job.number % 2 else 1]
        ]
        failures = run_all(jobs, 1, console)
        rows = list(_rows(request, folders, failures))
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["verdict"] = table["reason"]
    table.loc[table["low"] > 1, "verdict"] = "slower"
    table.loc[table["high"] < 1, "verdict"] = "faster"
    return table


def _rows(
    request: Request, folders: Mapping[str, Path], failures: Sequence[Failure]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all benchmarks, with their numbers or a reason."""
    reasons = {
        (each.setup.key, each.job.backend): (
            f"failed {each.job.out.name}: {each.reason}"
        )
        for each in failures
    }
    backends = request.chosen_backends()
    for benchmark in request.benchmarks:
        homes = [folders[side] / benchmark.name for side in SIDES]
        records = [measured(benchmark, home, request.device) for home in homes]
        for row in benchmark.row:
            if row.backend not in backends:
                continue
            about = {"benchmark": benchmark.name, **row.model_dump()}
            key = f"{benchmark.name}/{row.setup_id}", row.backend
            if key in reasons:
                yield {**about, "reason": reasons[key]}
            else:
                sides = [each[row.backend, row.setup_id] for each in records]
                times = [[record.series for record in side] for side in sides]
                yield {**about, **compared(row, *times), "reason": ""}


def compared(
    row: Row, before: Sequence[Times], after: Sequence[Times]
) -> dict[str, float]:
    """Return a row's times on both commits, and their ratio with its interval."""

    def logs(variant: str, side: Sequence[Times]) -> np.ndarray:
        return np.log([low_quantile(times[variant]) for times in side])

    first, second = logs(row.arm, before), logs(row.arm, after)
    ratios = second - first
    if row.peer:
        ratios -= logs(row.peer, after) - logs(row.peer, before)
    ratio, low, high = map(math.exp, t_interval(ratios))
    return {
        "before": math.exp(first.mean()) * MICROSECONDS,
        "after": math.exp(second.mean()) * MICROSECONDS,
        "ratio": ratio,
        "low": low,
        "high": high,
    }


def library_of(revision: str, folder: Path) -> Path:
    """Return the library of a commit, written into a folder; no text: this checkout's.

    Raises:
        HarnessError: there is no such commit, or it has no library.
    """
    if not revision:
        return ROOT / "impls"
    command = ["git", "archive", f"{revision}^{{commit}}", "impls"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True)
    if archive.returncode:
        got = f"{revision!r} ({archive.stderr.decode().strip()})"
        raise HarnessError(
            f"compare A..B: expected two commits of this repository, got {got}; "
            "choose one that git log shows."
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "impls"
