"""Which recorded cases and tests are nearest to a module, nearest first.

They are run for a mutant whose function no case and no test enters.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.mutation.mutant import ROOT, module_name, source_of
from harness.parity.cases import FAMILIES as ALL

__all__ = ["FAMILIES", "Check", "nearest_checks"]

STEP = ("optimize_loss", "regularization_loss")
FAMILIES: Mapping[str, Sequence[str]] = {
    "clipping": (
        "clip_by_global_norm",
        "larc",
        "variable_clipping",
        "multitask_clip",
        "optimize_loss",
    ),
    "optimizers": ("base_optimizers", "novograd", "multitask", "optimize_loss"),
    "scaling": (
        "loss_scale_fixed",
        "loss_scale_dynamic",
        "auto_loss_scaler_backoff",
        "auto_loss_scaler_logmax",
        "mixed_precision_wrapper",
    ),
    "masters": ("mixed_precision_wrapper", "regularization_loss"),
    "workers": ("agn",),
    "schedules": ("lr_policies", "optimize_loss"),
    "step": STEP,
    "multitask": ("multitask", "multitask_clip"),
}
"""Folder or module of a backend -> the families of cases that it was written for."""

EXAMPLES = (
    "impls/lockstep/tests/test_docstrings.py::test_examples_give_what_they_say[{}]"
)
"""The test of the examples in a module's docstrings."""

SIGNATURES = "harness/nets/tests/test_frozen.py::test_signatures_are_as_frozen[{}]"
"""The test of a backend's public signatures, defaults of arguments included."""

SHARED = (
    "impls/lockstep/docstrings/tests/test_documented.py",
    "impls/lockstep/tests/test_same_errors.py",
    "impls/lockstep/tests/test_strict_names.py",
    "impls/lockstep/ray/tests/test_backends.py",
    "harness/composition/tests/test_nesting.py",
    "harness/composition/tests/test_variables.py",
    "harness/composition/tests/test_larc.py",
)
"""Tests that are the same for all backends; a backend's have its name in theirs."""

ALSO = {"base": "step", "masters": "scaling", "scaling": "masters", "workers": "step"}
"""Folder of a backend -> another one whose tests watch it, such as a step's numbers."""

FOR_ALL = "base"
"""Folder of the tests of what all wrappers of a backend have."""

SHARED_FOLDER = "shared"
"""Folder of a backend that has folders by capability, as the backend itself has."""

THOROUGH = ("reference",)
"""Backends whose whole suite is so fast that all of it may run for a mutant."""


@dataclass(frozen=True)
class Check:
    """Cases or tests that run together.

    Attributes:
        kind: "case" or "test".
        names: families of recorded cases, or single ones as ``MODE ID``; files of tests
            in the checkout, or single ones as pytest names them.
        keyword: run only tests that have it in their name; all if it is empty.
    """

    kind: str
    names: Sequence[str]
    keyword: str = ""


def nearest_checks(path: str) -> list[Check]:
    """Return what to try on the mutants of a module, in this order.

    Near are the families that the folder was written for, the examples in the module's
    docstrings, the test of public signatures, and the backend's tests that lie in the
    folder of the same name, watch all wrappers, or import the module or a name of it.
    Tests named after the module come first, then those of its folder. Then follow the
    tests that all backends share, on the reference all its other tests and at last,
    because they take the longest time, all other cases.
    """
    backend, *folders = Path(path).with_suffix("").parts[2:]
    module = module_name(path)
    home = ROOT / "impls" / "lockstep" / backend / "tests"
    room = folders[1] if folders[0] == SHARED_FOLDER else folders[0]
    stem = folders[-1]
    importing = _importing(home)
    names = {module, *(f"lockstep.{backend}.{name}" for name in _public_names(path))}
    near = {
        file
        for file, modules in importing.items()
        if file.parent.name in (room, ALSO.get(room), FOR_ALL)
        or file.stem == f"test_{room}"
        or names & modules
    }

    def distance(file: Path) -> tuple[bool, bool, Path]:
        return stem not in file.stem, file.parent.name != room, file

    ordered = sorted(near, key=distance)
    examples = [EXAMPLES.format(module)] if ">>> " in source_of(path) else []
    others = sorted(importing.keys() - near) if backend in THOROUGH else []
    signatures = SIGNATURES.format(backend)
    first = FAMILIES.get(room, ())
    checks = (
        Check("case", first),
        Check("test", [*examples, signatures, *_relative(ordered)]),
        Check("test", SHARED, backend),
        Check("test", _relative(others)),
        Check("case", [family for family in ALL if family not in first]),
    )
    return [check for check in checks if check.names]


def _relative(paths: Sequence[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def _public_names(path: str) -> set[str]:
    """Return what a module lists in ``__all__``."""
    for node in ast.parse(source_of(path)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@functools.cache
def _importing(home: Path) -> Mapping[Path, set[str]]:
    """Return the modules that each file of tests imports."""
    imports: dict[Path, set[str]] = defaultdict(set)
    for path in sorted(home.rglob("test_*.py")):
        imports[path].update(_imported(ast.parse(path.read_text("utf-8"))))
    return imports


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules in import statements, and what could be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
