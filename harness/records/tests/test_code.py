"""Digests of code: what changes what a module does changes them, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.records.code import code_digest, commit_of, require_committed
from harness.records.code import source_digest as digest_of

SOURCE = '''
"""A module."""
SIZE = 3
"""A constant."""

def double(x: int) -> int:
    """Return twice a number."""
    return 2 * x  # by two
'''

SAME = {
    "a docstring": ("Return twice", "Double"),
    "no docstring": ('    """Return twice a number."""\n', ""),
    "a constant's docstring": ("A constant.", "The size."),
    "a comment": ("by two", "twice"),
    "another line": ("\ndef", "\n\n\ndef"),
    "parentheses": ("2 * x", "(2 * x)"),
}
OTHER = {
    "another number": ("2 * x", "3 * x"),
    "a float": ("2 * x", "2.0 * x"),
    "another operation": ("2 * x", "2 + x"),
    "another argument": ("x: int", "x: int = 0"),
    "nothing for a number": ("SIZE = 3", "SIZE = None"),
    "a text that is used": ("SIZE = 3", 'SIZE = "3"'),
}


@pytest.mark.parametrize("change", {**SAME, **OTHER})
def test_only_what_a_program_notices_changes_the_digest(change: str) -> None:
    other = SOURCE.replace(*{**SAME, **OTHER}[change])
    assert other != SOURCE
    assert (digest_of(other) == digest_of(SOURCE)) is (change in SAME)


TRAINING = """
from lockstep.norms import norm

def train(rate):
    if rate < 0:
        raise ValueError(f"expected a rate of at least 0, got {rate}")
    return norm(rate)
"""


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("harness/tasks/toy/task.py", TRAINING.replace("expected", "I want"), True),
        ("harness/tasks/toy/task.py", TRAINING.replace("< 0", "<= 0"), False),
        ("impls/lockstep/norms.py", "def norm(x): return abs(x)", False),
        ("impls/lockstep/rows.py", "ROWS = 2", True),
        ("harness/tasks/toy/report.py", "VERDICT = 2", True),
    ],
    ids=["a sentence", "a rule", "a module it imports", "another module", "report"],
)
def test_a_digest_changes_with_what_computes_the_run(
    file: str, text: str, same: bool, tmp_path: Path
) -> None:
    sources = {
        "harness/tasks/toy/task.py": TRAINING,
        "harness/tasks/toy/report.py": "VERDICT = 1",
        "impls/lockstep/norms.py": "def norm(x): return x",
        "impls/lockstep/rows.py": "ROWS = 1",
    }
    digests = []
    for name, changed in (("before", sources), ("after", {**sources, file: text})):
        for each, source in changed.items():
            path = tmp_path / name / each
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, "utf-8")
        digests.append(code_digest("toy", "pytorch", tmp_path / name))
    assert (digests[0] == digests[1]) == same


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
