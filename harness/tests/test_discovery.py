"""A module that is put into a folder is found there, and nothing else is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.discovery import modules_in
from harness.parity.cases import FAMILIES, GOLDEN
from harness.parity.families import BY_FAMILY


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "found_here"
    for path in ("__init__", "rows", "agn", "clipping/__init__", "clipping/larc"):
        file = folder / f"{path}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ((), ["agn", "clipping.larc", "rows"]),
        (("rows",), ["rows", "agn", "clipping.larc"]),
    ],
)
def test_modules_are_found_in_order(package: str, first, expected) -> None:
    names = [module.__name__ for module in modules_in(package, first)]
    assert names == [f"{package}.{name}" for name in expected]


def test_every_recorded_family_is_replayed_by_one_module() -> None:
    recorded = sorted(path.stem for path in GOLDEN.glob("*.json"))
    claimed = [
        family
        for module in modules_in("harness.parity.families")
        for family in module.FAMILIES
    ]
    assert sorted(claimed) == sorted(BY_FAMILY) == sorted(FAMILIES) == recorded
