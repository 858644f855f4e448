"""The oracle run: replay recorded cases and old programs on the originals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.dropin.declared import find, programs
from harness.dropin.running import original, quiet_variables
from harness.errors import HarnessError
from harness.oracle.environment import ROOT
from harness.oracle.programs import record, replay_program
from harness.oracle.report import Report, judged
from harness.parity.cases import FAMILIES, GOLDEN, require_folder
from harness.processes.children import run_command
from lockstep.messages.errors import unknown_name

__all__ = ["Request", "run_oracle"]


@dataclass(frozen=True)
class Request:
    """What to replay. An empty selection means all.

    With only families, no program is run. With only programs, no case is replayed.
    """

    golden: Path = GOLDEN
    families: Sequence[str] = ()
    programs: Sequence[str] = ()
    record: bool = False


def run_oracle(
    request: Request, python: Path, on_done: Callable[[str, int], None]
) -> Report:
    """Replay the selected cases and programs with the interpreter of the originals.

    Args:
        request: what to replay.
        python: the interpreter that has TensorFlow 1.15.
        on_done: called with the name of each finished item and the total of its kind.

    Raises:
        HarnessError: an unknown family or program, or the replay ended early.
    """
    for family in request.families:
        if family not in FAMILIES:
            raise HarnessError(str(unknown_name("family", family, FAMILIES)))
    require_folder(request.golden)
    chosen = [find(name) for name in request.programs]
    report = Report()
    if not chosen:
        _replay_cases(request, python, report, on_done)
    if request.families and not chosen:
        return report
    interpreter = original(python, quiet_variables())
    chosen = chosen or list(programs().values())
    for program in chosen:
        if request.record and program.live:
            record(program, interpreter, _versions(python))
        report.programs.append(replay_program(program, interpreter))
        on_done(program.name, len(chosen))
    report.environment = report.environment or _versions(python)
    return report


def _replay_cases(
    request: Request,
    python: Path,
    report: Report,
    on_done: Callable[[str, int], None],
) -> None:
    """Run the child process that replays the cases, and read its lines."""
    announced: dict[str, Any] = {}

    def take(line: str) -> None:
        content = json.loads(line)
        if not announced:
            announced.update(content)
            report.environment = content["environment"]
            return
        report.cases.append(judged(content))
        on_done(report.cases[-1].family, announced["cases"])

    golden = str(request.golden.resolve())
    module = ["-W", "ignore", "-m", "harness.oracle.live", golden]
    command = [str(python), *module, *request.families]
    variables = {**quiet_variables(), "PYTHONPATH": str(ROOT)}
    status, errors = run_command(command, "", take, variables)
    if status or len(report.cases) != announced.get("cases"):
        last = (errors.strip().splitlines() or ["no error was printed"])[-1]
        done = f"{len(report.cases)} of {announced.get('cases', 'unknown')}"
        text = f"oracle: expected a row for every case, got {done}, status {status}"
        raise HarnessError(f"{text}: {last}")


def _versions(python: Path) -> dict[str, str]:
    """Return the versions that the originals run on."""
    lines: list[str] = []
    module = ["-W", "ignore", "-m", "harness.oracle.live", "--versions"]
    variables = {**quiet_variables(), "PYTHONPATH": str(ROOT)}
    status, errors = run_command([str(python), *module], "", lines.append, variables)
    if status:
        raise HarnessError(f"oracle: TensorFlow 1.15 does not start: {errors[-300:]}")
    versions: dict[str, str] = json.loads(lines[-1])["environment"]
    return versions
