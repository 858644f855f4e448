"""Which tests run: the options ``--framework`` and ``--changed``, the mark ``sample``.

``--framework torch``, ``tensorflow`` or ``none`` chooses the tests of one framework, so
that a process imports no other. Each test belongs to one of the three: by its folder
in ``impls``, else by the backend among its parameters, else to ``none``.

``@pytest.mark.sample(3)`` leaves three of a function's cases for each framework, spread
evenly, in the default run. The others are marked ``slow``.

``--changed`` chooses the test files that a change touches: those that changed since the
branch left ``main``, or that import a changed module, directly or through others.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = ("torch", "tensorflow", "none")
FOLDERS = {"pytorch": "torch", "tf": "tensorflow", "keras3": "tensorflow"}
OF_PAGES = (".md", ".css", ".js", ".svg")
"""Endings of files that only the tests of the site read."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    parser.addoption(
        "--framework", choices=FRAMEWORKS, help="only the tests of this framework"
    )
    parser.addoption(
        "--changed", action="store_true", help="only the tests that a change touches"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark what samples leave out, and deselect what the options do not choose."""
    leave_samples(items)
    chosen = list(items)
    framework = config.getoption("--framework")
    if framework:
        chosen = [item for item in chosen if framework_of(item) == framework]
    if config.getoption("--changed"):
        touched = touched_tests(changed_files(), ROOT)
        chosen = [i for i in chosen if touched is None or i.path in touched]
    if len(chosen) < len(items):
        kept = set(map(id, chosen))
        config.hook.pytest_deselected(items=[i for i in items if id(i) not in kept])
        items[:] = chosen


def leave_samples(items: list[pytest.Item]) -> None:
    """Mark cases of sampled test functions as slow, but for some of each framework."""
    functions: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("soak"):
            name = item.nodeid.partition("[")[0]
            functions.setdefault((name, framework_of(item)), []).append(item)
    for cases in functions.values():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        (count,) = mark.args
        kept = {k * len(cases) // count for k in range(count)}
        for position, item in enumerate(cases):
            if position not in kept:
                item.add_marker(pytest.mark.slow)


def framework_of(item: pytest.Item) -> str:
    """Return the framework of a test."""
    parts = item.path.parts
    if "impls" in parts:
        folder = parts[parts.index("lockstep") + 1]
        if folder in FOLDERS:
            return FOLDERS[folder]
    callspec = getattr(item, "callspec", None)
    words = (
        [str(value).split() for value in callspec.params.values()] if callspec else []
    )
    found = {FOLDERS[word] for each in words for word in each if word in FOLDERS}
    return found.pop() if len(found) == 1 else "none"


def changed_files() -> list[Path]:
    """Return the files that differ from where the branch left ``main``."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    known = git("for-each-ref", "--format=%(refname:short)", "refs/heads/main")
    (base,) = git("merge-base", *known, "HEAD") if known else ["HEAD"]
    names = git("diff", "--name-only", base)
    names += git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in names]


def touched_tests(changed: list[Path], root: Path) -> set[Path] | None:
    """Return the test files that a change touches; None if it may touch all of them."""
    tops = root / "impls", root / "harness"
    code = {p for p in changed if p.suffix == ".py" and {*p.parents} & {*tops}}
    others = {path for path in changed if path.suffix not in OF_PAGES} - code
    if others or any(path.name == "conftest.py" for path in code):
        return None
    files = [path for top in tops for path in top.rglob("*.py")]
    # With those that were deleted, because what imports them breaks.
    module = {name_of(path, root): path for path in {*files, *code}}
    users: dict[Path, set[Path]] = {}
    for path in files:
        for name in imports_of(path):
            if name in module:
                users.setdefault(module[name], set()).add(path)
    touched, waiting = set[Path](), [*code]
    while waiting:
        path = waiting.pop()
        if path not in touched:
            touched.add(path)
            waiting.extend(users.get(path, ()))
    return touched


def name_of(path: Path, root: Path) -> str:
    """Return the name by which a file is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[1:] if parts[0] == "impls" else parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path: Path) -> Iterator[str]:
    """Yield the names of all modules that a file may import."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: k + 1]) for k in range(len(parts)))
