"""A record is stale if other code made it; a verification makes its group fresh."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.commands.listing import everything, print_everything
from harness.declarations import declare
from harness.errors import HarnessError
from harness.judgement.counted import counted_records
from harness.records.code import Sources
from harness.records.files import read_code
from harness.records.log import Log
from harness.records.record import Code, Outcome, Record, digest
from harness.records.staleness import Freshness, staleness_of
from harness.records.store import Store
from harness.records.verified import Verification, group_of, read_verified
from harness.tests.synthetic import record_of

EXPERIMENT = declare.find("absent_tasks")
RUNS = EXPERIMENT.runs("quick")
NORMS, ROWS = "lockstep.norms", "lockstep.rows"
CODE = Code(None, None, "")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with two modules."""
    folder = tmp_path / "checkout" / "impls" / "lockstep"
    folder.mkdir(parents=True)
    for name in ("norms", "rows"):
        (folder / f"{name}.py").write_text("SIZE = 1\n")
    return tmp_path / "checkout"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "results"


def current(checkout: Path) -> dict[str, str]:
    return Sources(checkout).of(iter((NORMS, ROWS)))


def change(checkout: Path, name: str, to: str) -> None:
    (checkout / "impls" / "lockstep" / f"{name}.py").write_text(to)


def publish(
    home: Path, checkout: Path, of: slice = slice(None), **changes: Any
) -> None:
    """Write records that the current code of a checkout made."""
    with Store(home, "tf") as store:
        code = Code(None, None, store.code(current(checkout)))
        for run in RUNS[of]:
            made = record_of(run, "tf", Outcome("ok"))
            told = {"scale": "quick", "command": "", "process": 0, "duration": 1.0}
            told |= {"start": "2026-01-02T03:04:05Z", "code": code, **changes}
            store.append(replace(made, **told))


def verify(home: Path, checkout: Path, record: Record, start: str) -> None:
    with Store(home, "tf") as store:
        name, device = group_of(record)
        code = Code("c0ffee", False, store.code(current(checkout)))
        rest = ("abcdabcd", record.seed, record.digest, "bits", start)
        store.verify(Verification(name, device, code, *rest))


def counted(home: Path, checkout: Path) -> tuple[int, int]:
    found = staleness_of(home, Sources(checkout))
    return found.records, found.stale


def test_records_are_fresh_until_a_module_changes_and_when_it_changes_back(
    home: Path, checkout: Path
) -> None:
    publish(home, checkout)
    assert counted(home, checkout) == (len(RUNS), 0)
    change(checkout, "rows", "SIZE = 2\n")
    found = staleness_of(home, Sources(checkout))
    assert (found.stale, found.modules) == (len(RUNS), (ROWS,))
    assert str(found) == (
        f"{len(RUNS)} of {len(RUNS)} records are stale, because these modules changed: "
        "lockstep.rows."
    )
    change(checkout, "rows", '"""Rows."""\nSIZE = 1  # again\n')
    assert counted(home, checkout) == (len(RUNS), 0)


def test_a_module_that_is_gone_has_changed(home: Path, checkout: Path) -> None:
    publish(home, checkout)
    (checkout / "impls" / "lockstep" / "rows.py").unlink()
    assert staleness_of(home, Sources(checkout)).modules == (ROWS,)


def test_the_code_of_schema_1_is_unknown_and_so_is_one_that_stands_nowhere(
    home: Path, checkout: Path
) -> None:
    publish(home, checkout, slice(0, 2))
    with Store(home, "pytorch") as store:
        store.append(record_of(RUNS[0], "pytorch", Outcome("ok")))
    found = staleness_of(home, Sources(checkout))
    assert (found.records, found.stale, found.unknown, found.modules) == (3, 1, 1, ())
    assert str(found).endswith("because the code that made them is unknown.")
    (home / "tf.code.jsonl").unlink()
    assert counted(home, checkout) == (3, 3)


def test_only_settled_records_that_count_are_counted(
    home: Path, checkout: Path
) -> None:
    publish(home, checkout, slice(0, 1))
    change(checkout, "rows", "SIZE = 2\n")
    publish(home, checkout, slice(1, 2), status="error")
    assert counted(home, checkout) == (1, 1)
    publish(home, checkout, slice(0, 1), supersedes="0" * 12)
    assert counted(home, checkout) == (1, 0)


def test_what_is_no_longer_declared_does_not_count(home: Path, checkout: Path) -> None:
    publish(home, checkout, slice(0, 3))
    assert len(counted_records(EXPERIMENT, home)) == 3
    fewer = {name: values[:1] for name, values in EXPERIMENT.vary.items()}
    declared = replace(EXPERIMENT, vary=fewer)
    assert [r.id for r in counted_records(declared, home)] == [RUNS[0].id]


def test_a_verification_makes_its_group_fresh_and_no_other(
    home: Path, checkout: Path
) -> None:
    publish(home, checkout)
    change(checkout, "rows", "SIZE = 2\n")
    record = record_of(RUNS[0], "tf", Outcome("ok"))
    group = [run for run in RUNS if run.config == RUNS[0].config]
    assert 1 < len(group) < len(RUNS)
    verify(home, checkout, record, "2026-01-03T00:00:00Z")
    assert counted(home, checkout) == (len(RUNS), len(RUNS) - len(group))
    other = replace(record, subject={**record.subject, "device": "cuda"})
    freshness = Freshness(home, "tf", Sources(checkout))
    assert not freshness.is_stale(record)
    assert freshness.is_stale(other)
    change(checkout, "norms", "SIZE = 2\n")
    found = staleness_of(home, Sources(checkout))
    assert (found.stale, found.modules) == (len(RUNS), (NORMS, ROWS))


def test_a_verification_says_nothing_of_later_records(
    home: Path, checkout: Path
) -> None:
    publish(home, checkout, slice(0, 1))
    change(checkout, "rows", "SIZE = 2\n")
    record = record_of(RUNS[0], "tf", Outcome("ok"))
    verify(home, checkout, record, "2026-01-03T00:00:00Z")
    change(checkout, "rows", "SIZE = 3\n")
    later = {"start": "2026-01-04T00:00:00Z", "supersedes": "0" * 12}
    publish(home, checkout, slice(0, 1), **later)
    change(checkout, "rows", "SIZE = 2\n")
    assert counted(home, checkout) == (1, 1)


LINE = Verification("0" * 12, "cpu", CODE, "e", 0, "r", "bits", "2026").as_json()
DAMAGES: dict[str, dict[str, Any]] = {
    "a missing key": {k: v for k, v in LINE.items() if k != "seed"},
    "an unknown key": LINE | {"host": "x"},
    "a text for a seed": LINE | {"seed": "0"},
    "an unknown comparison": LINE | {"comparison": "roughly"},
    "no code": LINE | {"code": None},
    "a number for a start": LINE | {"start": 2026},
}


@pytest.mark.parametrize("line", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_verification_is_named(line: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tf.verified.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(HarnessError, match=r"tf\.verified\.jsonl, line 2: expected"):
        read_verified(path)


BROKEN: dict[str, Callable[[Path], object]] = {
    "tf.jsonl": lambda path: path.write_text('{"id": "x"}\n'),
    "tf.code.jsonl": lambda path: path.write_text('{"id": "x", "modules": 3}\n'),
    "tf.verified.jsonl": lambda path: path.write_text("{]\n"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_list_goes_on_after_files_that_cannot_be_read(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "absent_tasks"
    folder.mkdir()
    (folder / "tf.jsonl").write_text("")
    BROKEN[name](folder / name)
    listed = everything(tmp_path)["experiments"]
    (entry,) = (each for each in listed if each["name"] == "absent_tasks")
    assert entry["published"]["records"] is None
    assert f"{name}, line 1: expected" in entry["published"]["problem"]
    assert entry["local"] == {"records": 0, "stale": 0}
    assert all(e is entry or e["published"]["records"] == 0 for e in listed)


def test_the_list_counts_records_and_stale_ones(
    home: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    publish(home / "absent_tasks", checkout, slice(0, 3))
    listed = everything(home)
    (entry,) = (e for e in listed["experiments"] if e["name"] == "absent_tasks")
    # The made-up modules are none of this checkout.
    assert entry["published"] == {"records": 3, "stale": 3}
    print_everything(listed, Console(width=200))
    assert "3 published records, 3 stale" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        {"id": "x"},
        {"id": digest({}, 16), "modules": {}, "host": "x"},
        {"id": digest([], 16), "modules": []},
        {"id": digest({NORMS: 3}, 16), "modules": {NORMS: 3}},
    ],
    ids=["none", "an unknown key", "a list", "numbers"],
)
def test_a_code_file_without_modules_is_named(home: Path, line: dict[str, Any]) -> None:
    with Log(home / "tf.code.jsonl") as log:
        log.append(line)
    with pytest.raises(HarnessError, match=r"tf\.code\.jsonl, line 1: expected"):
        read_code(home / "tf.code.jsonl")
