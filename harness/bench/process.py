"""A measuring process: pytest-benchmark in a fresh Python process, and its results."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.bench.declare import Setup
from harness.processes.children import run_lines
from harness.processes.environment import describe, version
from harness.records.machine import start_of_run
from lockstep import __version__, registry


@dataclass(frozen=True)
class Job:
    """One measuring process.

    Attributes:
        number: number of the process among those of its backend.
        setups: the setups that it measures: all that are missing, of all benchmarks.
        native: file that pytest-benchmark writes.
        library: the folder with another ``lockstep`` to measure; None: this one.
    """

    backend: str
    number: int
    device: str
    scale: str
    setups: Sequence[Setup]
    declared: Sequence[Path]
    native: Path
    library: Path | None = None


@dataclass(frozen=True)
class Result:
    """The result of one setup.

    Attributes:
        reason: why there are no times; empty if there are.
        seconds: variant -> the time of each round.
    """

    reason: str
    start: str
    load: float | None
    duration: float
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)


KEPT = ("start", "load", "duration", "seconds")
"""What an entry of pytest-benchmark keeps of a result, in its ``extra_info``."""


@dataclass(frozen=True)
class Measurement:
    """The results of a process: key of a setup -> result."""

    subject: Mapping[str, str]
    environment: Mapping[str, Any]
    results: Mapping[str, Result]


FAILED = "@failed "
"""What begins the line on which a measuring process prints a setup and a reason."""


def measure(job: Job) -> Measurement:
    """Measure the setups of a job in a fresh process.

    If the process crashes, its exit status is the reason of every setup without times.
    """
    job.native.parent.mkdir(parents=True, exist_ok=True)
    job.native.unlink(missing_ok=True)
    begin, origin, reasons = time.monotonic(), start_of_run(), dict[str, str]()

    def on_line(line: str) -> None:
        if line.startswith(FAILED):
            key, reasons[key] = json.loads(line.removeprefix(FAILED))

    words = _words(job)
    status, errors = run_lines("pytest", words, "", on_line, first=job.library)
    crash = ": ".join(
        [
            f"the measuring process ended with status {status}",
            *errors.strip().splitlines()[-1:],
        ]
    )
    content: dict[str, Any] = {"machine_info": _described(job), "benchmarks": []}
    if job.native.exists():
        content = json.loads(job.native.read_text("utf-8"))
    origin["duration"] = round(time.monotonic() - begin, 3)
    results = {
        setup.key: Result(reasons.get(setup.key, crash), **origin)
        for setup in job.setups
    }
    for entry in content["benchmarks"]:
        info = entry["extra_info"]
        results[info["setup"]] = Result("", *(info[name] for name in KEPT))
    return Measurement(**content["machine_info"], results=results)


def _words(job: Job) -> list[str]:
    """Return the arguments of pytest."""
    options = {
        "backend": job.backend,
        "device": job.device,
        "scale": job.scale,
        "process": job.number,
        "benchmark-json": job.native,
    }
    library = ["-o", f"pythonpath={job.library} ."] if job.library else []
    return [
        *("harness/bench/bench_setups.py", "-s", "-p", "no:cacheprovider", *library),
        # A warning of a framework, an error in the tests, does not stop a measurement.
        *("-W", "default"),
        *(f"--{name}={value}" for name, value in options.items()),
        *(f"--declared={path}" for path in job.declared),
        *(f"--setup={setup.key}" for setup in job.setups),
    ]


def _described(job: Job) -> dict[str, Any]:
    """Return what a process that crashed would have said of itself."""
    framework = registry.find(job.backend).framework or "numpy"
    subject = {
        "backend": job.backend,
        "device": job.device,
        "lockstep": __version__,
        framework: str(version(framework)),
    }
    return {"subject": subject, "environment": describe(framework, job.device)}
