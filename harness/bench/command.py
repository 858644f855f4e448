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
from harness.record import RESULTS, Log, Record, digest, folder, read_environments
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
) -> list[Record]:
    """Time every setup, one fresh process a backend; append and return the records.

    Args:
        scale: how many rounds: ``quick`` or ``std``.
        backends: those to time; none means all of the benchmark that are installed.
        publish: write into ``results/NAME`` instead of ``results/local``.
        quiet: leave standard output to others.

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
    records: list[Record] = []
    for backend in backends or filter(registry.installed, benchmark.backends):
        with (
            Log(home / f"{backend}.jsonl") as log,
            Log(home / f"{backend}.environments.jsonl") as environments,
        ):
            framework = registry.find(backend).framework or "numpy"
            environment = describe(framework, device)
            identifier = digest(environment, 8)
            if identifier not in read_environments(environments.path):
                environments.append({"id": identifier, **environment})
            place = (backend, scale, device, identifier, quiet)
            for record in measure(benchmark, *place):
                log.append(record.as_json())
                records.append(record)
    return records


def measure(
    benchmark: Benchmark,
    backend: str,
    scale: str,
    device: str,
    environment: str,
    quiet: bool = False,
) -> list[Record]:
    """Time every setup of ``backend`` in a fresh process; return a record a setup.

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
        command = [sys.executable, "-m", *watched, "harness/bench/bench_setups.py"]
        command += [f"--{name}={value}" for name, value in options.items()]
        command += ["-q", "--benchmark-columns=min,median,rounds"]
        out = sys.stderr if quiet else None
        done = subprocess.run(command, cwd=ROOT, env=child_variables(), stdout=out)
        if done.returncode or not report.exists():
            ended = f"measuring {backend} ended with status {done.returncode}"
            raise HarnessError(f"bench: {ended}; the reason stands above.")
        content = json.loads(report.read_text("utf-8"))
    return list(_records(benchmark, backend, device, environment, content))


def _records(
    benchmark: Benchmark,
    backend: str,
    device: str,
    environment: str,
    content: Mapping[str, Any],
) -> Iterator[Record]:
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
        yield Record(
            experiment=benchmark.name,
            id=measured["setup_id"],
            task=benchmark.task,
            config=measured["setup"],
            seed=0,
            subject=subject,
            environment=environment,
            status="ok",
            reason="",
            series=measured["seconds"],
            summary={n: low_quantile(s) for n, s in measured["seconds"].items()},
        )
