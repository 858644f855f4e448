"""``harness frozen``: compare with results recorded before a change of code."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.commands.options import Backends, Families

frozen = typer.Typer(
    help="Compute frozen results anew and name every difference.", no_args_is_help=True
)


@frozen.callback()
def main() -> None:
    """Compute frozen results anew and name every difference."""


@frozen.command()
def parity(
    backend: Backends = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="An execution mode; default: all.")
    ] = None,
    behaviour: Annotated[
        list[str] | None, typer.Option(help="strict or default; default: both.")
    ] = None,
    family: Families = None,
    case: Annotated[str | None, typer.Option(help="The name of one case.")] = None,
    record: Annotated[
        bool, typer.Option(help="Freeze the trajectories of today instead.")
    ] = False,
) -> None:
    """Compare the trajectory of every recorded case, to the bit."""
    from harness.errors import HarnessError
    from harness.parity import frozen as trajectories
    from harness.parity.cases import FAMILIES
    from lockstep.errors import unknown_name

    if record and (mode or behaviour or family or case):
        raise HarnessError(
            "--record: expected no choice but of backends, because a file holds all "
            "cases, got a mode, behaviour, family or case; leave it out."
        )
    for name in behaviour or ():
        if name not in trajectories.BEHAVIOURS:
            raise HarnessError(
                f"--behaviour: expected strict or default, got {name!r}; name one."
            )
    for name in family or ():
        if name not in FAMILIES:
            raise HarnessError(str(unknown_name("family", name, FAMILIES)))
    choice = trajectories.Choice(
        backend or (), mode or (), behaviour or (), family or (), case
    )
    columns = (
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("replaying", total=None)

        def advance(name: str) -> None:
            progress.update(task, advance=1, description=name)

        if record:
            for path in trajectories.record(backend or (), advance):
                print(f"wrote {path.name}")
            return
        differ = 0
        for part, equal, lines in trajectories.compare(choice, advance):
            print(f"{part}: {equal} equal, {len(lines)} differ", *lines, sep="\n  ")
            differ += len(lines)
    raise typer.Exit(bool(differ))
