"""The oracle run as a command: progress, tables, or the reason for a skip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.oracle.command import Request, run_oracle
from harness.oracle.environment import MissingOracleError, oracle_python
from harness.oracle.recording import check_request, record_cases
from harness.oracle.report import print_report, write_report
from harness.parity.report import check_writable

__all__ = ["record_fresh", "run_in_terminal"]

WIDTH = 160

OnDone = Callable[[str, int], None]
Result = TypeVar("Result")


def run_in_terminal(
    golden: Path,
    families: Sequence[str],
    programs: Sequence[str],
    record: bool,
    report_file: Path | None,
) -> int:
    """Run, print, write the report; return the exit status.

    If the originals cannot be run, print the reason and return 0.
    """
    if report_file is not None:
        check_writable(report_file)
    try:
        python = oracle_python()
    except MissingOracleError as missing:
        print(f"oracle: skipped: {missing}.")
        return 0
    request = Request(golden, families, programs, record)
    report = _with_progress("replaying", lambda done: run_oracle(request, python, done))
    console = Console(width=max(Console().width, WIDTH))
    print_report(report, console)
    if report_file is not None:
        write_report(report, report_file)
        console.print(f"wrote {report_file}")
    return int(report.failed)


def record_fresh(folder: Path, families: Sequence[str], count: int, seed: int) -> int:
    """Record fresh cases into a folder of golden files; return the exit status."""
    check_request(folder, families)
    try:
        python = oracle_python()
    except MissingOracleError as missing:
        print(f"oracle: skipped: {missing}.")
        return 0

    def recorded(advance: OnDone) -> int:
        return record_cases(folder, families, count, seed, python, advance)

    number = _with_progress("recording", recorded)
    print(f"wrote {number} cases to {folder}; next: parity --golden {folder}")
    return 0


def _with_progress(title: str, run: Callable[[OnDone], Result]) -> Result:
    """Show progress on a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(title, total=None)
        totals: list[int] = []

        def advance(name: str, total: int) -> None:
            if totals[-1:] != [total]:
                totals.append(total)
                progress.reset(task, total=total)
            progress.update(task, advance=1, description=name)

        return run(advance)
