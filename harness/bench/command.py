"""Run benchmarks: several measuring processes per backend, each with its files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path

from harness.bench.compare import PROCESSES
from harness.bench.declare import Benchmark
from harness.bench.process import Content, Job, measure, read, write
from harness.errors import HarnessError
from harness.processes.children import Children, run_jobs
from harness.processes.environment import describe
from harness.records.code import code_digest, commit_of
from harness.records.files import RESULTS, folder
from harness.records.record import Code, Record, digest
from lockstep import registry
from lockstep.errors import unknown_name

COUNTS = {"quick": 1, "std": PROCESSES}
"""Number of measuring processes of each scale."""

AT_ONCE = {"quick": 2, "std": 1}
"""How many of them run at once: what judges nothing may disturb another."""


@dataclass(frozen=True)
class Request:
    """Which benchmarks to measure, and how.

    Attributes:
        scale: ``quick`` or ``std``: the number of processes, and of rounds in each.
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

    def chosen_backends(self) -> list[str]:
        """Return the backends to measure.

        Raises:
            HarnessError: one of ``backends`` has no row, or is not installed.
        """
        named = (each.backends for each in self.benchmarks)
        known = list(dict.fromkeys(chain.from_iterable(named)))
        for name in self.backends:
            if name not in known:
                kind = "backend of these benchmarks"
                raise HarnessError(str(unknown_name(kind, name, known)))
            registry.load(name)
        return list(self.backends) or [n for n in known if registry.installed(n)]


def bench(
    request: Request, report: Callable[[str], None] = print
) -> tuple[list[Path], int]:
    """Do the missing measurements; return the files and how many setups failed.

    Every process measures all setups of one backend. Its files, one for each benchmark,
    are written when it ends, so the next call resumes after an interruption.

    Raises:
        HarnessError: the request is impossible.
    """
    plan = list(_plan(request))
    paths, reasons, begin = list[Path](), list[str](), time.monotonic()
    left = len(plan)

    children = Children()

    def run(job: Job) -> None:
        nonlocal left
        measurement = measure(job, children)
        if children.ended:  # Nothing failed, it was stopped.
            return
        paths.extend(_kept(request, job, measurement.content))
        reasons.extend(measurement.reasons.values())
        _say(report, job, measurement.reasons)
        left -= 1
        minutes = (time.monotonic() - begin) / (len(plan) - left) * left / 60
        if left:
            report(f"about {max(minutes, 1):.0f} min left")

    run_jobs(children, plan, run, AT_ONCE[request.scale])
    return paths, len(reasons)


def _plan(request: Request) -> Iterator[Job]:
    """Yield the processes to start. Backends take turns, so all progress equally."""
    backends = request.chosen_backends()
    fresh = {} if request.again else _measured_before(request, backends)
    for number in range(COUNTS[request.scale]):
        for backend in backends:
            setups = [
                setup
                for benchmark in request.benchmarks
                for setup in benchmark.setups(backend, request.scale).values()
                if not any(
                    record.process == number
                    and record.id == setup.id
                    and {*setup.variants} <= {*record.series}
                    for record in fresh.get((benchmark.name, backend), [])
                )
            ]
            if setups:
                yield Job(
                    backend,
                    number,
                    request.device,
                    request.scale,
                    setups,
                    [benchmark.path for benchmark in request.benchmarks],
                )


def _measured_before(
    request: Request, backends: Sequence[str]
) -> dict[tuple[str, str], list[Record]]:
    """Return what need not be measured again, by benchmark and backend."""
    fresh = {}
    for backend, benchmark in product(backends, request.benchmarks):
        framework = registry.find(backend).framework or "numpy"
        environment = digest(describe(framework, request.device), 8)
        home = folder(benchmark.name, request.publish, request.root)
        fresh[benchmark.name, backend] = [
            record
            for record in read(home, backend)
            if record.scale == request.scale
            and record.subject["device"] == request.device
            # Only the measuring process knows the name of a GPU.
            and (record.environment == environment or request.device != "cpu")
        ]
    return fresh


def _kept(request: Request, job: Job, content: Content) -> Iterator[Path]:
    """Write the entries of each benchmark to a file of its own."""
    commit = commit_of()
    for benchmark in request.benchmarks:
        code = Code(*commit, code_digest(benchmark.task, job.backend))
        told = {"scale": job.scale, "process": job.number, "command": request.command}
        entries = []
        for entry in content["benchmarks"]:
            if entry["extra_info"]["setup"].startswith(f"{benchmark.name}/"):
                entry["extra_info"].update(told, code=asdict(code))
                entries.append(entry)
        if entries:
            start = entries[0]["extra_info"]["start"].replace(":", "")
            name = f"{start}-{job.backend}-{job.scale}-{job.number}.json"
            path = folder(benchmark.name, request.publish, request.root) / name
            write(path, {**content, "benchmarks": entries})
            yield path


def _say(report: Callable[[str], None], job: Job, reasons: Mapping[str, str]) -> None:
    """Report a process that ended."""
    name = f"{job.backend}, process {job.number + 1} of {COUNTS[job.scale]}"
    failed = f", {len(reasons)} of them failed" if reasons else ""
    report(f"{name}: {len(job.setups)} setups{failed}")
    for reason in dict.fromkeys(reasons.values()):
        report(f"  {reason}")
