"""Run benchmarks: several measuring processes per backend, one record per setup."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from harness.bench.compare import PROCESSES
from harness.bench.declare import Benchmark
from harness.bench.process import Job, Measurement, measure
from harness.errors import HarnessError
from harness.processes.environment import describe
from harness.records.code import code_digest, commit_of
from harness.records.files import RESULTS, Store, folder
from harness.records.record import Code, Record, digest
from harness.timing import low_quantile
from lockstep import registry
from lockstep.errors import unknown_name

COUNTS = {"quick": 1, "std": PROCESSES}
"""Number of measuring processes of each scale."""


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

    @property
    def native(self) -> Path:
        """The folder for pytest-benchmark's files."""
        return self.root / "local" / "pytest-benchmark"

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


def bench(request: Request, report: Callable[[str], None] = print) -> list[Record]:
    """Do the missing measurements; append and return the records.

    Every process measures all setups of one backend. Its records are written when it
    ends, so the next call resumes after an interruption.

    Raises:
        HarnessError: the request is impossible.
    """
    backends = request.chosen_backends()
    with ExitStack() as opened:
        stores = {
            (benchmark.name, backend): opened.enter_context(Store(home, backend))
            for benchmark in request.benchmarks
            for home in [folder(benchmark.name, request.publish, request.root)]
            for backend in backends
            if backend in benchmark.backends
        }
        plan = list(_plan(request, backends, stores))
        records, begin = list[Record](), time.monotonic()
        for done, job in enumerate(plan, start=1):
            measurement = measure(job)
            records += _record(request, job, measurement, stores)
            _say(report, job, measurement)
            left = (time.monotonic() - begin) / done * (len(plan) - done) / 60
            if done < len(plan):
                report(f"about {max(left, 1):.0f} min left")
    return records


def _plan(
    request: Request, backends: Sequence[str], stores: Mapping[tuple[str, str], Store]
) -> Iterator[Job]:
    """Yield the processes to start. Backends take turns, so all progress equally."""
    fresh = {} if request.again else _measured_before(request, stores)
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
                    request.native / f"{backend}-{request.scale}-{number}.json",
                )


def _measured_before(
    request: Request, stores: Mapping[tuple[str, str], Store]
) -> dict[tuple[str, str], list[Record]]:
    """Return the records that need not be measured again, by benchmark and backend."""
    fresh = {}
    for (name, backend), store in stores.items():
        framework = registry.find(backend).framework or "numpy"
        environment = digest(describe(framework, request.device), 8)
        fresh[name, backend] = [
            record
            for record in store.records
            if record.status == "ok"
            and record.scale == request.scale
            and record.subject["device"] == request.device
            # Only the measuring process knows the name of a GPU.
            and (record.environment == environment or request.device != "cpu")
        ]
    return fresh


def _record(
    request: Request,
    job: Job,
    measurement: Measurement,
    stores: Mapping[tuple[str, str], Store],
) -> Iterator[Record]:
    """Append a record for each setup of a process: its times, or why it has none."""
    commit, dirty = commit_of()
    for setup in job.setups:
        store = stores[setup.benchmark, job.backend]
        result = measurement.results[setup.key]
        seconds = {name: list(map(rounded, s)) for name, s in result.seconds.items()}
        record = Record(
            experiment=setup.benchmark,
            id=setup.id,
            task=setup.task,
            config=dict(setup.config),
            seed=0,
            subject=measurement.subject,
            environment=store.environment(measurement.environment),
            status="error" if result.reason else "ok",
            reason=result.reason,
            series=seconds,
            summary={name: low_quantile(times) for name, times in seconds.items()},
            code=Code(commit, dirty, code_digest(setup.task, job.backend)),
            scale=request.scale,
            command=request.command,
            process=job.number,
            start=result.start,
            duration=result.duration,
            load=result.load,
        )
        store.append(record)
        yield record


def rounded(seconds: float) -> float:
    """Return a time with 4 significant digits. More digits would be noise."""
    return float(f"{seconds:.3e}")


def _say(report: Callable[[str], None], job: Job, result: Measurement) -> None:
    """Report a process that ended."""
    reasons = [each.reason for each in result.results.values() if each.reason]
    name = f"{job.backend}, process {job.number + 1} of {COUNTS[job.scale]}"
    failed = f", {len(reasons)} of them failed" if reasons else ""
    report(f"{name}: {len(job.setups)} setups{failed}")
    for reason in dict.fromkeys(reasons):
        report(f"  {reason}")
