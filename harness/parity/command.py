"""The parity run: plan, replay in child processes, collect the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.row import Row
from harness.parity.tables import excuse
from harness.processes.children import Children, run_jobs
from lockstep import registry
from lockstep.errors import nearest, unknown_name


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


def run_parity(
    request: Request,
    on_row: Callable[[Row], None],
    on_plan: Callable[[int], None] = lambda number: None,
) -> Result:
    """Replay the selected cases.

    ``on_plan`` is called with their number, then ``on_row`` with each row.
    """
    cases = _select(request)
    result = Result()
    jobs = []
    for backend in _backends(request, result):
        modes = [m for m in backend.modes if not request.modes or m in request.modes]
        everything = request.everything or request.case is not None
        plan, skipped = plan_backend(cases, backend, modes, everything)
        result.rows += skipped
        jobs += [(backend.name, mode, plan[mode]) for mode in modes if plan[mode]]

    on_plan(sum(len(chosen) for _, _, chosen in jobs))

    def take(row: Row) -> None:
        result.rows.append(row)
        on_row(row)

    children = Children()
    replay = partial(_replay_in_child, request, result, take, children)
    run_jobs(children, jobs, replay)
    result.rows.sort(key=lambda r: (r.backend, r.mode, r.family, r.id))
    return result


def plan_backend(
    cases: Sequence[Case],
    backend: registry.Backend,
    modes: Sequence[str],
    everything: bool,
) -> tuple[dict[str, list[Case]], list[Row]]:
    """Distribute ``cases`` over ``modes`` of a backend.

    The first mode that can express a case replays it. Every other mode that can
    replays a tenth of the cases of each kind (at least one), or all if ``everything``.
    Cases that no mode can express are returned as skipped rows with the reason.
    """
    plan: dict[str, list[Case]] = {mode: [] for mode in modes}
    skipped = []

    def alike(case: Case) -> tuple[str, str, list[str]]:
        able = [mode for mode in modes if not excuse(case, backend.name, mode)]
        return case.family, case.kind, able

    for (_, _, able), group in groupby(sorted(cases, key=alike), key=alike):
        kind = list(group)
        for position, mode in enumerate(able):
            whole = everything or position == 0
            # A tenth, or the last if there are too few.
            plan[mode] += kind if whole else kind[position::10] or kind[-1:]
        for case in kind if not able else []:
            reason = excuse(case, backend.name, modes[0]) or ""
            place = case.id, case.family, case.kind, backend.name, modes[0]
            skipped.append(Row(*place, "skipped", reason))
    return plan, skipped


def _select(request: Request) -> list[Case]:
    cases = read_cases(request.golden, request.families)
    if request.case is None:
        return cases
    chosen = [case for case in cases if case.id == request.case]
    if not chosen:
        near = nearest(request.case, [case.id for case in cases])
        hint = f"did you mean {near!r}?" if near else "look into the golden files."
        raise HarnessError(
            f"--case: expected the id of a recorded case, got {request.case!r}; {hint}"
        )
    return chosen


def _backends(request: Request, result: Result) -> list[registry.Backend]:
    """Return the backends to run. Raise if a named one is not installed."""
    chosen = [registry.find(name) for name in request.backends]
    backends = chosen or [*registry.BACKENDS.values()]
    known = [mode for backend in backends for mode in backend.modes]
    for mode in request.modes:
        if mode not in known:
            raise unknown_name("mode", mode, known)
    alone = [b.name for b in chosen if request.default and not b.has_strict]
    if alone:
        text = f"--default: expected a backend that has strict, got {alone[0]}"
        raise HarnessError(f"{text}; leave --default out, its default is judged so.")
    able = []
    for backend in backends:
        if request.modes and not set(request.modes) & set(backend.modes):
            continue
        if request.default and not backend.has_strict:
            continue
        if registry.installed(backend.name):
            able.append(backend)
        elif chosen:
            registry.load(backend.name)
        else:
            result.missing.append(f"{backend.name}: {backend.framework} not installed")
    return able


def _replay_in_child(
    request: Request,
    result: Result,
    take: Callable[[Row], None],
    children: Children,
    job: tuple[str, str, list[Case]],
) -> None:
    """Replay cases on a backend in one mode. A child that dies fails its cases."""
    backend, mode, cases = job
    waiting = {case.id: case for case in cases}

    def on_line(line: str) -> None:
        content = json.loads(line)
        lines = content.pop("explanation", None)
        if lines is not None:
            result.explanations[f"{backend}/{mode}"] = lines
        row = Row.from_json(content)
        del waiting[row.id]
        take(row)

    arguments = [backend, mode, str(request.golden.resolve()), request.device]
    arguments += ["--explain"] if request.explain else []
    arguments += ["--default"] if request.default else []
    stdin = "\n".join(waiting)
    child = children.start("harness.parity.worker", arguments)
    status, errors = child.exchange(stdin, on_line)
    if children.ended:  # Nothing failed, it was stopped.
        return
    last = (errors.strip().splitlines() or ["no error was printed"])[-1]
    if len(waiting) == len(cases) and request.device != "cpu":
        # An unusable device is one error, not one per case.
        raise HarnessError(last.partition("Error: ")[2] or last)
    reason = f"the child process ended first, with status {status}: {last}"
    for case in waiting.values():
        take(Row(case.id, case.family, case.kind, backend, mode, "failed", reason))
