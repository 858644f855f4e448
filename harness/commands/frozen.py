"""``harness frozen``: compare with results recorded before a change of code."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["frozen"]

frozen = typer.Typer(
    help="Compute frozen results anew and name every difference.", no_args_is_help=True
)


@frozen.callback()
def main() -> None:
    """Compute frozen results anew and name every difference."""


@frozen.command()
def findings(
    record: Annotated[
        bool, typer.Option(help="Freeze the findings of today instead.")
    ] = False,
) -> None:
    """Compare tables, verdicts, run ids and the ledger of all experiments."""
    from harness.judgement.frozen import FROZEN, differences, read, write
    from harness.judgement.frozen import findings as compute

    after = compute()
    if record:
        write(after)
        print(f"wrote {FROZEN.name}")
        return
    lines = list(differences(read(), after))
    print(*lines, f"{len(lines)} differences", sep="\n")
    raise typer.Exit(bool(lines))
