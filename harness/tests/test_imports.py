"""Comparing and drawing need no framework; experiments do not lean on one another.

What is imported is not searched for garbage.
"""

from __future__ import annotations

import gc
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import tasks
from harness.processes import child
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


@pytest.mark.parametrize("failed", [False, True])
def test_imports_are_not_searched_for_garbage_then_or_later(
    failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: searched.append(gc.isenabled()))
    try:
        with child.unsearched():
            searched.append(gc.isenabled())
            if failed:
                raise ImportError
    except ImportError:
        assert failed
    assert searched == [False, False]
    assert gc.isenabled()


def test_comparing_imports_no_framework() -> None:
    assert imported_by(COMPARING) == set()


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
def test_drawing_imports_no_framework() -> None:
    assert imported_by(DRAWING) == set()


def test_no_experiments_package_imports_from_anothers() -> None:
    root = Path(tasks.__file__).parent
    named = re.compile(
        rf"^\s*(?:from|import) harness\.tasks\.({'|'.join(TASKS)})\b", re.M
    )
    imports = {
        (path.relative_to(root).parts[0], name)
        for path in root.rglob("*.py")
        if "tests" not in path.relative_to(root).parts
        for name in named.findall(path.read_text("utf-8"))
    }
    assert len({name for _, name in imports}) > len(TASKS) / 2  # it finds imports
    assert {pair for pair in imports if pair[0] != pair[1]} == set()
