"""Run a benchmark: one measuring process a backend, its times become records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.bench.declare import Benchmark
from harness.environment import child_variables, describe, version
from harness.errors import HarnessError
from harness.processes import ROOT
from harness.records.code import commit_of
from harness.records.files import RESULTS, folder
from harness.records.record import Code, Record
from harness.records.store import Store
from harness.timing import low_quantile
from lockstep import __version__, registry
from lockstep.spec.errors import unknown_name

__all__ = ["bench", "measure"]


def bench(
    benchmark: Benchmark,
    scale: str,
    backends: Sequence[str] = (),
    device: str = "cpu",
    publish: bool = False,
    root: Path = RESULTS,
    quiet: bool = False,
    command: str = "",
) -> list[Record]:
    """Time every setup, one fresh process a backend; append and return the records.

    Args:
        scale: how many rounds: ``quick`` or ``std``.
        backends: those to time; none means all of the benchmark that are installed.
        publish: write into ``results/NAME`` instead of ``results/local``.
        quiet: leave standard output to others.
        command: the words after ``harness`` that asked for this.

    Raises:
        HarnessError: nothing can be timed as asked, or a measuring process failed.
    """
    if scale not in benchmark.rounds:
        raise HarnessError(str(unknown_name("scale", scale, benchmark.rounds)))
    for name in backends:
        if name not in benchmark.backends:
            kind = f"backend of {benchmark.name}"
            raise HarnessError(str(unknown_name(kind, name, benchmark.backends)))
        registry.load(name)
    home = folder(benchmark.name, publish, root)
    commit, dirty = commit_of()
    records: list[Record] = []
    for process, backend in enumerate(
        backends or filter(registry.installed, benchmark.backends)
    ):
        with Store(home, backend) as store:
            framework = registry.find(backend).framework or "numpy"
            origin: dict[str, Any] = {
                "environment": store.environment(describe(framework, device)),
                "scale": scale,
                "command": command,
                "process": process,
            }
            for measured in measure(benchmark, backend, scale, device, quiet):
                code = Code(commit, dirty, store.code(measured.pop("modules")))
                store.append(Record(**origin, **measured, code=code))
                records.append(store.records[-1])
    return records


def measure(
    benchmark: Benchmark,
    backend: str,
    scale: str,
    device: str,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Time every setup of ``backend`` in a fresh process; return the parts of a record.

    Among the parts are the ``modules`` that the process imported, with their digests.

    Raises:
        HarnessError: the measuring process failed; what it printed stands above.
    """
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "benchmark.json"
        options = {
            "declared": benchmark.path,
            "backend": backend,
            "device": device,
            "rounds": benchmark.rounds[scale],
            "benchmark-json": report,
        }
        watched = ["harness.child", str(os.getpid()), "pytest"]
        words = [sys.executable, "-m", *watched, "harness/bench/bench_setups.py"]
        words += [f"--{name}={value}" for name, value in options.items()]
        words += ["-q", "--benchmark-columns=min,median,rounds"]
        out = sys.stderr if quiet else None
        done = subprocess.run(words, cwd=ROOT, env=child_variables(), stdout=out)
        if done.returncode or not report.exists():
            ended = f"measuring {backend} ended with status {done.returncode}"
            raise HarnessError(f"bench: {ended}; the reason stands above.")
        content = json.loads(report.read_text("utf-8"))
    return list(_measured(benchmark, backend, device, content))


def _measured(
    benchmark: Benchmark, backend: str, device: str, content: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Keep the times and the setups; leave out what would identify the machine."""
    framework = registry.find(backend).framework or "numpy"
    subject = {
        "backend": backend,
        "device": device,
        "lockstep": __version__,
        framework: str(version(framework)),
    }
    for entry in content["benchmarks"]:
        measured = entry["extra_info"]
        seconds = measured["seconds"]
        yield {
            **measured["origin"],
            "experiment": benchmark.name,
            "id": measured["setup_id"],
            "task": benchmark.task,
            "config": measured["setup"],
            "seed": 0,
            "subject": subject,
            "status": "ok",
            "reason": "",
            "series": seconds,
            "summary": {name: low_quantile(times) for name, times in seconds.items()},
        }
