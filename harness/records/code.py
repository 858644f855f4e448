"""The code of a run: its digest, and the commit of the checkout."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.errors import HarnessError
from harness.records.record import digest
from harness.tasks import TASKS

ROOT = Path(__file__).resolve().parent.parent.parent

CODE_FOLDERS = ("impls", "harness", "experiments")
"""Folders whose changes make a checkout dirty. Results do not: runs write there."""


@cache
def code_digest(task: str, backend: str, root: Path = ROOT) -> str:
    """Return sixteen hexadecimal digits of the code that a task runs on a backend.

    Comments, line breaks and docstrings do not change the digest. Nothing is imported,
    so no framework is needed to compare a record with the current code.
    """
    digests = {
        path.relative_to(root).as_posix(): _digest_of(path)
        for path in _files(task, backend, root)
    }
    return digest(digests, 16)


def _files(task: str, backend: str, root: Path) -> Iterator[Path]:
    """Yield the library's files for a backend, those of the task and shared ones."""
    tasks = root / "harness/tasks"
    folders = [root / "impls/lockstep", root / "harness/simulator", tasks]
    folders += [root / "impls/lockstep" / name for name in (backend, "tf/shared")]
    folders += [
        path
        for path in sorted(tasks.glob("*"))
        if path.name == task or path.name not in (*TASKS, "tests")
    ]
    yield root / "harness/timing.py"
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            if path.name != "report.py":
                yield path


@cache
def _digest_of(path: Path) -> str:
    tree = _WithoutDocstrings().visit(ast.parse(path.read_text("utf-8")))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


class _WithoutDocstrings(ast.NodeTransformer):
    """Remove statements that are only a text, such as docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        constant = isinstance(node.value, ast.Constant)
        return None if constant else node


def commit_of(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """Return the commit of a checkout and whether its code differs from it.

    Both are None without git, or where there is no repository.
    """
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *CODE_FOLDERS)
    if commit is None or changes is None:
        return None, None
    return commit.strip(), bool(changes.strip())


def require_committed(path: Path, root: Path = ROOT) -> None:
    """Raise HarnessError unless a file of a checkout is committed and unchanged."""
    status = _git(root, "status", "--porcelain", "--ignored", "--", str(path))
    if status != "":
        got = "no repository of Git" if status is None else "changes, or a new file"
        raise HarnessError(
            f"--publish: {path.name}: expected a file that is committed as it is, got "
            f"{got}; commit it before the runs, or else nobody can see that its "
            "predictions are older than the results."
        )


def _git(root: Path, *words: str) -> str | None:
    """Return what a git command prints about a checkout, or None if it fails."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
