"""The code of a run: digests of the modules that it imported, and the commit.

A module's digest is computed from its syntax tree without docstrings and positions. So
comments, line breaks and the version of Python do not change it. It is computed from
the source, so whether a record's code is current can be checked without a framework.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
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
"""Packages that affect the numbers of a run -> their folder in the checkout."""

NAMING_ONLY = ("lockstep._version", "harness.tasks")
"""Modules that contain a version and the names of tasks. They change no number."""

DOCSTRINGS = "lockstep.docstrings"
"""The module that completes docstrings. It changes no number either."""

CODE_FOLDERS = ("impls", "harness", "experiments")
"""Folders whose changes make a checkout dirty. Results do not: runs write there."""


class Sources:
    """The modules of a checkout, each read once.

    A worker asks for a digest soon after a module was imported. Later changes of the
    file were not part of the run.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._digests: dict[str, str | None] = {}

    def digest(self, module: str) -> str | None:
        """Return sixteen hexadecimal digits, or None if there is no such module."""
        if module not in self._digests:
            self._digests[module] = self._read(module)
        return self._digests[module]

    def of(self, modules: Iterator[str]) -> dict[str, str]:
        """Return the digests of the modules that have a source."""
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


@cache
def source_digest(source: str) -> str:
    """Return sixteen hexadecimal digits of a module's source.

    A source that does not parse gets the digest of its text. Every page compares the
    same modules with its records, and parsing them takes seconds, so it is done once.
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
    """Yield our modules that this process imported, without those of other tasks."""
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
    """Raise unless a file of a checkout is committed and unchanged.

    Raises:
        HarnessError: it is not, or git cannot tell.
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
    """Return what a git command prints about a checkout, or None if it fails."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _canonical(node: Any) -> str:
    """Return a syntax tree as text, without positions, docstrings and empty fields.

    ``ast.dump`` differs between versions of Python. This text does not: a field that a
    new version adds is empty in code that does not use it.
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
    """Whether a statement is only a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
