"""The code of a run: digests of the modules that it imported, and the commit.

A module's digest is over its syntax tree without docstrings and positions. So neither a
comment nor a new line changes it, and no version of Python either. It is read from the
source: whether a record's code is still the current one is seen without a framework.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.record import digest
from harness.tasks import TASKS
from lockstep.messages.errors import sentence

__all__ = [
    "Sources",
    "code_digest",
    "commit_of",
    "imported",
    "require_committed",
    "source_digest",
]

ROOT = Path(__file__).resolve().parent.parent.parent

PACKAGES = {
    "lockstep": "impls",
    "harness.tasks": ".",
    "harness.simulator": ".",
    "harness.parity.cases": ".",
    "harness.timing": ".",
}
"""What the numbers of a run follow from, and where its sources lie in the checkout."""

NAMING_ONLY = ("lockstep._version", "harness.tasks")
"""Modules that name a version and tasks. Another name changes no number of a run."""

DOCSTRINGS = "lockstep.docstrings"
"""What completes docstrings. Another text changes no number either."""

CODE_FOLDERS = ("impls", "harness", "experiments")
"""What makes a checkout dirty; results do not, since runs are written there."""


class Sources:
    """The modules of a checkout, each read once.

    A worker asks for a module soon after it was imported. What is written to its file
    later is not what ran.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._digests: dict[str, str | None] = {}

    def digest(self, module: str) -> str | None:
        """Return sixteen hexadecimal digits; None if there is no such module."""
        if module not in self._digests:
            self._digests[module] = self._read(module)
        return self._digests[module]

    def of(self, modules: Iterator[str]) -> dict[str, str]:
        """Return the digests of those modules that have a source."""
        digests = {name: self.digest(name) for name in sorted(modules)}
        return {name: text for name, text in digests.items() if text is not None}

    def _read(self, module: str) -> str | None:
        package = next((name for name in PACKAGES if _within(module, name)), None)
        if package is None:
            return None
        path = self.root / PACKAGES[package] / module.replace(".", "/")
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                return source_digest(file.read_text("utf-8"))
        return None


def source_digest(source: str) -> str:
    """Return sixteen hexadecimal digits of a module's source.

    What does not parse has the digest of its text: it is other code, that is all.
    """
    try:
        text = _canonical(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        text = source
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_digest(modules: Mapping[str, str]) -> str:
    """Return the id of a state of the code: sixteen hexadecimal digits."""
    return digest(dict(modules), 16)


def imported(task: str) -> Iterator[str]:
    """Yield the modules of ours that this process has imported, but no other task's."""
    others = [f"harness.tasks.{name}" for name in TASKS if name != task]
    for module in list(sys.modules):
        ours = any(_within(module, package) for package in PACKAGES)
        if ours and not any(_within(module, other) for other in others):
            if module not in NAMING_ONLY and not _within(module, DOCSTRINGS):
                yield module


def commit_of(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """Return the commit of a checkout and whether its code differs from it.

    Both are None without git, or where there is no repository.
    """
    commit = git(root, "rev-parse", "HEAD")
    changes = git(root, "status", "--porcelain", "--", *CODE_FOLDERS)
    if commit is None or changes is None:
        return None, None
    return commit.strip(), bool(changes.strip())


def require_committed(path: Path, root: Path = ROOT) -> None:
    """Raise unless a file of a checkout stands in its commit as it is.

    Raises:
        HarnessError: it does not, or git cannot tell.
    """
    tracked = git(root, "ls-files", "--", str(path))
    changes = git(root, "status", "--porcelain", "--", str(path))
    if commit_of(root)[0] is None or tracked is None or changes is None:
        got = "no commit, since Git is not installed or this is no repository"
        remedy = "publish from a clone, or leave --publish out"
    elif tracked and not changes:
        return
    else:
        got = "changes that are not committed" if tracked else "a file that Git ignores"
        got = "a file that is not committed" if changes.startswith("??") else got
        remedy = "commit it before the runs"
    because = "or else nobody can see that its predictions are older than the results"
    expected = "a file that is committed as it is"
    text = sentence(f"--publish: {path.name}", expected, got, f"{remedy}, {because}")
    raise HarnessError(text)


def git(root: Path, *words: str) -> str | None:
    """Return what git prints about a checkout; None if it cannot say."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _canonical(node: Any) -> str:
    """Write a syntax tree without positions, docstrings and what is empty.

    ``ast.dump`` differs from one version of Python to the next; this does not, since a
    field that a version adds is empty in code that does without it.
    """
    if isinstance(node, list):
        return f"[{','.join(_canonical(item) for item in node if not _is_text(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        f"{name}={_canonical(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != [] and name not in ("kind", "type_comment")
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def _is_text(node: Any) -> bool:
    """Whether a statement is nothing but a text: a docstring, of whatever it is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
