"""The code of a run: one digest of the modules that it uses, and the commit.

The digest is computed from the syntax trees of the modules, without docstrings, without
the arguments of raised exceptions and without positions. So comments, line breaks,
sentences and the version of Python do not change it. Nothing is imported, so no
framework is needed to compare a record with the current code.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.record import digest
from harness.tasks import models_of
from lockstep import registry

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
"""Modules with a version, the names of tasks and texts. They change no number."""

CODE_FOLDERS = ("impls", "harness", "experiments")
"""Folders whose changes make a checkout dirty. Results do not: runs write there."""


@cache
def code_digest(task: str, backend: str, root: Path = ROOT) -> str:
    """Return sixteen hexadecimal digits of the code that a task runs on a backend.

    The modules are those that the task, its model for the backend and the backend
    import, at the top or inside a function. A module that is gone is left out.
    """
    home = "overhead" if task.endswith("_overhead") else task  # all benchmarks
    model = registry.find(backend).model_file
    waiting = [f"harness.tasks.{home}.task"]
    waiting.append(f"harness.tasks.{models_of(home)}.{model}")
    waiting.append(f"lockstep.{backend}")
    digests: dict[str, str] = {}
    while waiting:
        module = waiting.pop()
        places = [of for p, of in PACKAGES.items() if f"{module}.".startswith(f"{p}.")]
        if not places or module in digests:
            continue
        path = root / places[0] / module.replace(".", "/")
        files = path.with_name(f"{path.name}.py"), path / "__init__.py"
        if file := next(filter(Path.is_file, files), None):
            digests[module], imports = _read(file.read_text("utf-8"))
            waiting += [module.rpartition(".")[0], *imports]
    counted = {name: each for name, each in digests.items() if name not in NAMING_ONLY}
    return digest(counted, 16)


@cache
def _read(source: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a source, and the names that it imports."""
    imports: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A name may be a module of the package.
            imports += [f"{node.module}.{alias.name}" for alias in node.names]
            imports.append(node.module)
    return source_digest(source), tuple(imports)


def source_digest(source: str) -> str:
    """Return sixteen hexadecimal digits of a module's source."""
    text = _canonical(ast.parse(source))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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


def _canonical(node: Any) -> str:
    """Return a syntax tree as text, without positions, docstrings and empty fields.

    ``ast.dump`` differs between versions of Python. This text does not: a field that a
    new version adds is empty in code that does not use it.
    """
    if isinstance(node, list):
        items = [_canonical(item) for item in node if not _is_text(item)]
        return f"[{','.join(items)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        node = ast.Raise(node.exc.func, node.cause)
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
