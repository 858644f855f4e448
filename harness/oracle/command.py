"""Replay recorded cases and old programs on TensorFlow 1.15, or record new ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from harness.errors import HarnessError
from harness.oracle import old_programs
from harness.oracle.drawing.families import DRAWN
from harness.oracle.environment import (
    ROOT,
    MissingOracleError,
    oracle_python,
    quiet_variables,
)
from harness.oracle.report import Report, judged, print_report, write_report
from harness.parity.cases import FAMILIES, FOUND, GOLDEN, require_folder
from harness.processes.children import Child
from lockstep.errors import sentence, unknown_name

WIDTH = 160


def replay(
    golden: Path,
    families: Sequence[str],
    programs: Sequence[str],
    record: bool,
    report_file: Path | None,
) -> int:
    """Replay cases and programs, print and write a report; return the exit status.

    With only families, no program is run. With only programs, no case is replayed. If
    the originals cannot be run, print the reason and return 0.

    Args:
        golden: a folder of recorded cases.
        families: of the cases; empty for all.
        programs: their names; empty for all.
        record: whether to record anew what the programs print.
        report_file: where to write the report.

    Raises:
        HarnessError: an unknown family or program, or the replay ended early.
    """
    for family in families:
        if family not in FAMILIES:
            raise HarnessError(str(unknown_name("family", family, FAMILIES)))
    require_folder(golden)
    chosen = [old_programs.find(name) for name in programs]
    if not chosen and not families:
        chosen = list(old_programs.programs().values())
    try:
        python = oracle_python()
    except MissingOracleError as missing:
        print(f"oracle: skipped: {missing}.")
        return 0
    if report_file is not None:  # An error comes before the work.
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.touch()
    report = Report()
    with Console(stderr=True).status("replaying") as status:
        arguments = ["--versions"]
        if families or not programs:
            arguments = [str(golden.resolve()), *families]
        announced: dict[str, Any] = {}

        def take(content: dict[str, Any]) -> None:
            if announced:
                report.cases.append(judged(content))
                done = f"{len(report.cases)} of {announced['cases']}"
                status.update(f"{content['family']}: {done}")
            announced.update({} if announced else content)

        _run_live(python, ["harness.oracle.live", *arguments], "", take)
        if len(report.cases) != announced.get("cases"):
            got = f"{len(report.cases)} of {announced.get('cases', 'unknown')}"
            text = f"oracle: expected a row for every case, got {got}"
            raise HarnessError(f"{text}; replay one family alone.")
        report.environment = announced["environment"]
        for program in chosen:
            status.update(program.name)
            if record:
                old_programs.record(program, python, report.environment)
            report.programs.append(old_programs.replay(program, python))
    console = Console(width=max(Console().width, WIDTH))
    print_report(report, console)
    if report_file is not None:
        write_report(report, report_file)
        console.print(f"wrote {report_file}")
    return int(report.failed)


def record_cases(folder: Path, families: Sequence[str], count: int, seed: int) -> int:
    """Draw cases, record them on the originals and write a file for each family.

    Raises:
        HarnessError: the folder has the recordings of Lockstep, a family cannot be
            drawn, or the recording ended early.
    """
    if folder.resolve() in (GOLDEN.resolve(), FOUND.resolve()):
        remedy = "name another one; what was recorded is never written again"
        text = sentence("--golden", "a folder of your own", str(folder), remedy)
        raise HarnessError(text)
    for family in families:
        if family not in DRAWN:
            raise HarnessError(str(unknown_name("family", family, list(DRAWN))))
    try:
        python = oracle_python()
    except MissingOracleError as missing:
        print(f"oracle: skipped: {missing}.")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    for family in families or DRAWN:
        write_cases(folder, family, count, seed, python)
        print(f"wrote {count} cases to {folder / family}.json", flush=True)
    print(f"next: parity --golden {folder}")
    return 0


def draw_cases(family: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield ``count`` cases, each determined by seed, family and number."""
    component, draw = DRAWN[family]
    for number in range(count):
        place = list(DRAWN).index(family)
        kind, inputs = draw(np.random.default_rng([seed, place, number]))
        yield {
            "family": family,
            "id": f"{family}-s{seed}-{number:04d}",
            "kind": kind,
            "source": f"{component} (live tensorflow 1.15.5)",
            "inputs": inputs,
        }


def write_cases(folder: Path, family: str, count: int, seed: int, python: Path) -> None:
    """Record cases of a family and write a golden file, whole or not at all."""
    drawn = "".join(f"{json.dumps(c)}\n" for c in draw_cases(family, count, seed))
    recorded: list[dict[str, Any]] = []
    _run_live(python, ["harness.oracle.live.record"], drawn, recorded.append)
    if len(recorded) != count:
        text = f"oracle: expected {count} recorded cases, got {len(recorded)}"
        raise HarnessError(f"{text}; record fewer at once.")
    head = {"format": 1, "family": family, "split": "live"}
    lines = [
        json.dumps({key: value for key, value in case.items() if key != "family"})
        for case in recorded
    ]
    text = json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    unfinished = folder / f"{family}.json.part"
    unfinished.write_text(text, "utf-8")
    unfinished.replace(folder / f"{family}.json")


def _run_live(
    python: Path,
    module: Sequence[str],
    stdin: str,
    take: Callable[[dict[str, Any]], None],
) -> None:
    """Run a module under Python 3.7; hand over each line of JSON that it prints."""
    command = [str(python), "-W", "ignore", "-m", *module]
    variables = {**quiet_variables(), "PYTHONPATH": str(ROOT)}
    child = Child(command, variables)
    status, errors = child.exchange(stdin, lambda line: take(json.loads(line)))
    if status:
        last = (errors.strip().splitlines() or ["no error was printed"])[-1]
        raise HarnessError(f"oracle: {module[0]} ended with status {status}: {last}")
