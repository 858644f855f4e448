"""Files whose tests take long begin first."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.order_of_tests import (
    LONG_FILES,
    ONE_PROCESS,
    ROOT,
    long_files_first,
    pytest_xdist_make_scheduler,
    unit_of,
)


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


def test_every_place_of_a_group_is_there_once() -> None:
    places = [place for group in ONE_PROCESS for place in group]
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert len(set(places)) == len(places)


CHANGED = re.compile("shared: Callable|TWO_" + "DEVICES|printed_by")
"""In files that use processes which change TensorFlow for good."""
SHARED = re.compile("elsewhere: " + "Callable|processes: " + "Processes")


def test_files_that_use_the_same_processes_stay_together() -> None:
    users: dict[str, set[str]] = {"changed": set(), "unchanged": set()}
    for folder in ("harness", "impls"):
        for path in (ROOT / folder).rglob("test_*.py"):
            text, name = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
            if path != Path(__file__) and CHANGED.search(text):
                users["changed"].add(unit_of(f"{name}::test"))
            elif SHARED.search(text):
                users["unchanged"].add(unit_of(f"{name}::test"))
    assert users == {"changed": {ONE_PROCESS[1][0]}, "unchanged": {ONE_PROCESS[2][0]}}


def test_other_files_are_units_of_their_own() -> None:
    assert unit_of("harness/tests/test_a.py::test[b::c]") == "harness/tests/test_a.py"


@pytest.mark.parametrize(("dist", "made"), [("loadfile", True), ("worksteal", False)])
def test_units_are_handed_out_where_files_stay_together(dist: str, made: bool) -> None:
    pytest.importorskip("xdist")
    options = SimpleNamespace(tx=["2*popen"])
    config: Any = SimpleNamespace(
        option=options, getvalue=lambda name: {"dist": dist, "tx": options.tx}[name]
    )
    scheduler = pytest_xdist_make_scheduler(config, None)
    assert (scheduler is not None) == made
    if made:
        names = [f"{place}::test" for place in ONE_PROCESS[1]]
        assert {scheduler._split_scope(name) for name in names} == {ONE_PROCESS[1][0]}


def test_garbage_is_collected_but_not_searched_in_what_was_imported() -> None:
    assert gc.isenabled()
    # The modules of the standard library and of pytest alone are more.
    assert gc.get_freeze_count() > 10_000
