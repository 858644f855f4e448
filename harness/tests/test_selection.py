"""The options that choose tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.selection import framework_of, leave_samples

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


class Case:
    """A test item with marks."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = nodeid, list(marks)
        self.path = Path("harness/tests/test_a.py")

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


@pytest.mark.parametrize(
    ("count", "left"), [(1, "0"), (2, "02"), (3, "013"), (9, "01234")]
)
def test_a_sample_is_spread_over_the_cases(count: int, left: str) -> None:
    cases: list[Any] = [
        Case(f"test_a.py::test_it[{k}]", pytest.mark.sample(count)) for k in range(5)
    ]
    others: list[Any] = [Case("test_a.py::test_other[0]")]
    leave_samples([*cases, *others])
    assert not others[0].get_closest_marker("slow")
    kept = [c.nodeid[-2] for c in cases if not c.get_closest_marker("slow")]
    assert "".join(kept) == left
