"""Run programs as child processes: unchanged on the original, ported on Lockstep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.dropin.declared import Phase, Program
from harness.dropin.moving import move
from harness.errors import HarnessError
from harness.processes.environment import child_variables

__all__ = [
    "LOCKSTEP",
    "Interpreter",
    "original",
    "quiet_variables",
    "run",
    "run_phase",
    "take_checkpoints",
]

LIMIT = 300
"""Seconds after which a program is killed."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter for programs, and whether they are ported to Lockstep first."""

    name: str
    python: Path
    moved: bool
    variables: Mapping[str, str]


LOCKSTEP = Interpreter("lockstep", Path(sys.executable), True, child_variables())


def original(python: Path, variables: Mapping[str, str]) -> Interpreter:
    """Return the interpreter of the originals: TensorFlow 1.15 under Python 3.7."""
    return Interpreter("original", python, False, variables)


def run(program: Program, interpreter: Interpreter, folder: Path) -> list[list[str]]:
    """Run every phase of ``program`` in ``folder``; return the lines of each.

    Raises:
        HarnessError: a phase ended with an unexpected status.
    """
    return [run_phase(program, phase, interpreter, folder) for phase in program.phases]


def run_phase(
    program: Program, phase: Phase, interpreter: Interpreter, folder: Path
) -> list[str]:
    """Run one phase in ``folder``, which has the files of the phases before it."""
    path = folder / f"{program.name}_{interpreter.name}.py"
    path.write_text(move(program.text) if interpreter.moved else program.text, "utf-8")
    command = [str(interpreter.python), "-W", "ignore", str(path), *phase.arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**interpreter.variables, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{program.name}: expected an end within {LIMIT} s, got none"
        raise HarnessError(f"{text}; look at it alone.") from error
    if done.returncode != phase.status:
        last = (done.stderr.strip().splitlines() or ["no error was printed"])[-1]
        command_line = " ".join([program.name, *phase.arguments])
        text = f"{command_line} on {interpreter.name}: expected status {phase.status}"
        raise HarnessError(f"{text}, got {done.returncode}: {last}")
    return done.stdout.splitlines()


def take_checkpoints(origin: Path, target: Path) -> Sequence[Path]:
    """Copy the checkpoints in ``origin``, but not the graphs."""
    target.mkdir(parents=True, exist_ok=True)
    names = ("checkpoint", "*.index", "*.data-*")
    paths = sorted(path for name in names for path in origin.glob(name))
    return [Path(shutil.copy(path, target)) for path in paths]


def quiet_variables() -> dict[str, str]:
    """Return variables for a child of another Python, without those of this one."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**others, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1"}
