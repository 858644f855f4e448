"""A measuring process: pytest-benchmark in a fresh Python process, and its results."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Measurement:
    """The results of a process: key of a setup -> result."""

    subject: Mapping[str, str]
    environment: Mapping[str, Any]
    results: Mapping[str, Result]


def measure(job: Job, on_line: Callable[[str], None]) -> Measurement:
    """Measure the setups of a job in a fresh process.

    If the process crashes, its exit status is the reason of every setup.
    """
    job.native.parent.mkdir(parents=True, exist_ok=True)
    job.native.unlink(missing_ok=True)
    begin, origin = time.monotonic(), start_of_run()
    with tempfile.TemporaryDirectory() as temporary:
        origins = Path(temporary) / "origins.json"
        words = _words(job, origins)
        status, errors = run_lines("pytest", words, "", on_line, first=job.library)
        if origins.exists():
            return _read(job, json.loads(origins.read_text("utf-8")))
    last = "".join(errors.strip().splitlines()[-1:])
    reason = f"the measuring process ended with status {status}"
    duration = round(time.monotonic() - begin, 3)
    reason += f": {last}" if last else ""
    return _crashed(job, Result(reason, **origin, duration=duration))


def _words(job: Job, origins: Path) -> list[str]:
    """Return the arguments of pytest."""
    options = {
        "backend": job.backend,
        "device": job.device,
        "scale": job.scale,
        "process": job.number,
        "origins": origins,
        "benchmark-json": job.native,
    }
    library = ["-o", f"pythonpath={job.library} ."] if job.library else []
    return [
        *("harness/bench/bench_setups.py", "-v", "-p", "no:cacheprovider", *library),
        # A warning of a framework, an error in the tests, does not stop a measurement.
        *("-W", "default"),
        *(f"--{name}={value}" for name, value in options.items()),
        *(f"--declared={path}" for path in job.declared),
        *(f"--setup={setup.key}" for setup in job.setups),
    ]


def _read(job: Job, origins: Mapping[str, Any]) -> Measurement:
    """Read pytest-benchmark's file, in which each entry has the times of a setup."""
    seconds: dict[str, dict[str, list[float]]] = {setup.key: {} for setup in job.setups}
    if job.native.exists():
        content = json.loads(job.native.read_text("utf-8"))
        for entry in content["benchmarks"]:
            info = entry["extra_info"]
            seconds[info["setup"]] = info["seconds"]
    results = {
        key: Result(**origins["setups"][key], seconds=times)
        for key, times in seconds.items()
    }
    return Measurement(origins["subject"], origins["environment"], results)


def _crashed(job: Job, result: Result) -> Measurement:
    framework = registry.find(job.backend).framework or "numpy"
    subject = {
        "backend": job.backend,
        "device": job.device,
        "lockstep": __version__,
        framework: str(version(framework)),
    }
    results = {setup.key: result for setup in job.setups}
    return Measurement(subject, describe(framework, job.device), results)
