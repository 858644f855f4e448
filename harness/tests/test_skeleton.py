"""The smallest backend: registered, imported and replayed as CONTRIBUTING.md says.

Its files lie in ``skeleton/`` as they would in the checkout. They are found there while
a test runs, and at no other time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lockstep
from harness.parity import drivers
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.replay import replay
from harness.tests.test_contributing import section
from lockstep import messages, registry
from lockstep.interface import EXPORTS
from lockstep.messages.errors import (
    MalformedPairsError,
    MissingFrameworkError,
    NotAnOptimizerError,
)
from lockstep.tests.import_laws import forbidden_imports

FILES = Path(__file__).parent / "skeleton"
NAME = "skeleton"

ENTRY = registry.Backend(
    name=NAME,
    framework="numpy",
    extra="numpy",
    modes=("eager",),
    colors=("#444444", "#bbbbbb"),
    marker="v",
)

PACKAGES = {
    lockstep: "impls/lockstep",
    messages: "impls/lockstep/messages",
    drivers: "harness/parity/drivers",
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the skeleton, and let its modules be found beside the others."""
    monkeypatch.setitem(registry.BACKENDS, NAME, ENTRY)
    for package, folder in PACKAGES.items():
        path = [*package.__path__, str(FILES / folder)]
        monkeypatch.setattr(package, "__path__", path)
    yield
    for name in [name for name in sys.modules if NAME in name.split(".")]:
        if name.startswith(("lockstep.", "harness.parity.")):
            del sys.modules[name]
    for package in PACKAGES:
        vars(package).pop(NAME, None)


@pytest.fixture(params=[False, True], ids=["default", "strict"])
def names(request: pytest.FixtureRequest) -> ModuleType:
    return registry.load(NAME, request.param)


def test_it_exports_only_names_that_every_backend_has(names: ModuleType) -> None:
    assert {*names.__all__} - {"Variable"} < {*EXPORTS}
    assert all(hasattr(names, name) for name in names.__all__)


def test_its_imports_point_one_way() -> None:
    assert forbidden_imports(FILES / "impls/lockstep" / NAME) == []
    assert forbidden_imports(FILES / "impls/lockstep/messages") == []


def test_no_other_backend_may_import_it(tmp_path: Path) -> None:
    (tmp_path / "pytorch").mkdir()
    (tmp_path / "pytorch" / "rule.py").write_text(f"import lockstep.{NAME}.multitask")
    assert len(forbidden_imports(tmp_path / "pytorch")) == 1


def test_without_its_framework_the_import_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: False)
    remedy = r"pip install 'lockstep-optimizers\[numpy\]'"
    with pytest.raises(MissingFrameworkError, match=remedy):
        __import__(f"lockstep.{NAME}")


def test_a_recorded_case_has_the_recorded_bits() -> None:
    (case,) = (c for c in read_cases(GOLDEN) if c.id == "multitask-p-000")
    with closing(drivers.load(NAME)) as driver:
        row = replay(case, driver)
    assert (row.backend, row.mode, row.status) == (NAME, "eager", "passed")
    assert row.max_ulp == row.max_ulp_raw == 0.0


@pytest.mark.parametrize(
    ("gradient", "skipped"),
    [([0.0, -0.0], ("w",)), ([0.0, np.nan], ()), ([0.0, 1e-40], None)],
    ids=["zeros", "NaN", "subnormal"],
)
def test_strict_takes_subnormals_for_zeros(
    names: ModuleType, gradient: list[float], skipped: tuple[str, ...] | None
) -> None:
    wrapper = names.MultitaskOptimizerWrapper(names.GradientDescentOptimizer(0.5))
    variable = names.Variable("w", np.ones(2, np.float32))
    wrapper.apply_gradients([(np.float32(gradient), variable)])
    if skipped is None:
        skipped = ("w",) if names.__name__.endswith(".strict") else ()
    assert wrapper.last_step.skipped == skipped


def test_a_tool_that_it_lacks_fails_its_cases() -> None:
    case = next(c for c in read_cases(GOLDEN, ["multitask"]) if c.optimizer == "Adam")
    with closing(drivers.load(NAME)) as driver:
        assert "AdamOptimizer" in replay(case, driver).reason


def test_a_mistake_of_its_user_is_one_sentence(names: ModuleType) -> None:
    descent = names.GradientDescentOptimizer(0.5)
    with pytest.raises(MalformedPairsError, match=r"Variable\), got ndarray; put"):
        descent.apply_gradients([(np.ones(2), np.ones(2))])
    with pytest.raises(NotAnOptimizerError, match="skeleton optimizer, got float"):
        names.MultitaskOptimizerWrapper(0.5)


def recipe() -> set[str]:
    """Return the modules that the recipe makes, as patterns of their paths."""
    paths = re.findall(r"`([^`\s]*\bNAME\b[^`\s]*\.py)`", section("Add a backend"))
    return {path.replace("NAME", NAME).replace("CAPABILITY", "*") for path in paths}


def test_its_files_are_those_of_the_recipe() -> None:
    files = {path.relative_to(FILES) for path in FILES.rglob("*.py")}
    patterns = recipe()
    assert [f for f in files if not any(f.match(p) for p in patterns)] == []
    assert [p for p in patterns if not any(f.match(p) for f in files)] == []
