"""The page for users of other tools has every pair of scripts, with its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.processes.children import ROOT

EXAMPLES = ROOT / "docs" / "examples" / "coming_from"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
PAGE = (ROOT / "docs" / "coming_from.md").read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_stands_above_what_it_prints(script: Path) -> None:
    code = PAGE.index(f'"generated/inserts/example_coming_from_{script.stem}.md"')
    assert code < PAGE.index(f'"examples/coming_from/{script.stem}.out"')


def test_each_script_of_a_tool_has_one_of_ours_beside_it() -> None:
    theirs = [path for path in SCRIPTS if path.stem.endswith("_theirs")]
    ours = [path for path in SCRIPTS if path.stem.endswith("_here")]
    assert len(theirs) + len(ours) == len(SCRIPTS) > 0
    pairs = [path.stem.removesuffix("_theirs") for path in theirs]
    assert pairs == [path.stem.removesuffix("_here") for path in ours]
    assert not any("lockstep" in path.read_text("utf-8") for path in theirs)
    assert all("lockstep" in path.read_text("utf-8") for path in ours)
