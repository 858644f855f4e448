"""What differs from a frozen trajectory is named with its step and quantity."""

from __future__ import annotations

import copy
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from harness.parity import frozen
from harness.parity.frozen import Choice, compare, record

CASE = Choice(["reference"], behaviours=["default"], case="multitask-p-010")


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The content of a file with one case, which a test may change."""
    monkeypatch.setattr(frozen, "FOLDER", tmp_path)
    names = frozen.cases_of(CASE)
    monkeypatch.setattr(frozen, "cases_of", lambda choice: names)
    (path,) = record(["reference"], lambda name: None)
    content = json.loads(lzma.decompress(path.read_bytes()))
    yield content


def after(content: Any) -> list[tuple[str, int, list[str]]]:
    path = frozen.FOLDER / "reference.json.xz"
    path.write_bytes(lzma.compress(json.dumps(content).encode()))
    return list(compare(CASE, lambda name: None))


def test_the_same_code_gives_the_same_bits(content: Any) -> None:
    assert after(content) == [("reference numpy default", 1, [])]


def test_another_bit_is_named_with_its_step_and_quantity(content: Any) -> None:
    changed = copy.deepcopy(content)
    (trajectory,) = content["trajectories"].values()
    quantity = next(q for q in trajectory["steps"][1] if q.startswith("variables/"))
    changed["trajectories"]["other"] = copy.deepcopy(trajectory)
    changed["trajectories"]["other"]["steps"][1][quantity][2] = "AAAAAAAAAAA="
    changed["numpy default"] = {CASE.case: "other"}
    ((_, equal, lines),) = after(changed)
    assert equal == 0
    assert lines == [f"{CASE.case}: {quantity} differs after step 2"]


def test_a_case_that_was_not_frozen_is_named(content: Any) -> None:
    ((_, equal, lines),) = after({**content, "numpy default": {}})
    assert (equal, lines) == (0, [f"{CASE.case}: was not frozen"])
