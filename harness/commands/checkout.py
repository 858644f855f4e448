"""Commands about the code itself: its size, and the mutants that tests catch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.commands.options import TABLE_WIDTH
from lockstep import registry

__all__ = ["layout", "mutants"]


def layout() -> None:
    """Count the size of the code and the calls of a step; write results/layout.json."""
    from harness.layout.report import ROOT, count_layout, write_layout
    from harness.records.files import RESULTS

    counts = count_layout(ROOT)
    counts.print(Console(width=max(Console().width, TABLE_WIDTH)))
    print(f"wrote {write_layout(counts, RESULTS)}")


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
    jobs: Annotated[int, typer.Option(min=1, help="How many are tried at once.")] = 1,
) -> None:
    """Try the mutants of a backend that have no result yet; print and record each."""
    from harness.mutation.run import Request as Mutants
    from harness.mutation.run import run_mutants
    from harness.mutation.summary import describe, summarize

    name = registry.find(backend).name
    request = Mutants(name, lister, minutes, count, again=again, jobs=jobs)
    left = run_mutants(
        request,
        lambda line: print(describe(line), flush=True),
        lambda text: print(text, flush=True),
    )
    print(f"{summarize(backend, request.folder)}; {left} left")
