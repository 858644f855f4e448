"""The command about the mutants that tests catch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockstep import registry


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
