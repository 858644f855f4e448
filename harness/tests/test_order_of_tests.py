"""Files whose tests take long begin first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.order_of_tests import LONG_FILES, ROOT, long_files_first


def test_every_long_file_is_there_once() -> None:
    assert [name for name in LONG_FILES if not (ROOT / name).is_file()] == []
    assert len(set(LONG_FILES)) == len(LONG_FILES)


def test_long_files_begin_and_the_rest_keeps_its_order(tmp_path: Path) -> None:
    names = ["b.py", LONG_FILES[1], "a.py", LONG_FILES[0], "b.py", LONG_FILES[1]]
    items: list[Any] = [
        SimpleNamespace(path=tmp_path / name, number=number)
        for number, name in enumerate(names)
    ]
    long_files_first(items, tmp_path)
    assert [item.number for item in items] == [3, 1, 5, 0, 2, 4]
