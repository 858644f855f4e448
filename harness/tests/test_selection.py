"""The options that choose tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.selection import framework_of, touched_tests

PYTORCH = "impls/lockstep/pytorch/tests/test_a.py"


@pytest.mark.parametrize(
    ("path", "parameters", "framework"),
    [
        (PYTORCH, {}, "torch"),
        (PYTORCH, {"other": "tf"}, "torch"),
        ("impls/lockstep/keras3/tests/test_a.py", {}, "tensorflow"),
        ("impls/lockstep/tests/test_a.py", {"backend": "pytorch"}, "torch"),
        ("harness/tests/test_a.py", {"lane": "tf graph"}, "tensorflow"),
        ("harness/tests/test_a.py", {"a": "tf", "b": "pytorch"}, "none"),
        ("harness/tests/test_a.py", {"value": 3}, "none"),
    ],
)
def test_a_test_has_one_framework(path: str, parameters: Any, framework: str) -> None:
    callspec = SimpleNamespace(params=parameters)
    item: Any = SimpleNamespace(path=Path("/root") / path, callspec=callspec)
    assert framework_of(item) == framework


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "impls/lockstep/norms.py": "",
        "impls/lockstep/clip.py": "from lockstep.norms import norm",
        "impls/lockstep/tests/test_clip.py": "from lockstep import clip",
        "impls/lockstep/tests/test_rate.py": "import math",
        "harness/tests/test_run.py": "from lockstep.clip import limit",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("impls/lockstep/norms.py", {"test_clip.py", "test_run.py"}),
        ("impls/lockstep/tests/test_rate.py", {"test_rate.py"}),
        ("docs/index.md", set()),
    ],
)
def test_a_change_touches_what_imports_it(
    checkout: Path, changed: str, touched: set[str]
) -> None:
    found = touched_tests([checkout / changed], checkout)
    assert {
        path.name for path in found or () if path.name.startswith("test_")
    } == touched


def test_a_change_of_what_any_test_may_read_touches_all(checkout: Path) -> None:
    assert touched_tests([checkout / "pyproject.toml"], checkout) is None
