"""Comparing and drawing need no framework; experiments do not lean on one another.

What is imported is not searched for garbage.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from harness.processes.environment import child_variables
from harness.tasks import TASKS

HEAVY = ("torch", "tensorflow", "keras", "sklearn", "scipy.stats")
COMPARING = (
    "harness.judgement.compare",
    "harness.declarations.declare",
    "harness.records.code",
    "harness.records.files",
    "harness.runs.run",
    "harness.runs.worker",
    *(f"harness.tasks.{task}.task" for task in TASKS),
)
DRAWING = (
    "harness.figures.plot",
    "harness.bench.figures",
    *(f"harness.tasks.{task}.report" for task in TASKS),
)


def imported_by(modules: tuple[str, ...]) -> set[str]:
    """Import modules in a fresh interpreter; return the heavy ones that came along."""
    code = (
        "import sys, importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=child_variables(),
    )
    return set(done.stdout.split())


def test_comparing_imports_no_framework() -> None:
    assert imported_by(COMPARING) == set()


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
def test_drawing_imports_no_framework() -> None:
    assert imported_by(DRAWING) == set()
