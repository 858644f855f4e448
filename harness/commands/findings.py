"""Commands that show the findings of recorded results."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from harness.commands.options import AsJson, Backends, Device, Optimizer
from harness.declarations import declare
from harness.errors import HarnessError
from harness.progress import Progress
from harness.tasks import own
from lockstep.errors import unknown_name

if TYPE_CHECKING:
    from harness.judgement.finding import Finding


def compare(
    name: Annotated[
        str,
        typer.Argument(help="An experiment, a benchmark, or two commits as A..B."),
    ],
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(help="With A..B: the benchmarks to time; default: all."),
    ] = None,
    backend: Backends = None,
    device: Device = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="With A..B: one process, no verdicts.")
    ] = False,
    limit: Annotated[
        float,
        typer.Option(help="With A..B: exit with 1 if an interval lies above this."),
    ] = 1.05,
    optimizer: Optimizer = None,
    as_json: AsJson = False,
) -> None:
    """Print the answer that the recorded results give, or time two commits.

    A..B times the library of two commits with the benchmarks of this checkout; A.. is
    this checkout against A. The exit status is 1 if a row became slower than --limit,
    or could not be timed.
    """
    from harness.judgement.compare import tables_digest

    if ".." in name:
        _compare_commits(name, benchmarks, backend, device, quick, limit, as_json)
        return
    if benchmarks:
        raise HarnessError(
            f"compare: expected one name, or two commits A..B before names, got "
            f"{name} and {' '.join(benchmarks)}; compare one at a time."
        )
    finding = _finding(name, optimizer, backend)
    if as_json:
        print(json.dumps(finding.as_json(), indent=1))
        return
    print(finding.question)
    for result in filter(None, (finding, finding.local)):
        beside = "your own runs: " if result is finding.local else ""
        print(f"{beside}{result.answer}")
        verdict = [f"verdict: {result.verdict}."] if result.verdict else []
        age = [result.age] if result.age else []
        lines = (*verdict, *result.notices, *result.small_print, *result.missing, *age)
        print(*(f"- {line}" for line in lines), sep="\n")
    if optimizer is not None:
        _print_own(finding.local or finding, optimizer)
    if name in declare.known():
        print(f"- tables: {tables_digest(finding.tables)} (experiments/{name}.md)")


def _print_own(finding: Finding, optimizer: str) -> None:
    """Print the rows of a user's optimizer in the tables that tell optimizers apart."""
    name = f"{Path(optimizer.rpartition(':')[0]).name}:{optimizer.rpartition(':')[2]}"
    for title, table in finding.tables.items():
        for column in {"optimizer", "optimizer.name"} & {*table.columns}:
            rows = table[table[column] == name].dropna(axis="columns", how="all")
            if len(rows) and title != "sweep":
                print(f"{name}, {title}:", rows.to_string(index=False), sep="\n")


def _compare_commits(
    revisions: str,
    names: list[str] | None,
    backend: list[str] | None,
    device: str,
    quick: bool,
    limit: float,
    as_json: bool,
) -> None:
    from harness.bench import commits, report
    from harness.bench import declare as known
    from harness.bench.measure import Request

    chosen = list(map(known.find, dict.fromkeys(names or known.known())))
    scale = "quick" if quick else "std"
    request = Request(chosen, scale, backend or (), device)
    rows = commits.compare_commits(revisions, request, Console(stderr=True))
    if as_json:
        print(rows.to_json(orient="records", double_precision=15, indent=1))
    else:
        report.print_commits(rows, revisions)
    failed = (rows["reason"] != "") | (rows["low"] > limit)
    raise typer.Exit(int(failed.any()))


def plot(
    name: Annotated[str, typer.Argument(help="An experiment or a benchmark.")],
    out: Annotated[Path, typer.Option(help="The folder to draw into.")] = Path("plots"),
    kind: Annotated[
        Literal["svg", "pdf"], typer.Option("--format", help="The kind of files.")
    ] = "svg",
    optimizer: Optimizer = None,
    backend: Backends = None,
) -> None:
    """Draw a finding's figures as SVG and CSV, or as PDF."""
    from harness.figures.plot import draw, draw_pdf

    finding = _finding(name, optimizer, backend)
    if optimizer is not None:
        finding = finding.local or finding
    if kind == "pdf":
        print(*draw_pdf(finding, out), sep="\n")
        return
    for figure in draw(finding, out):
        print(figure.title, *figure.files, sep="\n  ")


def pages(
    name: Annotated[
        str | None, typer.Argument(help="Only the page of this one.")
    ] = None,
    docs: Annotated[
        bool,
        typer.Option(
            "--docs",
            help="Write the committed figures, scripts and outputs into docs/ instead.",
        ),
    ] = False,
) -> None:
    """Draw the plots and write the pages of docs/generated from results."""
    from harness.pages.readme import write_docs
    from harness.pages.write import write_page, write_pages

    if docs:
        for path in write_docs():
            print(f"wrote {path}")
        return
    if name is not None:
        print(f"wrote {write_page(_known(name))}")
        return
    with Progress("pages", len(_names())) as shown:
        changed = write_pages(done=partial(shown.advance, "pages"))
    print(f"changed {len(changed)} files in docs/generated")


def _finding(
    name: str, optimizer: str | None = None, backends: list[str] | None = None
) -> Finding:
    """Return the finding of an experiment or a benchmark."""
    from harness.bench import compare as timed
    from harness.bench import declare as benchmarks
    from harness.judgement.compare import compare as compared

    if _known(name) in benchmarks.known():
        finding = timed.compare(benchmarks.find(name))
    else:
        of, own_arms = declare.find(name), None
        if optimizer is not None:
            place = own.relative(optimizer)
            own_arms = of.with_optimizer(place, backends or ())
        finding = compared(of, own_arms=own_arms)
    if finding is None:
        raise HarnessError(f"{name}: expected results, found none; run it first.")
    return finding


def _known(name: str) -> str:
    """Return the name of an experiment or a benchmark; raise if there is none."""
    if name not in _names():
        raise HarnessError(str(unknown_name("experiment or benchmark", name, _names())))
    return name


def _names() -> list[str]:
    from harness.bench import declare as benchmarks

    return [*declare.known(), *benchmarks.known()]
