"""Time two commits of the library side by side.

Both are timed by the benchmarks of this checkout, in processes that take turns.
"""

from __future__ import annotations

import io
import math
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from harness.bench.command import COUNTS, Request
from harness.bench.compare import LEVEL, MICROSECONDS, Times
from harness.bench.declare import Row
from harness.bench.process import Job, measure
from harness.errors import HarnessError
from harness.processes.children import ROOT
from harness.statistics import t_interval
from harness.timing import low_quantile

SIDES = ("before", "after")


@dataclass(frozen=True)
class Comparison:
    """A row of a benchmark on two commits.

    Attributes:
        before, after: microseconds per step, the geometric mean of the processes.
        ratio, low, high: (a' / p') / (a / p), where a is the row's time, p that of its
            peer in the same rounds, and ' marks ``after``, with an interval over pairs
            of processes. So a slow moment of the machine cancels. Without a peer it is
            a' / a; a single pair has no interval.
        reason: why there are no times; empty if there are.
        peer: the name of the peer; empty without one.
    """

    benchmark: str
    backend: str
    what: str
    before: float = math.nan
    after: float = math.nan
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    peer: str = ""

    @property
    def verdict(self) -> str:
        """Whether ``after`` is slower or faster, or why that is not known."""
        if self.reason or math.isnan(self.low):
            return self.reason
        return "slower" if self.low > 1 else "faster" if self.high < 1 else ""


def compare_commits(
    revisions: str, request: Request, report: Callable[[str], None]
) -> list[Comparison]:
    """Time the rows of benchmarks on the commits ``A..B``; ``A..``: on this checkout.

    Nothing is recorded.

    Raises:
        HarnessError: a commit does not exist.
    """
    backends, scale = request.chosen_backends(), request.scale
    declared = [benchmark.path for benchmark in request.benchmarks]
    found: dict[tuple[str, str], dict[str, list[Times]]] = {}
    failed: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        libraries = dict(zip(SIDES, checkouts(revisions, Path(temporary)), strict=True))
        plan = [
            (number, backend, side)
            for number in range(COUNTS[scale])
            for backend in backends
            for side in SIDES[:: -1 if number % 2 else 1]
        ]
        begin = time.monotonic()
        for done, (number, backend, side) in enumerate(plan, start=1):
            setups = [
                setup
                for benchmark in request.benchmarks
                for setup in benchmark.setups(backend, scale).values()
            ]
            of_process = (backend, number, request.device, scale, setups, declared)
            measurement = measure(Job(*of_process, libraries[side]))
            for key, reason in measurement.reasons.items():
                failed[backend, key] = f"failed {side}: {reason}"
            for key, times in measurement.seconds.items():
                sides = found.setdefault((backend, key), {each: [] for each in SIDES})
                sides[side].append(times)
            left = (time.monotonic() - begin) / done * (len(plan) - done) / 60
            report(f"{done} of {len(plan)} processes; about {left:.0f} min left")
    return [
        Comparison(benchmark.name, backend, row.what, reason=failed[key])
        if key in failed
        else compared(row, benchmark.name, found[key])
        for backend in backends
        for benchmark in request.benchmarks
        for row in benchmark.rows
        if row.backend == backend and not row.control
        for key in [(backend, f"{benchmark.name}/{row.setup_id}")]
    ]


def checkouts(revisions: str, folder: Path) -> list[Path]:
    """Return the folders of the libraries of ``A..B``; this checkout's for no B.

    ``folder``: into which those of commits are written.
    """
    first, _, second = revisions.partition("..")
    libraries = [extracted(first or "HEAD", folder / "before")]
    if second:
        return [*libraries, extracted(second, folder / "after")]
    return [*libraries, ROOT / "impls"]


def extracted(revision: str, folder: Path) -> Path:
    """Write the library of a commit into a folder; return where it is."""
    archive = subprocess.run(
        ["git", "archive", f"{revision}^{{commit}}", "impls"],
        cwd=ROOT,
        capture_output=True,
    )
    if archive.returncode:
        got = f"{revision!r} ({archive.stderr.decode().strip()})"
        raise HarnessError(
            f"compare A..B: expected two commits of this repository, got {got}; "
            "choose one that git log shows."
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "impls"


def compared(
    row: Row, benchmark: str, sides: Mapping[str, Sequence[Times]]
) -> Comparison:
    """Return a row's times in each process on both commits, and their ratio."""

    def times(variant: str, side: str) -> np.ndarray:
        return np.array([low_quantile(each[variant]) for each in sides[side]])

    spent = {side: times(row.arm, side) for side in SIDES}
    relative = spent
    if row.peer:
        relative = {side: spent[side] / times(row.peer, side) for side in SIDES}
    logs = np.log(relative["after"] / relative["before"])
    low = high = math.nan
    if len(logs) > 1:
        interval = t_interval(logs, LEVEL)
        low, high = math.exp(interval.low), math.exp(interval.high)
    before, after = (
        float(np.exp(np.log(spent[side]).mean())) * MICROSECONDS for side in SIDES
    )
    names, ratio = (benchmark, row.backend, row.what), math.exp(logs.mean())
    numbers = before, after, ratio, low, high
    return Comparison(*names, *numbers, peer=row.peer)


def as_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the comparisons for JSON, which has no NaN."""
    return [
        {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in {**asdict(row), "verdict": row.verdict}.items()
        }
        for row in comparisons
    ]


def as_table(comparisons: Sequence[Comparison], revisions: str) -> Table:
    """Return the comparisons as a table for the terminal."""
    table = Table(title=Text(f"After / before of {revisions}"), title_justify="left")
    table.add_column("row", ratio=1)
    for name in ("before, us", "after, us", "ratio [95% interval]"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    styles = {"slower": "red", "faster": "green"}
    for row in comparisons:
        ratio = f"{row.ratio:.3f}"
        if not math.isnan(row.low):
            ratio += f" [{row.low:.3f}, {row.high:.3f}]"
        numbers = [f"{row.before:.1f}", f"{row.after:.1f}", ratio]
        beside = f", beside {row.peer}" if row.peer else ""
        table.add_row(
            Text(f"{row.backend}: {row.benchmark}: {row.what}{beside}"),
            *("" if number == "nan" else number for number in numbers),
            Text(row.verdict, style=styles.get(row.verdict, "yellow")),
        )
    return table
