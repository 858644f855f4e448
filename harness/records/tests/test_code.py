"""The code of a run: its digest, the commit, and what may be published."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.records.code import code_digest, commit_of, require_committed

TASK, REPORT = "harness/tasks/warm_up/task.py", "harness/tasks/warm_up/report.py"
RULE, OTHER_RULE = "impls/lockstep/pytorch/norms.py", "impls/lockstep/tf/norms.py"
SOURCE = '''
"""A module."""
def double(x: int) -> int:
    """Return twice a number."""
    return 2 * x  # by two
'''


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        (RULE, "Return twice", "Double", True),
        (RULE, '    """Return twice a number."""\n', "", True),
        (RULE, "by two", "twice", True),
        (RULE, "2 * x", "3 * x", False),
        (TASK, "2 * x", "2 + x", False),
        (REPORT, "2 * x", "2 + x", True),
        (OTHER_RULE, "2 * x", "2 + x", True),
    ],
)
def test_a_digest_changes_with_what_computes_the_run(
    file: str, old: str, new: str, same: bool, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for root in (before, after):
        for name in (TASK, REPORT, RULE, OTHER_RULE, "harness/timing.py"):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SOURCE, "utf-8")
    (after / file).write_text(SOURCE.replace(old, new), "utf-8")
    digests = [code_digest("warm_up", "pytorch", root) for root in (before, after)]
    assert (digests[0] == digests[1]) is same


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *named, *words], check=True)


def test_a_checkout_is_dirty_when_code_differs_and_not_when_results_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == (None, None)
    for name in ("impls", "harness", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.py").write_text("A = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit, dirty = commit_of(tmp_path)
    assert commit is not None and len(commit) == 40 and dirty is False
    (tmp_path / "results" / "file.py").write_text("A = 2\n")
    assert commit_of(tmp_path) == (commit, False)
    (tmp_path / "harness" / "new.py").write_text("")
    assert commit_of(tmp_path) == (commit, True)
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) == (None, None)


def test_what_is_published_stands_in_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "experiments" / "adam.toml"
    path.parent.mkdir()
    path.write_text("low = 0\n")
    with pytest.raises(HarnessError, match=r"got no repository of Git"):
        require_committed(path, tmp_path)
    git(tmp_path, "init", "-q")
    for words in (["status", "-s"], ["add", "."]):
        git(tmp_path, *words)
        with pytest.raises(HarnessError, match=r"adam.toml: .* or a new file; commit"):
            require_committed(path, tmp_path)
    git(tmp_path, "commit", "-q", "-m", "1")
    require_committed(path, tmp_path)
    path.write_text("low = -1\n")
    with pytest.raises(HarnessError, match=r"predictions are older than the results"):
        require_committed(path, tmp_path)
    (tmp_path / ".gitignore").write_text("*.md\n")
    (tmp_path / "x.md").write_text("")
    with pytest.raises(HarnessError, match=r"x\.md"):
        require_committed(tmp_path / "x.md", tmp_path)
