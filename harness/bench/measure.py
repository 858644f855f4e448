"""Run benchmarks: several measuring processes for each backend.

A measuring process is pytest-benchmark in a fresh Python. It times the setups of a job
one after the other (``bench_setups``) and writes the files that are the records:
``results/NAME/START-BACKEND-SCALE-PROCESS.json`` has an entry for each setup.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.bench.compare import PROCESSES, read
from harness.bench.declare import Benchmark, Setup
from harness.declarations.toml_files import Table
from harness.errors import HarnessError
from harness.processes.children import Children, run_jobs
from harness.processes.environment import describe
from harness.progress import Progress
from harness.records.code import commit_of
from harness.records.files import RESULTS
from harness.records.record import digest
from lockstep import registry
from lockstep.errors import unknown_name

COUNTS = {"quick": 1, "std": PROCESSES}
"""Number of measuring processes of each scale."""

ROUNDS = {"quick": 5, "std": 30}
"""How often each variant is timed in a process."""

AT_ONCE = {"quick": 2, "std": 1}
"""How many of them run at once. At scale std none may disturb another."""


@dataclass(frozen=True)
class Request:
    """Which benchmarks to measure, and how.

    Attributes:
        scale: ``quick`` or ``std``.
        backends: backends to time; by default all that are installed.
        publish: write into ``results/NAME`` instead of ``results/local/NAME``.
        again: repeat measurements that are already recorded.
        command: the arguments of ``harness`` that asked for this.
    """

    benchmarks: Sequence[Benchmark]
    scale: str = "std"
    backends: Sequence[str] = ()
    device: str = "cpu"
    publish: bool = False
    again: bool = False
    root: Path = RESULTS
    command: str = ""

    @property
    def out(self) -> Path:
        """The folder that has a folder of files for each benchmark."""
        return self.root if self.publish else self.root / "local"

    def chosen_backends(self) -> list[str]:
        """Return the backends to measure.

        Raises:
            HarnessError: one of ``backends`` has no row, or is not installed.
        """
        known = list(
            dict.fromkeys(n for each in self.benchmarks for n in each.backends)
        )
        for name in self.backends:
            if name not in known:
                kind = "backend of these benchmarks"
                raise HarnessError(str(unknown_name(kind, name, known)))
            registry.load(name)
        return list(self.backends) or [n for n in known if registry.installed(n)]


class Job(Table):
    """What a measuring process is asked to do; it reads this from standard input.

    Attributes:
        number: number of the process among those of its backend.
        setups: the setups of all benchmarks that it measures, in this order.
        out: the folder in which each benchmark has a folder of files.
        commit: of this checkout, and whether its code differs from it.
        library: the folder with another ``lockstep`` to measure; None: this one.
    """

    backend: str
    device: str
    scale: str
    number: int
    setups: tuple[Setup, ...]
    out: Path
    command: str
    commit: tuple[str | None, bool | None]
    library: Path | None = None


@dataclass(frozen=True)
class Failure:
    """A setup that a process could not measure, and why."""

    job: Job
    setup: Setup
    reason: str


def bench(request: Request, console: Console) -> tuple[list[Path], list[Failure]]:
    """Do the missing measurements; return the new files and what failed.

    A setup is recorded as soon as it is measured, so after an interruption the next
    call goes on with the others.

    Raises:
        HarnessError: the request is impossible.
    """
    jobs = list(missing_jobs(request))
    before = {*request.out.glob("*/*.json")}
    failures = run_all(jobs, AT_ONCE[request.scale], console)
    return sorted({*request.out.glob("*/*.json")} - before), failures


def missing_jobs(request: Request) -> Iterator[Job]:
    """Yield a job for each process that has something to measure.

    Backends take turns, so all progress equally.
    """
    backends, commit = request.chosen_backends(), commit_of()
    done = {name: set(_recorded(request, name)) for name in backends}
    for number in range(COUNTS[request.scale]):
        for backend in backends:
            setups = [
                setup
                for benchmark in request.benchmarks
                for setup in benchmark.setups(backend, request.scale)
                if (number, setup.key, frozenset(setup.variants)) not in done[backend]
            ]
            random.Random(number).shuffle(setups)
            if setups:
                yield Job(
                    backend=backend,
                    device=request.device,
                    scale=request.scale,
                    number=number,
                    setups=tuple(setups),
                    out=request.out,
                    command=request.command,
                    commit=commit,
                )


def _recorded(
    request: Request, backend: str
) -> Iterator[tuple[int | None, str, frozenset[str]]]:
    """Yield what need not be measured again: process, setup and its variants."""
    if request.again:
        return
    framework = registry.find(backend).framework or "numpy"
    environment = digest(describe(framework, request.device), 8)
    for benchmark in request.benchmarks:
        for record in read(request.out / benchmark.name, backend):
            same = record.scale, record.subject["device"]
            # Only the measuring process knows the name of a GPU.
            known = record.environment == environment or request.device != "cpu"
            if known and same == (request.scale, request.device):
                key = f"{record.experiment}/{record.id}"
                yield record.process, key, frozenset(record.series)


def run_all(jobs: Sequence[Job], at_once: int, console: Console) -> list[Failure]:
    """Run each job in a fresh process, show the progress, and return what failed."""
    children, failures = Children(), list[Failure]()
    total = sum(len(job.setups) for job in jobs)
    with Progress("setups", total, console) as progress:

        def run(job: Job) -> None:
            def ended(setup: Setup, reason: str) -> None:
                name = f"{job.backend}, {setup}"
                progress.advance(name)
                if reason:
                    if reason not in [each.reason for each in failures]:
                        progress.write(f"{name}: {reason}")
                    failures.append(Failure(job, setup, reason))

            measure(job, ended, children)

        run_jobs(children, jobs, run, at_once)
    return failures


ENDED = "@ended "
"""What begins the line that a measuring process prints after each setup."""


def measure(job: Job, ended: Callable[[Setup, str], None], children: Children) -> None:
    """Run a job. Call ``ended`` with each setup, and why it failed if it did.

    If the process crashes, its exit status is the reason of all setups that are left.
    """
    left = {setup.key: setup for setup in job.setups}

    def on_line(line: str) -> None:
        if line.startswith(ENDED):
            key, reason = json.loads(line.removeprefix(ENDED))
            ended(left.pop(key), reason)

    arguments = ["harness/bench/bench_setups.py", "-s", "-p", "no:cacheprovider"]
    # A warning of a framework, an error in the tests, does not stop a measurement.
    arguments += ["-W", "default"]
    if job.library is not None:
        arguments += ["-o", f"pythonpath={job.library} ."]
    child = children.start("pytest", arguments, job.library)
    status, errors = child.exchange(job.model_dump_json(), on_line)
    if children.ended:  # Nothing failed, it was stopped.
        return
    last = errors.strip().splitlines()[-1:]
    crash = ": ".join([f"the measuring process ended with status {status}", *last])
    for setup in left.values():
        ended(setup, crash)
