"""Tests marked soak go on where the run before was ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.long_tests import state_of

pytest_plugins = ["pytester"]

SUITE = """
import os
import pytest

pytestmark = pytest.mark.soak

@pytest.mark.parametrize("number", range(3))
def test_long(number):
    print(f"ran {number}")
    if number == 1 and os.environ["AT_1"] == "interrupt":
        raise KeyboardInterrupt
    assert number != 1 or os.environ["AT_1"] == "pass"

@pytest.mark.skipif(os.environ["AT_1"] != "pass", reason="later")
def test_that_was_skipped():
    print("ran 3")
"""


class Suite:
    """Three long tests, of which the second one can end the run."""

    def __init__(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.pytester, self.monkeypatch = pytester, monkeypatch
        self.folder = pytester.path / "kept"
        pytester.makepyfile(SUITE)
        pytester.makeini("[pytest]\nmarkers = soak\n")

    def run(self, at_1: str, *words: str) -> tuple[list[int], str]:
        """Return the numbers of the tests that ran, and what was printed."""
        self.monkeypatch.setenv("AT_1", at_1)
        plugin = ["-p", "harness.long_tests", "--soak", str(self.folder)]
        ends = {"no_reraise_ctrlc": True}
        result = self.pytester.runpytest_inprocess(*plugin, "-s", *words, **ends)
        text = result.stdout.str()
        return [n for n in range(4) if f"ran {n}" in text], text


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch)


@pytest.mark.parametrize("end", ["interrupt", "fail"])
def test_what_passed_is_left_out_until_all_have(suite: Suite, end: str) -> None:
    assert suite.run(end)[0] == ([0, 1] if end == "interrupt" else [0, 1, 2])
    ran, text = suite.run("pass")
    assert ran == ([1, 2, 3] if end == "interrupt" else [1, 3])
    assert f"{4 - len(ran)} passed before this run was ended" in text
    assert suite.run("pass")[0] == [0, 1, 2, 3]


def test_a_part_that_passes_leaves_the_others_as_they_were(suite: Suite) -> None:
    suite.run("fail")
    suite.run("pass", "-k", "1 or skipped")
    assert suite.run("pass")[0] == [1, 3]


def test_a_list_of_the_tests_changes_nothing(suite: Suite) -> None:
    suite.run("fail")
    _, text = suite.run("pass", "--collect-only", "-q")
    assert "4 tests collected" in text
    assert suite.run("pass")[0] == [1, 3]


def test_other_sources_begin_anew(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.run("fail")
    monkeypatch.setattr("harness.long_tests.state_of", lambda root: "another")
    assert suite.run("pass")[0] == [0, 1, 2, 3]


def test_the_state_is_that_of_the_sources(tmp_path: Path) -> None:
    for folder in ("impls", "harness/__pycache__", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    states = [state_of(tmp_path)]
    for name in ("impls/a.py", "harness/__pycache__/a.pyc", "docs/a.md"):
        (tmp_path / name).write_text(name)
        states.append(state_of(tmp_path))
    (tmp_path / "impls" / "a.py").rename(tmp_path / "impls" / "b.py")
    states.append(state_of(tmp_path))
    assert len(set(states[:2])) == 2
    assert len(set(states[1:4])) == 1
    assert states[4] not in states[:4]
