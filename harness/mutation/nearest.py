"""The recorded cases and tests nearest to a module, nearest first.

They are run for a mutant whose function is not entered by any case or test.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.mutation.mutant import ROOT, module_name, source_of
from harness.parity.cases import FAMILIES

NEAR: Mapping[str, Sequence[str]] = {
    "agn": ("agn",),
    "agn_center": ("agn",),
    "clipping": ("multitask_clip", "clip_by_global_norm", "optimize_loss"),
    "larc": ("larc", "optimize_loss"),
    "loss_scales": (
        "loss_scale_fixed",
        "loss_scale_dynamic",
        "auto_loss_scaler_backoff",
        "auto_loss_scaler_logmax",
    ),
    "loss_scaling": ("loss_scale_fixed", "loss_scale_dynamic"),
    "lr_policies": ("lr_policies", "optimize_loss"),
    "mixed_precision": ("mixed_precision_wrapper", "regularization_loss"),
    "multitask": ("multitask", "multitask_clip"),
    "novograd": ("novograd",),
    "optimize_loss": ("optimize_loss", "regularization_loss"),
    "optimizers": ("base_optimizers", "multitask", "optimize_loss"),
    "post_process": ("larc", "clip_by_global_norm", "optimize_loss"),
    "variable_clipping": ("variable_clipping",),
}
"""Module of a backend -> the families that exercise it, nearest first."""

EXAMPLES = (
    "impls/lockstep/tests/test_docstrings.py::test_examples_give_what_they_say[{}]"
)
"""The test of the examples in a module's docstrings."""

SIGNATURES = (
    "impls/lockstep/tests/test_signatures.py::test_signatures_are_those_of_the_file[{}]"
)
"""The test of a backend's public signatures, defaults of arguments included."""

SHARED = (
    "impls/lockstep/tests/test_same_errors.py",
    "impls/lockstep/tests/test_strict_names.py",
    "impls/lockstep/ray/tests/test_backends.py",
    "harness/tests/stacks/test_nesting.py",
    "harness/tests/stacks/test_variables.py",
    "harness/tests/stacks/test_larc.py",
)
"""Tests shared by all backends. The names of a backend's tests contain its name."""

ALSO = {"base": "step", "masters": "scaling", "scaling": "masters", "workers": "step"}
"""Folder of a backend -> another whose tests check it, such as a step's numbers."""

FOR_ALL = "base"
"""Folder of the tests for what all wrappers of a backend have in common."""

SHARED_FOLDER = "shared"
"""Folder of a backend that is divided by capability, like the backend itself."""

THOROUGH = ("reference",)
"""Backends whose whole test suite is fast enough to run for a mutant."""


@dataclass(frozen=True)
class Check:
    """Cases or tests that run together.

    Attributes:
        kind: "case" or "test".
        names: families of recorded cases, or single cases as ``MODE ID``; test files in
            the checkout, or single tests as pytest names them.
        keyword: run only tests with this in their names; empty means all.
    """

    kind: str
    names: Sequence[str]
    keyword: str = ""


def nearest_checks(path: str) -> list[Check]:
    """Return the checks for the mutants of a module, in the order to run them.

    Near checks are the families of the module, the examples in the module's
    docstrings, the test of public signatures, and some of the backend's tests: those in
    the folder of the same name, those for all wrappers, and those that import the
    module or one of its names. Tests named after the module come first, then those of
    its folder. Then follow the tests that all backends share and, on the reference, all
    its other tests. All other cases come last, because they take the longest time.
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
    first = NEAR.get(room, ())
    checks = (
        Check("case", first),
        Check("test", [*examples, signatures, *_relative(ordered)]),
        Check("test", SHARED, backend),
        Check("test", _relative(others)),
        Check("case", [family for family in FAMILIES if family not in first]),
    )
    return [check for check in checks if check.names]


def _relative(paths: Sequence[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def _public_names(path: str) -> set[str]:
    """Return the names in a module's ``__all__``."""
    for node in ast.parse(source_of(path)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@functools.cache
def _importing(home: Path) -> Mapping[Path, set[str]]:
    """Return the modules that each test file imports."""
    imports: dict[Path, set[str]] = defaultdict(set)
    for path in sorted(home.rglob("test_*.py")):
        imports[path].update(_imported(ast.parse(path.read_text("utf-8"))))
    return imports


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules in import statements, including possible ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
