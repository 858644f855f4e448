"""A type checker finds wrong arguments and names in a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2]

PROGRAM = """\
from lockstep import reference
from lockstep.reference import *
from lockstep.reference import Variable, pipeline_of, strict
from lockstep.reference.strict import OPTIMIZER_SUMMARIES, Rows

plain = reference.MomentumOptimizer(0.1, 0.9)
reference.MultitaskOptimizerWrapper(3)  # incompatible
MultitaskOptimizerWrapper(plain, stric=True)  # unexpected
clip_gradients_by_norm([], "1")  # incompatible
reference.AdamsOptimizer  # has no attribute
strict.AdamsOptimizer  # has no attribute

base = strict.MomentumOptimizer(0.1, 0.9)
right: reference.MultitaskOptimizerWrapper = strict.MultitaskOptimizerWrapper(base)
strict.MultitaskOptimizerWrapper(3)  # incompatible
strict.VariableClippingOptimizer(base, {}, "1")  # incompatible
pairs, norm = strict.clip_gradients_by_global_norm([], 1.0)
"""


OPTIONS = ("--strict", "--follow-imports", "silent", "--no-error-summary")


@pytest.mark.slow
def test_wrong_arguments_and_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(SOURCE), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = {int(line.split(":")[1]): line.lower() for line in errors}
    lines = enumerate(PROGRAM.splitlines(), 1)
    expected = {k: line.split("# ")[1] for k, line in lines if "# " in line}
    assert found.keys() == expected.keys(), done.stdout + done.stderr
    assert all(expected[k] in found[k] for k in expected)
