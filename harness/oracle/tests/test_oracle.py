"""The oracle: cases are drawn, recorded, compared and reported.

A script of a shell stands for the interpreter of the originals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.oracle import command
from harness.oracle.distances import distances
from harness.oracle.live.cases import array, encoded
from harness.oracle.random_cases import DRAWN, draw_cases
from harness.oracle.report import ProgramRow, Report, judged, read_report
from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.families import BY_FAMILY
from harness.parity.replay import settled_before

INF = float("inf")
VERSIONS = {"tensorflow": "1.15.5"}
RAISES = {"expected": {"raises": "ValueError"}, "note": "as told"}


def stand_in(folder: Path, result: Any) -> Path:
    """Make a script that answers each case with the same result."""
    python = folder / "python"
    python.write_text(
        f"#!/bin/sh\necho '{json.dumps(VERSIONS)}'\n"
        f"while read -r line; do echo '{json.dumps(result)}'; done\n"
    )
    python.chmod(0o755)
    return python


def golden(folder: Path, expected: Any) -> Path:
    """Write a folder with one recorded case."""
    inputs = {"optimizer": {"name": "RMSProp"}, "variables": []}
    case = {"id": "m-0", "kind": "dense", "inputs": inputs, "expected": expected}
    content = {"format": 1, "family": "multitask", "cases": [case]}
    (folder / "golden").mkdir()
    (folder / "golden/multitask.json").write_text(json.dumps(content))
    return folder / "golden"


# -- comparing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "got", "ulp"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 2.000000238418579], 1.0),
        ([1e-8, 2.0], [2e-8, 2.0], 4.19e-2),
        (0.0, -0.0, 0.0),
        (["nan", "-inf"], [float("nan"), "-inf"], 0.0),
        (["inf", 1.0], ["-inf", 1.0], INF),
        (1.0, "nan", INF),
        ([1.0, 2.0], [1.0], INF),
        ([], [], 0.0),
        (3, 3.0, INF),
        (True, 1, INF),
        (None, 1.0, INF),
        ("at 2.0", "at 2.000000238418579", 1.0),
        ("at 2.0", "by 2.0", INF),
        ("at 2.0", "at 2.0 3.0", INF),
        ({"a": 1.0}, {"b": 1.0}, INF),
        ([{"b": 1}], [], INF),
        ({"half": 1.0}, {"half": 1.001}, 1.0),
    ],
    ids=str,
)
def test_values_are_equal_or_measured(recorded: Any, got: Any, ulp: float) -> None:
    found = [one for one, _ in distances(recorded, got, "", frozenset({"half"}))]
    assert max(found, default=0.0) == pytest.approx(ulp, rel=0.03)


@pytest.mark.parametrize(
    ("optimizer", "got", "status"),
    [
        ("RMSProp", {"x": 2.0, "more": 1}, "identical"),
        ("RMSProp", {"x": 2.0000005}, "listed"),
        ("Momentum", {"x": 2.0000005}, "different"),
        ("RMSProp", {"x": 2.1}, "different"),
        ("RMSProp", {"raises": "ValueError"}, "error"),
    ],
)
def test_only_what_is_listed_may_differ(optimizer: str, got: Any, status: str) -> None:
    inputs = {"optimizer": {"name": optimizer}}
    case = Case("multitask", "m-0", "dense", inputs, {"x": 2.0})
    row = judged(case, {"expected": got, "note": "a message"})
    assert row.status == status
    assert Report(cases=[row]).failed == (status in ("different", "error"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_written_reads_back_to_the_bit(dtype: str) -> None:
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    values[0] = [np.nan, -np.inf, np.finfo(dtype).smallest_subnormal, -0.0]
    back = array(json.loads(json.dumps(encoded({"w": values})))["w"], dtype)
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(values))


# -- replaying -------------------------------------------------------------------------


@pytest.mark.parametrize("raised", ["ValueError", "TypeError"])
def test_what_the_originals_print_becomes_a_report(
    raised: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = stand_in(tmp_path, RAISES)
    monkeypatch.setattr(command, "oracle_python", lambda: python)
    cases, path = golden(tmp_path, {"raises": raised}), tmp_path / "new/report.json"
    failed = command.replay(cases, ["multitask"], (), False, path)
    assert failed == (raised == "TypeError")
    report = read_report(path)
    assert report is not None and report.environment == VERSIONS
    assert [row.status for row in report.cases] == ["error" if failed else "identical"]


def test_a_replay_that_ends_early_is_an_error(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{}'\necho out of memory >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(HarnessError, match="got 0, then exit status 3, out of memory"):
        command.write_cases(tmp_path, "multitask", 2, 0, python)
    assert not list(tmp_path.glob("*.json"))


def test_wrong_arguments_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "oracle_python", lambda: tmp_path / "none")
    with pytest.raises(HarnessError, match="did you mean 'multitask'"):
        command.replay(GOLDEN, ["multitusk"], (), False, None)
    with pytest.raises(HarnessError, match="did you mean 'cluster'"):
        command.replay(GOLDEN, (), ["clutser"], False, None)
    with pytest.raises(HarnessError, match="--golden: expected a folder of your own"):
        command.record_cases(GOLDEN, ["agn"], 1, 0)
    with pytest.raises(HarnessError, match=r"expected one of .*agn.*novograd"):
        command.record_cases(tmp_path, ["novograd"], 1, 0)


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "oracle/report.json"
    program = ProgramRow(name="p", status="identical", ulp=0.5, exchanged=INF)
    report = Report(environment=VERSIONS, programs=[program])
    report.write(path)
    assert read_report(path) == report
    path.write_text('{"cases": [{"id": 1}]}')
    with pytest.raises(HarnessError, match=r"report\.json: expected a report"):
        read_report(path)


# -- fresh cases -----------------------------------------------------------------------


@pytest.mark.parametrize("family", DRAWN)
def test_a_case_depends_on_its_seed_family_and_number_alone(family: str) -> None:
    first, second, *_ = draw_cases(family, 4, 5)
    assert list(draw_cases(family, 2, 5)) == [first, second]
    assert first["inputs"] != second["inputs"]
    assert next(draw_cases(family, 1, 6))["inputs"] != first["inputs"]


@pytest.mark.filterwarnings("ignore:.*expected axes without dimension 0")
@pytest.mark.parametrize("family", DRAWN)
def test_what_is_drawn_can_be_replayed(family: str) -> None:
    for given in draw_cases(family, 40, 1):
        inputs = json.loads(json.dumps(given["inputs"]))
        case = Case(family, given["id"], given["kind"], inputs, {})
        driver = drivers.load("reference")
        assert settled_before(case, driver) is None
        assert len(list(BY_FAMILY[family].replay(case, driver))) >= 1


def test_files_are_written_in_the_form_that_parity_reads(tmp_path: Path) -> None:
    command.write_cases(tmp_path, "multitask", 3, 2, stand_in(tmp_path, RAISES))
    drawn = list(draw_cases("multitask", 3, 2))
    recorded = read_cases(tmp_path)
    assert [case.id for case in recorded] == [case["id"] for case in drawn]
    assert [case.inputs for case in recorded] == [case["inputs"] for case in drawn]
    assert {case.expected["raises"] for case in recorded} == {"ValueError"}
