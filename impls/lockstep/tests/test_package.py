"""The package as a whole: names, imports and the direction of its arrows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lockstep
from lockstep import registry
from lockstep.errors import MissingFrameworkError, UnknownNameError
from lockstep.interface import EXPORTS
from lockstep.pipeline import WRAPPERS
from lockstep.tests.original_signatures import SIGNATURES

SOURCES = Path(lockstep.__file__).parent
BACKENDS = sorted(registry.BACKENDS)
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "ray"}
SHARED_BY = {"keras3": "lockstep.tf.shared"}
"""Backend -> the part of another backend that it may import."""


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after ``code``."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    paths = f"import sys; sys.path[:0] = {[str(SOURCES.parent), *sys.path]!r}"
    script = f"{paths}\n{code}\n{show}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    ["import lockstep", "import lockstep.registry", "import lockstep.reference"],
)
def test_importing_imports_no_framework(code: str) -> None:
    assert not modules_after(code) & FRAMEWORKS


MODULES = [(name, False) for name in BACKENDS]
MODULES += [(name, True) for name in BACKENDS if registry.find(name).has_strict]


@pytest.mark.parametrize(("name", "strict"), MODULES)
def test_every_backend_exports_the_same_names(name: str, strict: bool) -> None:
    if not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    module = registry.load(name, strict)
    # A wrapper of ours may begin on one backend.
    ours = set(WRAPPERS) - set(SIGNATURES)
    assert set(EXPORTS) - ours <= set(module.__all__)
    assert not [export for export in module.__all__ if not hasattr(module, export)]
    if strict:
        assert module._clip_by_global_norm is module.clip_by_global_norm
        assert module._clip_gradients_by_norm is module.clip_gradients_by_norm


@pytest.mark.parametrize(("name", "strict"), MODULES)
def test_what_a_type_checker_reads_is_the_list_of_names(
    name: str, strict: bool
) -> None:
    file = "strict.py" if strict else "__init__.py"
    tree = ast.parse((SOURCES / name / file).read_text("utf-8"))
    imported = reexports(tree)
    backend = registry.find(name)
    assert imported <= set(backend.public_names(strict))
    names = dict.fromkeys(imported | defined(tree))
    assert set(backend.names_in(names, strict)) <= set(names)


def reexports(tree: ast.Module) -> set[str]:
    """Return the names that a module imports as themselves: ``import Name as Name``."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias for node in imports for alias in node.names]
    return {alias.name for alias in names if alias.asname == alias.name}


def defined(tree: ast.Module) -> set[str]:
    """Return the names of the classes, functions and variables of a module."""
    assigned = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    definitions = (ast.ClassDef, ast.FunctionDef)
    return {ast.unparse(target) for targets in assigned for target in targets} | {
        node.name for node in tree.body if isinstance(node, definitions)
    }


MEANT = {
    "pytroch": "pytorch",
    "torch": "pytorch",
    "tensorflow": "tf",
    "TensorFlow2": "tf",
    "keras": "keras3",
    "numpy": "reference",
}


@pytest.mark.parametrize("name", MEANT)
def test_an_unknown_backend_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean '{MEANT[name]}'"):
        registry.load(name)


ABSENT = """
import sys
sys.path[:0] = {path}
sys.modules.update(dict.fromkeys({packages}))
try:
    import lockstep.{name}
except ModuleNotFoundError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("name", [n for n in BACKENDS if registry.find(n).framework])
def test_importing_without_the_framework_is_one_sentence(name: str) -> None:
    backend = registry.find(name)
    path = [str(SOURCES.parent), *sys.path]
    code = ABSENT.format(path=path, packages=backend.packages, name=name)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"MissingFrameworkError lockstep.{name}: expected "
        f"{' and '.join(backend.packages)} to be installed, got no "
        f"{' and no '.join(backend.packages)}; run pip install "
        f"{' '.join(backend.packages)}.\n"
    )


def test_a_missing_framework_is_one_sentence_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: False)
    with pytest.raises(MissingFrameworkError, match="pip install tensorflow"):
        registry.load("tf")


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


PARTS = [*BACKENDS, "ray", "port"]


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_one_way(part: str) -> None:
    assert forbidden_imports(SOURCES / part) == []


def test_the_package_does_not_import_the_harness() -> None:
    imports = {name for path in sources_of(SOURCES) for name in imports_of(path)}
    assert not [name for name in imports if name.partition(".")[0] == "harness"]
