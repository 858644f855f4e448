"""Commands that run experiments and benchmarks."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from harness.bench import declare as benchmarks
from harness.commands.options import (
    AsJson,
    Backends,
    Device,
    Names,
    Optimizer,
    Publish,
)
from harness.declarations import declare
from harness.errors import HarnessError
from harness.parity.cases import FAMILIES
from harness.records.code import require_committed
from harness.records.files import folder
from harness.runs import run
from harness.runs.check import check as compare_arms
from harness.tasks import own
from lockstep import registry


def list_everything() -> None:
    """List the experiments, benchmarks, backends and families."""
    # Brackets in a question are not markup.
    write = partial(Console().print, markup=False)
    for experiment in map(declare.find, declare.known()):
        write(f"experiment  {experiment.name}: {experiment.question}")
        write(f"{'':<11} at most {experiment.budget_minutes:g} min at scale std")
    for benchmark in map(benchmarks.find, benchmarks.known()):
        write(f"benchmark   {benchmark.name}: {benchmark.question}")
    for backend in registry.BACKENDS.values():
        state = "" if registry.installed(backend.name) else " (not installed)"
        write(f"backend     {backend.name}: {', '.join(backend.modes)}{state}")
    for family in FAMILIES:
        write(f"family      {family}")


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
    failed = any(part.failed for part in run.sweep(chosen, request))
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
    from harness.bench import measure, report

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
        chosen, backend = [benchmarks.of_optimizer(place)], backend or ["pytorch"]
        own.keep(place, folder(chosen[0].name))
    request = measure.Request(
        chosen,
        scale="quick" if quick else "std",
        backends=backend or (),
        device=device,
        publish=publish,
        again=again,
        command=shlex.join(sys.argv[1:]),
    )
    for benchmark in request.benchmarks if publish else ():
        require_committed(benchmarks.FOLDER / f"{benchmark.name}.toml")
    paths, failures = measure.bench(request, Console(stderr=as_json))
    if as_json:
        print(json.dumps([json.loads(path.read_text("utf-8")) for path in paths]))
    else:
        report.print_benchmarks(request)
    raise typer.Exit(int(bool(failures)))
