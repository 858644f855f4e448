"""Commands that run experiments and benchmarks."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.bench import declare as benchmarks
from harness.bench.declare import Benchmark
from harness.commands.options import (
    AsJson,
    Backends,
    Device,
    Names,
    Optimizer,
    Publish,
)
from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.declarations.tune import Tune
from harness.errors import HarnessError
from harness.judgement.compare import counted_records
from harness.parity.cases import FAMILIES
from harness.records.code import require_committed
from harness.records.files import RESULTS, folder
from harness.runs import run
from harness.runs.check import check as compare_arms
from harness.tasks import own
from lockstep import registry


def list_everything(as_json: AsJson = False) -> None:
    """List the experiments, benchmarks, backends and families."""
    if as_json:
        print(json.dumps(everything(), indent=1))
    else:
        print_everything(everything(), Console())


def run_experiments(
    experiments: Names = None,
    scale: Annotated[str, typer.Option(help="quick, std or full.")] = "quick",
    backend: Backends = None,
    device: Device = "cpu",
    publish: Publish = False,
    seeds: Annotated[
        int | None, typer.Option(help="Only the first so many seeds of the scale.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Worker processes; default: the cores, on this machine at most 4.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="A Ray cluster whose nodes do the runs, e.g. auto."),
    ] = None,
    optimizer: Optimizer = None,
) -> None:
    """Do the runs that are missing; what is recorded already is kept."""
    names = dict.fromkeys(experiments or declare.known())
    chosen = [declare.find(name) for name in names]
    if optimizer is not None:
        if publish:
            raise HarnessError(
                "--optimizer: expected runs of your own, got --publish; leave one out."
            )
        place = own.relative(optimizer)
        chosen = [each.with_optimizer(place, backend or ()) for each in chosen]
        own.load(place)  # raises before any work
        for experiment in chosen:
            own.keep(place, folder(experiment.name))
    for experiment in chosen:
        experiment.runs(scale, seeds)  # raises before any work
        if publish:
            require_committed(declare.EXPERIMENTS / f"{experiment.name}.toml")
    request = run.Request(
        scale,
        backend or (),
        device,
        publish,
        seeds=seeds,
        jobs=jobs,
        cluster=cluster,
        command=shlex.join(sys.argv[1:]),
    )
    failed = any(report.failed for report in run.sweep(chosen, request))
    if not failed:
        names = dict.fromkeys(experiment.name for experiment in chosen)
        print(next_command(list(names), optimizer, backend or ()))
    raise typer.Exit(int(failed))


def check(
    name: Annotated[str, typer.Argument(help="An experiment.")],
    backend: Backends = None,
    device: Device = "cpu",
) -> None:
    """Run one seed of each arm again and compare with the published record.

    Nothing is written. The exit status is 1 if an arm is different.
    """
    different = 0
    for arm in compare_arms(declare.find(name), backend or (), device):
        print(arm, flush=True)
        different += arm.result == "different"
    raise typer.Exit(int(different > 0))


def next_command(
    names: Sequence[str], optimizer: str | None = None, backends: Sequence[str] = ()
) -> str:
    """Return the last line of a run: the commands that show its results."""
    option = "" if optimizer is None else f" --optimizer {optimizer}"
    option += "".join(f" --backend {name}" for name in backends) if option else ""
    # Links are not resolved: the interpreter of an environment is one.
    here = os.path.relpath(sys.executable)
    python = sys.executable if here.startswith(os.pardir) else here
    commands = [f"{python} -m harness compare {name}{option}" for name in names[:1]]
    after = f"plot {names[0]}{option}" if option else "pages"
    return f"Next: {', '.join([*commands, f'{python} -m harness {after}'])}"


def bench(
    names: Names = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One process, few rounds, no verdicts.")
    ] = False,
    backend: Backends = None,
    device: Device = "cpu",
    publish: Publish = False,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew what is recorded already.")
    ] = False,
    optimizer: Optimizer = None,
    as_json: AsJson = False,
) -> None:
    """Time what the wrappers cost; print each row with its interval and verdict."""
    from harness.bench import command, report
    from harness.bench import declare as benchmarks
    from harness.bench import own as of_user

    if optimizer is None:
        chosen = [*map(benchmarks.find, dict.fromkeys(names or benchmarks.known()))]
    elif names or publish:
        got = "--publish" if publish else " ".join(names or ())
        raise HarnessError(
            f"--optimizer: expected your optimizer alone, which is not published, got "
            f"{got}; leave one out."
        )
    else:
        place = own.relative(optimizer)
        own.load(place)  # raises before any work
        chosen = [of_user.benchmark(place, backend or ["pytorch"])]
    request = command.Request(
        chosen,
        scale="quick" if quick else "std",
        backends=backend or (),
        device=device,
        publish=publish,
        again=again,
        command=shlex.join(sys.argv[1:]),
    )
    for benchmark in request.benchmarks if publish else ():
        require_committed(benchmark.path)
    out = sys.stderr if as_json else sys.stdout
    records = command.bench(request, partial(print, file=out, flush=True))
    if as_json:
        print(json.dumps([record.as_json() for record in records], indent=1))
    else:
        report.print_benchmarks(request, Console(width=report.width()))
    raise typer.Exit(int(any(record.status != "ok" for record in records)))


def everything(root: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """Return everything that can be run, as a JSON object.

    ``root`` is the folder of the results whose records are counted.
    """
    experiments = [declare.find(name) for name in declare.known()]
    timed = [benchmarks.find(name) for name in benchmarks.known()]
    return {
        "experiments": [
            {
                "name": experiment.name,
                "title": experiment.title,
                "question": experiment.question,
                "task": experiment.task,
                "backends": list(experiment.backends),
                "seeds": {name: s.seeds for name, s in experiment.scales.items()},
                "budget_minutes": experiment.budget_minutes,
                "tune": _sweep(experiment.tune),
                **_counts(experiment, root),
            }
            for experiment in experiments
        ],
        "benchmarks": [
            {
                "name": benchmark.name,
                "title": benchmark.title,
                "question": benchmark.question,
                **_counts(benchmark, root),
            }
            for benchmark in timed
        ],
        "backends": [
            {
                "name": backend.name,
                "modes": list(backend.modes),
                "installed": registry.installed(backend.name),
            }
            for backend in registry.BACKENDS.values()
        ],
        "families": [{"name": name} for name in FAMILIES],
    }


def _sweep(tune: Tune | None) -> dict[str, Any] | None:
    if tune is None:
        return None
    sweep = {"path": tune.path, "values": tune.values}
    return {"seeds": tune.seeds, "metric": tune.metric, **sweep}


def _counts(of: Experiment | Benchmark, root: Path) -> dict[str, Any]:
    """Return the number of records, published and the user's own."""
    counts: dict[str, Any] = {}
    for place, publish in (("published", True), ("local", False)):
        try:
            home = folder(of.name, publish, root)
            counts[place] = {"records": len(counted_records(of, home))}
        except HarnessError as error:
            counts[place] = {"records": None, "problem": str(error)}
    return counts


def _planned(entry: Mapping[str, Any]) -> str:
    """Return an experiment's budget and its tuned setting as text."""
    budget = f"at most {entry['budget_minutes']:g} min at scale std"
    sweep = entry["tune"]
    if sweep is None:
        return budget
    return f"{budget}; tunes {sweep['path']}, {len(sweep['values'])} values"


def _counted(entry: Mapping[str, Any]) -> str:
    """Return the counts of an entry as text."""
    parts = []
    for place in ("published", "local"):
        counts = entry[place]
        if "problem" in counts:
            parts.append(f"{place} records cannot be read: {counts['problem']}")
        elif counts["records"] or place == "published":
            parts.append(f"{counts['records']} {place} records")
    return "; ".join(parts)


def print_everything(lists: dict[str, list[dict[str, Any]]], console: Console) -> None:
    """Print one line per entry. Brackets in a question are not read as markup."""
    write = functools.partial(console.print, markup=False)
    for kind in ("experiment", "benchmark"):
        for entry in lists[f"{kind}s"]:
            write(f"{kind:<11} {entry['name']}: {entry['question']}")
            planned = [_planned(entry)] if "tune" in entry else []
            write(f"{'':<11} {'; '.join([*planned, _counted(entry)])}")
    for backend in lists["backends"]:
        state = "" if backend["installed"] else " (not installed)"
        modes = ", ".join(backend["modes"])
        write(f"backend     {backend['name']}: {modes}{state}")
    for family in lists["families"]:
        write(f"family      {family['name']}")
