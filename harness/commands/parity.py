"""Commands that replay recorded cases: here, and on TensorFlow 1.15 itself."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from harness.commands.options import (
    TABLE_WIDTH,
    Backends,
    Device,
    Families,
    Golden,
    Modes,
    RowsFile,
)
from harness.errors import HarnessError
from harness.parity import report
from harness.parity.cases import GOLDEN
from harness.parity.command import Request, run_parity
from harness.progress import Progress


def parity(
    backend: Backends = None,
    mode: Modes = None,
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
        # Raises before any work if it cannot be written at the end.
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.touch()
    if explain and default:
        text = "--explain: expected a comparison with the recording, got --default"
        raise HarnessError(f"{text}; leave one of them out.")
    if device != "cpu" and not backend:
        text = f"--device {device}: expected the backends that can use it, got none"
        raise HarnessError(f"{text}; add --backend pytorch or --backend tf.")
    chosen = (backend or (), mode or (), golden, family or ())
    request = Request(*chosen, case, explain, everything, default, device)
    console = Console(width=max(Console().width, TABLE_WIDTH))
    with Progress("cases", console=Console(stderr=True)) as shown:
        result = run_parity(
            request,
            lambda row: shown.advance(f"{row.backend}/{row.mode}"),
            shown.expect,
        )
    report.print_explanation(result, console)
    report.print_rows(result, console)
    if report_file is not None:
        report.write_report(result.rows, report_file, device)
        console.print(f"wrote {report_file}")
    raise typer.Exit(int(any(row.status == "failed" for row in result.rows)))


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
        typer.Option(min=0, help="Draw and record so many cases a family instead."),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="What fresh cases depend on.")] = 0,
) -> None:
    """Replay cases and old programs on live TensorFlow 1.15, where Python 3.7 is."""
    from harness.oracle.command import record_cases, replay

    if cases:
        record_cases(golden, family or (), cases, seed)
        return
    chosen = (golden, family or (), program or (), record, report_file)
    raise typer.Exit(replay(*chosen))
