"""Digests of code: what changes what a module does changes them, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.records.code import (
    Sources,
    code_digest,
    commit_of,
    imported,
    require_committed,
)
from harness.records.code import source_digest as digest_of
from harness.records.files import read_code
from harness.records.store import Store

SOURCE = '''
"""A module."""
SIZE = 3
"""A constant."""

def double(x: int) -> int:
    """Return twice a number."""
    return 2 * x  # by two
'''

SAME = {
    "another docstring": SOURCE.replace("A module", "Another"),
    "a function's docstring": SOURCE.replace("Return twice", "Double"),
    "no docstring": SOURCE.replace('    """Return twice a number."""\n', ""),
    "a constant's docstring": SOURCE.replace("A constant.", "The size."),
    "a comment": SOURCE.replace("by two", "twice"),
    "another line": SOURCE.replace("\ndef", "\n\n\ndef"),
    "parentheses": SOURCE.replace("2 * x", "(2 * x)"),
}
OTHER = {
    "another number": SOURCE.replace("2 * x", "3 * x"),
    "a float": SOURCE.replace("2 * x", "2.0 * x"),
    "another operation": SOURCE.replace("2 * x", "2 + x"),
    "another name": SOURCE.replace("double", "twice"),
    "another argument": SOURCE.replace("x: int", "x: int = 0"),
    "nothing for a number": SOURCE.replace("SIZE = 3", "SIZE = None"),
    "what does not parse": SOURCE.replace("return", "retur"),
    "a text that is used": SOURCE.replace("SIZE = 3", 'SIZE = "3"'),
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_what_no_program_notices_leaves_the_digest(source: str) -> None:
    assert source != SOURCE
    assert digest_of(source) == digest_of(SOURCE)


@pytest.mark.parametrize("source", OTHER.values(), ids=OTHER.keys())
def test_what_a_program_notices_changes_the_digest(source: str) -> None:
    assert digest_of(source) != digest_of(SOURCE)


def test_the_digest_is_the_same_under_every_version_of_python() -> None:
    # As computed under 3.11, 3.12 and 3.13.
    assert digest_of(SOURCE) == "df2fca78d8fb1b93"


def test_a_file_that_is_changed_later_is_not_what_was_imported(tmp_path: Path) -> None:
    file = tmp_path / "impls" / "lockstep" / "norms.py"
    file.parent.mkdir(parents=True)
    file.write_text("A = 1\n")
    sources = Sources(tmp_path)
    before = sources.digest("lockstep.norms")
    file.write_text("A = 2\n")
    assert sources.digest("lockstep.norms") == before == digest_of("A = 1")
    assert Sources(tmp_path).digest("lockstep.norms") == digest_of("A = 2")
    assert Sources(tmp_path).digest("lockstep.absent") is None


def test_a_run_s_modules_are_ours_and_no_other_task_s() -> None:

    modules = Sources().of(imported("multitask_digits"))
    assert {
        "lockstep.messages.errors",
        "harness.tasks.multitask_digits.settings",
    } <= set(modules)
    assert not {"harness.tasks", "lockstep._version"} & set(modules)
    assert not any(name.startswith("harness.tasks.deep_digits") for name in modules)
    others = "numpy", "harness.records", "lockstep.docstrings"
    assert not any(name.startswith(others) for name in modules)
    assert code_digest(modules) == code_digest(dict(reversed(modules.items())))


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "-C", str(folder), *named, *words], check=True)


def test_a_checkout_is_dirty_when_code_differs_and_not_when_results_do(
    tmp_path: Path,
) -> None:
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


def test_what_is_published_stands_in_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "experiments" / "adam.toml"
    path.parent.mkdir()
    path.write_text("low = 0\n")
    for words, got in (
        (["init", "-q"], "no commit"),
        (["commit", "-q", "--allow-empty", "-m", "0"], "a file that is not committed"),
        (["add", "."], "changes that are not committed"),
    ):
        git(tmp_path, *words)
        with pytest.raises(HarnessError, match=rf"adam.toml: expected .*got {got}"):
            require_committed(path, tmp_path)
    git(tmp_path, "commit", "-q", "-m", "1")
    require_committed(path, tmp_path)
    path.write_text("low = -1\n")
    with pytest.raises(HarnessError, match=r"predictions are older than the results"):
        require_committed(path, tmp_path)
    path.write_text("low = 0\n")
    require_committed(path, tmp_path)
    (tmp_path / ".gitignore").write_text("*.md\n")
    (tmp_path / "x.md").write_text("")
    with pytest.raises(HarnessError, match=r"a file that Git ignores"):
        require_committed(tmp_path / "x.md", tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HarnessError, match=r"Git is not installed .* publish from a"):
        require_committed(path, tmp_path)


def test_a_shallow_clone_knows_its_commit(tmp_path: Path) -> None:
    test_a_checkout_is_dirty_when_code_differs_and_not_when_results_do(tmp_path)
    source = tmp_path.as_uri()
    git(tmp_path, "clone", "-q", "--depth", "1", source, str(tmp_path / "clone"))
    assert commit_of(tmp_path / "clone") == (commit_of(tmp_path)[0], False)


def test_without_git_or_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == (None, None)
    monkeypatch.setenv("PATH", "")
    assert commit_of() == (None, None)


def test_a_state_of_the_code_is_written_once_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "tf.code.jsonl"
    modules = {"lockstep.messages.errors": "0" * 16}
    for _ in range(2):
        with Store(tmp_path, "tf") as store:
            assert store.code(modules) == code_digest(modules)
    assert read_code(path) == {code_digest(modules): modules}
    assert len(path.read_text().splitlines()) == 1
    path.write_text(path.read_text().replace("errors", "terrors"))
    with pytest.raises(HarnessError, match=r"tf\.code\.jsonl, line 1: expected"):
        Store(tmp_path, "tf")


def test_a_digest_is_that_of_a_fresh_interpreter() -> None:
    code = "from harness.records.code import source_digest as d; print(d({!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code.format(SOURCE)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == digest_of(SOURCE)
