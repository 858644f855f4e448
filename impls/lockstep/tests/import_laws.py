"""Which part of the package may import what: read from the list of backends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lockstep import registry

__all__ = ["FRAMEWORKS", "forbidden_imports", "imports_of", "sources_of"]

FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "ray"}

SHARED_BY = {"keras3": "lockstep.tf.shared"}
"""Backend -> the part of another backend that it may import."""


def sources_of(folder: Path) -> list[Path]:
    """Return the modules below a folder that are no tests."""
    paths = [
        path
        for path in folder.rglob("*.py")
        if "tests" not in path.relative_to(folder).parts
    ]
    assert paths, f"{folder} has no modules"
    return paths


def forbidden(part: str) -> set[str]:
    """Return what a part of the package must not import.

    A backend may import its own framework, but no other backend. The other parts may
    import neither, but for the part that is named for Ray.
    """
    backend = registry.BACKENDS.get(part)
    own = {part} if backend is None else set(backend.packages)
    others = {f"lockstep.{name}" for name in registry.BACKENDS if name != part}
    return {"harness"} | others | FRAMEWORKS - own


def forbidden_imports(folder: Path) -> list[str]:
    """Return the imports below the folder of a part that break its law."""
    laws, shared = forbidden(folder.name), SHARED_BY.get(folder.name)
    return [
        f"{path} imports {name}"
        for path in sources_of(folder)
        for name in imports_of(path)
        if any(_inside(name, law) for law in laws)
        if shared is None or not _inside(name, shared)
    ]


def imports_of(path: Path) -> Iterator[str]:
    """Yield the names of what a file imports, from anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
