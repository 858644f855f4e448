"""Record random cases on the live originals and write them as golden files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.dropin.running import quiet_variables
from harness.errors import HarnessError
from harness.oracle.drawing.families import DRAWN
from harness.oracle.environment import ROOT
from harness.parity.cases import FOUND, GOLDEN
from harness.processes.children import run_command
from lockstep.messages.errors import sentence, unknown_name

__all__ = ["check_request", "draw_cases", "record_cases"]

RELEASE = "live tensorflow 1.15.5"


def check_request(folder: Path, families: Sequence[str]) -> None:
    """Raise for a folder that is not allowed, or an unknown family."""
    if folder.resolve() in (GOLDEN.resolve(), FOUND.resolve()):
        expected = "a folder of your own"
        remedy = "name another one; what was recorded is never written again"
        raise HarnessError(sentence("--golden", expected, str(folder), remedy))
    for family in families:
        if family not in DRAWN:
            raise HarnessError(str(unknown_name("family", family, list(DRAWN))))


def draw_cases(
    families: Sequence[str], count: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield ``count`` cases of each family, determined by seed, family and number."""
    known = list(DRAWN)
    for family in families or known:
        component, draw = DRAWN[family]
        for number in range(count):
            generator = np.random.default_rng([seed, known.index(family), number])
            kind, inputs = draw(generator)
            yield {
                "family": family,
                "id": f"{family}-s{seed}-{number:04d}",
                "kind": kind,
                "source": f"{component} ({RELEASE})",
                "inputs": inputs,
            }


def record_cases(
    folder: Path,
    families: Sequence[str],
    count: int,
    seed: int,
    python: Path,
    on_done: Callable[[str, int], None],
) -> int:
    """Record random cases with the interpreter of the originals; return their number.

    One file per family is written to ``folder`` when all of its cases are recorded.

    Raises:
        HarnessError: an unknown family, or the originals ended early.
    """
    check_request(folder, families)
    families = families or list(DRAWN)
    folder.mkdir(parents=True, exist_ok=True)
    for family in families:
        cases = list(draw_cases([family], count, seed))
        recorded: list[dict[str, Any]] = []

        def take(line: str, recorded: list[dict[str, Any]] = recorded) -> None:
            recorded.append(json.loads(line))
            on_done(recorded[-1]["family"], count * len(families))

        _run_live(python, cases, take)
        if len(recorded) != count:
            text = f"oracle: expected {count} recorded cases, got {len(recorded)}"
            raise HarnessError(text)
        _write(folder / f"{family}.json", family, recorded)
    return count * len(families)


def _run_live(
    python: Path, cases: Sequence[dict[str, Any]], take: Callable[[str], None]
) -> None:
    command = [str(python), "-W", "ignore", "-m", "harness.oracle.live.record"]
    variables = {**quiet_variables(), "PYTHONPATH": str(ROOT)}
    stdin = "".join(f"{json.dumps(case)}\n" for case in cases)
    status, errors = run_command(command, stdin, take, variables)
    if status:
        last = (errors.strip().splitlines() or ["no error was printed"])[-1]
        raise HarnessError(f"oracle: recording ended with status {status}: {last}")


def _write(path: Path, family: str, cases: Sequence[dict[str, Any]]) -> None:
    """Write a golden file, one case per line, completely or not at all."""
    head = {"format": 1, "family": family, "split": "live"}
    lines = [
        json.dumps({key: value for key, value in case.items() if key != "family"})
        for case in cases
    ]
    text = json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)
