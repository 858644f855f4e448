"""The parity run: plan, replay in child processes, collect the rows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.plan import plan_backend
from harness.parity.replay import WITHOUT_STRICT
from harness.parity.row import Row
from harness.processes.children import Children, run_lines
from lockstep import registry
from lockstep.errors import unknown_name

__all__ = ["Request", "Result", "run_parity"]


@dataclass(frozen=True)
class Request:
    """The cases to replay, and how. An empty selection means all."""

    backends: Sequence[str] = ()
    modes: Sequence[str] = ()
    golden: Path = GOLDEN
    families: Sequence[str] = ()
    case: str | None = None
    explain: bool = False
    everything: bool = False
    default: bool = False
    device: str = "cpu"


@dataclass
class Result:
    """The rows of a run, explanations, and the backends that could not run."""

    rows: list[Row] = field(default_factory=list)
    explanations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """The cases for one child process."""

    backend: str
    mode: str
    cases: Sequence[Case]


def run_parity(request: Request, on_row: Callable[[Row], None]) -> Result:
    """Replay the selected cases. ``on_row`` is called with each row."""
    cases = _select(request)
    result = Result()
    jobs: list[Job] = []
    for backend in _backends(request, result):
        modes = [m for m in backend.modes if not request.modes or m in request.modes]
        everything = request.everything or request.case is not None
        plan, skipped = plan_backend(cases, backend, modes, everything)
        result.rows += skipped
        jobs += [Job(backend.name, m, plan[m]) for m in modes if plan[m]]
    _run_jobs(jobs, functools.partial(_run_job, request, result, on_row))
    result.rows.sort(key=lambda r: (r.backend, r.mode, r.family, r.id))
    return result


def _select(request: Request) -> list[Case]:
    cases = read_cases(request.golden, request.families)
    if request.case is None:
        return cases
    chosen = [case for case in cases if case.id == request.case]
    if not chosen:
        known = [case.id for case in cases]
        raise HarnessError(_shorten(str(unknown_name("case", request.case, known))))
    return chosen


def _shorten(text: str) -> str:
    """Remove the long list of case ids from the error about an unknown one."""
    head, _, tail = text.partition(": expected one of ")
    return (
        f"{head}: expected the id of a recorded case, got{tail.rpartition(' got')[2]}"
    )


def _backends(request: Request, result: Result) -> list[registry.Backend]:
    """Return the backends to run. Raise if a named one is not installed."""
    chosen = [registry.find(name) for name in request.backends]
    known = [m for b in chosen or registry.BACKENDS.values() for m in b.modes]
    for mode in request.modes:
        if mode not in known:
            raise unknown_name("mode", mode, known)
    alone = [b.name for b in chosen if request.default and b.name in WITHOUT_STRICT]
    if alone:
        text = f"--default: expected a backend that has strict, got {alone[0]}"
        raise HarnessError(f"{text}; leave --default out, its default is judged so.")
    able = []
    for backend in chosen or registry.BACKENDS.values():
        if request.modes and not set(request.modes) & set(backend.modes):
            continue
        if request.default and backend.name in WITHOUT_STRICT:
            continue
        if registry.installed(backend.name):
            able.append(backend)
        elif chosen:
            registry.load(backend.name)
        else:
            result.missing.append(f"{backend.name}: {backend.framework} not installed")
    return able


def _run_jobs(jobs: Sequence[Job], run_job: Callable[[Children, Job], None]) -> None:
    """Run two jobs at a time. After an error or Ctrl-C, stop all of them."""
    children = Children()
    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            waiting = {pool.submit(run_job, children, job) for job in jobs}
            while waiting:
                # With a timeout: a signal that arrives while this thread falls asleep
                # is only handled when it wakes.
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise


def _run_job(
    request: Request,
    result: Result,
    on_row: Callable[[Row], None],
    children: Children,
    job: Job,
) -> None:
    golden = str(request.golden.resolve())
    arguments = [job.backend, job.mode, golden, request.device]
    waiting = {case.id: case for case in job.cases}

    def take(line: str) -> None:
        content = json.loads(line)
        lines = content.pop("explanation", None)
        row = Row.from_json(content)
        if lines is not None:
            result.explanations[f"{job.backend}/{job.mode}"] = lines
        del waiting[row.id]
        result.rows.append(row)
        on_row(row)

    options = ["--explain"] if request.explain else []
    options += ["--default"] if request.default else []
    stdin = "\n".join(waiting)
    module = "harness.parity.worker"
    status, errors = run_lines(module, arguments + options, stdin, take, children)
    last = (errors.strip().splitlines() or ["no error was printed"])[-1]
    if len(waiting) == len(job.cases) and request.device != "cpu":
        # An unusable device is one error, not one per case.
        raise HarnessError(last.partition("Error: ")[2] or last)
    for case in waiting.values():
        reason = f"the child process ended first, with status {status}: {last}"
        fields = (case.id, case.family, case.kind, job.backend, job.mode)
        row = Row(*fields, "failed", reason)
        result.rows.append(row)
        on_row(row)
