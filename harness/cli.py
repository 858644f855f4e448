"""The command line: ``python -m harness COMMAND``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from harness import declare, run
from harness.errors import HarnessError
from harness.parity import report
from harness.parity.cases import GOLDEN
from harness.parity.command import Request, Result, run_parity
from harness.parity.row import Row
from harness.records.code import require_committed
from harness.revalidate import Revalidation
from lockstep import __version__, registry
from lockstep.messages.errors import LockstepError, unknown_name

if TYPE_CHECKING:
    from harness.finding import Finding

__all__ = ["app", "main"]

Names = Annotated[list[str] | None, typer.Argument(help="Names; default: all of them.")]
Backends = Annotated[
    list[str] | None, typer.Option(help="A backend (repeatable); default: all.")
]
Families = Annotated[
    list[str] | None, typer.Option(help="A family (repeatable); default: all.")
]
Golden = Annotated[Path, typer.Option(help="A folder of golden files, FAMILY.json.")]
RowsFile = Annotated[
    Path | None, typer.Option("--report", help="Write the rows to this JSON file.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
Publish = Annotated[
    bool, typer.Option("--publish", help="Write to results/, not results/local/.")
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
]

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of a command that leaves its arguments to another parser."""

TABLE_WIDTH = 170
INTERRUPTED = 130
"""The exit status after Ctrl-C."""

app = typer.Typer(
    help="Replay recorded cases, run experiments, draw plots, write pages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version of Lockstep and exit.",
    ),
]


@app.callback()
def harness(version: Version = False) -> None:
    """Replay recorded cases, run experiments, draw plots, write pages."""


@app.command()
def parity(
    backend: Backends = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            "--face",
            help="An execution mode of the backends (repeatable); default: all."
            " --face is the old name.",
        ),
    ] = None,
    golden: Golden = GOLDEN,
    family: Families = None,
    case: Annotated[str | None, typer.Option(help="The id of one case.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --case: show every quantity.")
    ] = False,
    report_file: RowsFile = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every case in every mode.")
    ] = False,
    default: Annotated[
        bool,
        typer.Option("--default", help="Compare the default with strict instead."),
    ] = False,
    device: Device = "cpu",
) -> None:
    """Replay recorded cases through the backends and measure the distance in ULPs."""
    if explain and case is None:
        raise HarnessError("--explain: expected one case, got none; add --case ID.")
    if report_file is not None:
        report.check_writable(report_file)
    if explain and default:
        text = "--explain: expected a comparison with the recording, got --default"
        raise HarnessError(f"{text}; leave one of them out.")
    if device != "cpu" and not backend:
        text = f"--device {device}: expected the backends that can use it, got none"
        raise HarnessError(f"{text}; add --backend pytorch or --backend tf.")
    chosen = (backend or (), mode or (), golden, family or ())
    request = Request(*chosen, case, explain, everything, default, device)
    console = Console(width=max(Console().width, TABLE_WIDTH))
    result = _run_with_progress(request)
    report.print_explanation(result, console)
    report.print_rows(result, console)
    if report_file is not None:
        report.write_report(result.rows, report_file)
        console.print(f"wrote {report_file}")
    raise typer.Exit(int(any(row.status == "failed" for row in result.rows)))


@app.command()
def oracle(
    family: Families = None,
    program: Annotated[
        list[str] | None, typer.Option(help="An old program; default: all.")
    ] = None,
    golden: Golden = GOLDEN,
    report_file: RowsFile = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write down anew what programs print.")
    ] = False,
    cases: Annotated[
        int,
        typer.Option(
            min=0, help="With --record: so many fresh cases a family instead."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="What fresh cases depend on.")] = 0,
) -> None:
    """Replay cases and old programs on live TensorFlow 1.15, where Python 3.7 is."""
    from harness.oracle import terminal

    if cases and not record:
        raise HarnessError("--cases: expected --record beside it, got none; add it.")
    if cases:
        raise typer.Exit(terminal.record_fresh(golden, family or (), cases, seed))
    chosen = (golden, family or (), program or (), record)
    raise typer.Exit(terminal.run_in_terminal(*chosen, report_file))


@app.command()
def catalogue() -> None:
    """Replay what docs/differences.md quotes of the recorded cases."""
    from harness.parity.quotes import RECORD, record_quotes

    print(f"wrote {len(record_quotes())} quotes to {RECORD}")


@app.command(name="list")
def list_everything(as_json: AsJson = False) -> None:
    """List the experiments, benchmarks, backends and families."""
    from harness.listing import everything, print_everything

    if as_json:
        print(json.dumps(everything(), indent=1))
    else:
        print_everything(everything(), Console())


@app.command(name="run")
def run_experiments(
    experiments: Names = None,
    scale: Annotated[
        str | None, typer.Option(help="quick, std or full; default: quick.")
    ] = None,
    backend: Backends = None,
    device: Device = "cpu",
    publish: Publish = False,
    stale: Annotated[
        bool,
        typer.Option("--stale", help="Revalidate records that other code made."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Only the first so many seeds of the scale.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; default: the cores, at most 4."),
    ] = None,
) -> None:
    """Do the runs that are missing; what is recorded already is kept."""
    if stale and (scale or seeds):
        text = "expected neither --scale nor --seeds beside it, got one; leave it out"
        raise HarnessError(f"--stale: {text}.")
    names = dict.fromkeys(experiments or declare.known())
    chosen = [declare.find(name) for name in names]
    for experiment in chosen:
        experiment.runs(scale or "quick", seeds)  # refused before any work
        if publish:
            require_committed(declare.EXPERIMENTS / f"{experiment.name}.toml")
    request = run.Request(
        scale or "quick",
        backend or (),
        device,
        publish,
        seeds=seeds,
        jobs=jobs or run.default_jobs(),
        command=shlex.join(sys.argv[1:]),
    )
    kind = Revalidation if stale else run.Sweep
    failed = any(report.failed for report in run.sweep(chosen, request, kind))
    if not failed:
        print(next_command([experiment.name for experiment in chosen]))
    raise typer.Exit(int(failed))


def next_command(names: Sequence[str]) -> str:
    """Return the line that ends a run: how to see what it leads to."""
    # A link is not followed: the interpreter of an environment is one.
    here = os.path.relpath(sys.executable)
    python = sys.executable if here.startswith(os.pardir) else here
    commands = [f"{python} -m harness compare {name}" for name in names[:1]]
    return f"Next: {', '.join([*commands, f'{python} -m harness pages'])}"


@app.command()
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
    as_json: AsJson = False,
) -> None:
    """Time what the wrappers cost; print each row with its interval and verdict."""
    from harness.bench import command, report
    from harness.bench import declare as benchmarks

    chosen = map(benchmarks.find, dict.fromkeys(names or benchmarks.known()))
    request = command.Request(
        list(chosen),
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


@app.command()
def compare(
    name: Annotated[str, typer.Argument(help="An experiment or a benchmark.")],
    as_json: AsJson = False,
) -> None:
    """Print the answer that the recorded results give, with its small print."""
    finding = _finding(name)
    if as_json:
        print(json.dumps(finding.as_json(), indent=1))
        return
    print(finding.question)
    for result in filter(None, (finding, finding.local)):
        beside = "your own runs: " if result is finding.local else ""
        print(f"{beside}{result.answer}")
        verdict = [f"verdict: {result.verdict}."] if result.verdict else []
        lines = (*verdict, *result.notices, *result.small_print, *result.missing)
        print(*(f"- {line}" for line in lines), sep="\n")
    _print_staleness(name)


def _print_staleness(name: str) -> None:
    """Print how many records of a name are stale, published ones and the user's own."""
    from harness.bench import declare as benchmarks
    from harness.counted import counted_records
    from harness.records.code import Sources
    from harness.records.files import folder
    from harness.records.staleness import staleness_of

    benchmark = name in benchmarks.known()
    of = benchmarks.find(name) if benchmark else declare.find(name)
    sources = Sources()
    for place, publish in (("published", True), ("your own", False)):
        home = folder(name, publish)
        staleness = staleness_of(home, sources, counted_records(of, home))
        if staleness.stale:
            print(f"- {place}: {staleness}")


@app.command()
def plot(
    name: Annotated[str, typer.Argument(help="An experiment or a benchmark.")],
    out: Annotated[Path, typer.Option(help="The folder to draw into.")] = Path("plots"),
) -> None:
    """Draw a finding's figures as SVG, PDF and CSV."""
    from harness.plot import draw

    for figure in draw(_finding(name), out):
        print(f"{figure.title}\n  {figure.light}\n  {figure.dark}\n  {figure.pdf}")


@app.command(add_help_option=False, context_settings=PASSED_ON)
def schedule(context: typer.Context) -> None:
    """Draw a learning-rate policy; the same as the installed `lockstep schedule`."""
    from lockstep.cli import main as lockstep

    lockstep(["schedule", *context.args])


@app.command()
def pages() -> None:
    """Draw the plots and write the pages of docs/generated from results."""
    from harness.pages.write import write_pages

    print(f"wrote {len(write_pages())} files to docs/generated")


@app.command()
def layout() -> None:
    """Count the size of the code and the calls of a step; write results/layout.json."""
    from harness.layout.report import ROOT, count_layout, write_layout
    from harness.records.files import RESULTS

    counts = count_layout(ROOT)
    counts.print(Console(width=max(Console().width, TABLE_WIDTH)))
    print(f"wrote {write_layout(counts, RESULTS)}")


@app.command()
def mutants(
    backend: Annotated[str, typer.Option(help="Whose operators are changed.")],
    lister: Annotated[
        Path, typer.Option(help="A Python that has Cosmic Ray; nox gives it.")
    ],
    minutes: Annotated[
        float, typer.Option(min=0, help="No further mutant is begun after this time.")
    ] = 30,
    count: Annotated[
        int | None, typer.Option(min=1, help="At most so many mutants.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Try survivors without a reason again.")
    ] = False,
) -> None:
    """Try the mutants of a backend that have no result yet; print and record each."""
    from harness.mutation.run import Request as Mutants
    from harness.mutation.run import run_mutants
    from harness.mutation.summary import describe, summarize

    name = registry.find(backend).name
    request = Mutants(name, lister, minutes, count, again=again)
    left = run_mutants(request, lambda line: print(describe(line), flush=True))
    print(f"{summarize(backend, request.folder)}; {left} left")


@app.command()
def readme() -> None:
    """Write the parity matrix and the figure of README.md from published results."""
    from harness.readme import README, write_figure, write_matrix

    write_matrix()
    for path in (README, *write_figure()):
        print(f"wrote {path}")


def _finding(name: str) -> Finding:
    """Compare the results of an experiment or a benchmark."""
    from harness.bench import compare as timed
    from harness.bench import declare as benchmarks
    from harness.compare import compare as compared

    known = [*declare.known(), *benchmarks.known()]
    if name not in known:
        raise HarnessError(str(unknown_name("experiment or benchmark", name, known)))
    if name in benchmarks.known():
        finding = timed.compare(benchmarks.find(name))
    else:
        finding = compared(declare.find(name))
    if finding is None:
        raise HarnessError(f"{name}: expected results, found none; run it first.")
    return finding


def _run_with_progress(request: Request) -> Result:
    """Run parity; on a terminal, show how many cases are done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("replaying", total=None)

        def advance(row: Row) -> None:
            progress.update(task, advance=1, description=f"{row.backend}/{row.mode}")

        return run_parity(request, advance)


def main() -> None:
    """Run the command line; an error of the user's is a sentence and status 2.

    SIGTERM ends it as Ctrl-C does: children are ended and what is done is kept.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (HarnessError, LockstepError) as error:
        print(f"harness: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # Typer makes this of Ctrl-C, without a word.
        if end.code == INTERRUPTED:
            say_interrupted()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def say_interrupted() -> None:
    """Print what Ctrl-C left: runs and processes are recorded as soon as they end."""
    goes_on = "; what is done is kept, and the same command goes on"
    hint = goes_on if sys.argv[1:2] in (["run"], ["bench"], ["mutants"]) else ""
    print(f"harness: interrupted{hint}.", file=sys.stderr)
