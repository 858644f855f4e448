"""Replay recorded cases and old programs on TensorFlow 1.15, or record new ones."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.errors import HarnessError
from harness.oracle import old_programs
from harness.oracle.random_cases import DRAWN, draw_cases
from harness.oracle.report import CaseRow, Report, judged, print_report
from harness.parity.cases import FOUND, GOLDEN, read_cases
from harness.processes.children import ROOT, Child
from harness.progress import Progress
from lockstep.errors import sentence, unknown_name

Json = dict[str, Any]
WIDTH = 160


def oracle_python() -> Path:
    """Return the interpreter that has TensorFlow 1.15.

    Raises:
        HarnessError: there is none.
    """
    place = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    python = ROOT / ".envs/oracle" / place
    if not python.exists():
        remedy = "make it with nox -s environments -- oracle"
        raise HarnessError(sentence("oracle", f"{python}", "no file", remedy))
    return python


def replay(
    golden: Path,
    families: Sequence[str],
    programs: Sequence[str],
    record: bool,
    report_file: Path | None,
) -> int:
    """Replay cases and programs, print and write a report; return the exit status.

    With only families, no program is run. With only programs, no case is replayed.

    Args:
        golden: a folder of recorded cases.
        families: of the cases; empty for all.
        programs: their names; empty for all.
        record: whether to record anew what the programs print.
        report_file: where to write the report.
    """
    chosen = [old_programs.find(name) for name in programs]
    if not programs and not families:
        chosen = list(old_programs.programs().values())
    cases = [] if programs and not families else read_cases(golden, families)
    python = oracle_python()
    if report_file is not None:  # An error comes before the work.
        report_file.parent.mkdir(parents=True, exist_ok=True)
        report_file.touch()
    live = [case for case in cases if case.family in DRAWN]
    versions, *results = run_live(python, [vars(case) for case in live])
    report, remaining = Report(environment=versions), iter(results)
    for case in cases:
        if case.family in DRAWN:
            report.cases.append(judged(case, next(remaining)))
        else:
            row = CaseRow(id=case.id, family=case.family, kind=case.kind)
            report.cases.append(row)
    with Progress("programs", len(chosen), Console(stderr=True)) as shown:
        for program in chosen:
            if record:
                old_programs.record(program, python, versions)
            report.programs.append(old_programs.replay(program, python))
            shown.advance(program.name)
    console = Console(width=max(Console().width, WIDTH))
    print_report(report, console)
    if report_file is not None:
        report.write(report_file)
        console.print(f"wrote {report_file}")
    return int(report.failed)


def record_cases(folder: Path, families: Sequence[str], count: int, seed: int) -> None:
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
    python = oracle_python()
    folder.mkdir(parents=True, exist_ok=True)
    for family in families or DRAWN:
        write_cases(folder, family, count, seed, python)
        print(f"wrote {count} cases to {folder / family}.json", flush=True)
    print(f"next: parity --golden {folder}")


def write_cases(folder: Path, family: str, count: int, seed: int, python: Path) -> None:
    """Record cases of a family and write a golden file, whole or not at all."""
    drawn = list(draw_cases(family, count, seed))
    _, *results = run_live(python, drawn)
    head = json.dumps({"format": 1, "family": family, "split": "live"})
    lines = []
    for case, result in zip(drawn, results, strict=True):
        del case["family"]
        lines.append(json.dumps({**case, **result}))
    text = head[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    unfinished = folder / f"{family}.json.part"
    unfinished.write_text(text, "utf-8")
    unfinished.replace(folder / f"{family}.json")


def run_live(python: Path, cases: Sequence[Json]) -> list[Json]:
    """Run cases on the original; return its versions, and the result of each case.

    Raises:
        HarnessError: it ended early.
    """
    command = [str(python), "-W", "ignore", "-m", "harness.oracle.live"]
    variables = {**old_programs.live_variables(), "PYTHONPATH": str(ROOT)}
    child = Child(command, variables)
    answers = [child.receive()]
    with Progress("cases", len(cases), Console(stderr=True)) as shown:
        for case in cases:
            if answers[-1] is None:
                break
            child.send(json.dumps(case))
            answers.append(child.receive())
            shown.advance(case["family"])
    ended = child.end()
    results = [json.loads(answer) for answer in answers if answer is not None]
    if len(results) != 1 + len(cases):
        expected, got = f"the results of {len(cases)} cases", f"{len(results) - 1}"
        remedy = "look at the message, or take fewer at once"
        raise HarnessError(sentence("oracle", expected, f"{got}, then {ended}", remedy))
    return results
