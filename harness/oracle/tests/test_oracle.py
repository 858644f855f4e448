"""The oracle: Python 3.7 is found or missed, cases are drawn, recorded and judged.

A script of a shell stands for the interpreter of the originals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.oracle import command, environment
from harness.oracle.command import draw_cases, record_cases, write_cases
from harness.oracle.drawing.families import DRAWN
from harness.oracle.environment import find_python, oracle_python
from harness.oracle.live.compare import compare
from harness.oracle.live.golden import array, encoded
from harness.oracle.report import ProgramRow, Report, judged, read_report, write_report
from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case
from harness.parity.families import BY_FAMILY
from harness.parity.replay import settled_before

SAYS_37 = "echo True"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# -- the environment -------------------------------------------------------------------


@pytest.mark.parametrize("where", ["variable", "path", "pyenv", "home"])
def test_python_3_7_is_found(where: str, tmp_path: Path) -> None:
    places = {
        "variable": tmp_path / "named/python",
        "path": tmp_path / "bin/python3.7",
        "pyenv": tmp_path / "root/versions/3.7.16/bin/python3.7",
        "home": tmp_path / ".pyenv/versions/3.7.9/bin/python3.7",
    }
    variables = {
        environment.VARIABLE: str(places["variable"]),
        "PATH": str(tmp_path / "bin"),
        "PYENV_ROOT": str(tmp_path / "root"),
        "HOME": str(tmp_path),
    }
    assert find_python(variables) is None
    script(places[where], SAYS_37)
    assert find_python(variables) == places[where]


def test_a_shim_of_another_python_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "bin/python3.7", "echo False")
    right = script(tmp_path / "root/versions/3.7.1/bin/python3.7", SAYS_37)
    variables = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "root")}
    assert find_python(variables) == right


def test_an_environment_is_made_once_for_a_recipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python, made = script(tmp_path / "python3.7", SAYS_37), list[Path]()
    monkeypatch.setenv(environment.VARIABLE, str(python))
    monkeypatch.setattr(
        environment, "_build", lambda *paths: made.append(script(paths[2], SAYS_37))
    )
    home = tmp_path / "oracle"
    oracle_python(home)
    oracle_python(home)
    assert len(made) == 1
    (home / "stamp").write_text("of another recipe")
    oracle_python(home)
    assert len(made) == 2


@pytest.mark.parametrize(
    "text", ["", "if [ $1 = -c ]; then echo True; else exit 1; fi"]
)
def test_without_the_originals_nothing_is_replayed(
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Python 3.7 is missing, or TensorFlow 1.15 cannot be installed."""
    python = script(tmp_path / "bin/python3.7", text)
    for name in ("PYENV_ROOT", environment.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{python.parent}:/bin:/usr/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    home, report = tmp_path / "oracle", tmp_path / "report.json"
    monkeypatch.setattr(command, "oracle_python", lambda: oracle_python(home))
    assert command.replay(GOLDEN, ["multitask"], (), False, report) == 0
    (line,) = capsys.readouterr().out.splitlines()[-1:]
    assert line.startswith("oracle: skipped: ")
    assert not report.exists() and not (home / "stamp").exists()


# -- replaying -------------------------------------------------------------------------


def stands_for(monkeypatch: pytest.MonkeyPatch, python: Path) -> None:
    monkeypatch.setattr(command, "oracle_python", lambda: python)


def printing(path: Path, *lines: dict[str, Any], status: int = 0) -> Path:
    said = "\n".join(f"echo '{json.dumps(line)}'" for line in lines)
    return script(path / "python", f"{said}\nexit {status}")


HEAD = {"cases": 1, "environment": {"tensorflow": "1.15.5"}}
ROW = {"id": "a-0", "family": "a", "kind": "k", "source": "tensorflow"}
DIFFERENT = {**ROW, "status": "different", "compared": 3, "different": 1}


@pytest.mark.parametrize("status", ["identical", "different"])
def test_what_the_originals_print_becomes_a_report(
    status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = printing(tmp_path, HEAD, {**DIFFERENT, "status": status, "ulp": "inf"})
    stands_for(monkeypatch, python)
    path = tmp_path / "report.json"
    exit_status = command.replay(GOLDEN, ["multitask"], (), False, path)
    assert exit_status == (status == "different")
    report = read_report(path)
    assert report is not None and report.environment == HEAD["environment"]
    assert [row.status for row in report.cases] == [status]


@pytest.mark.parametrize("status", [0, 1])
def test_a_replay_that_ends_early_is_an_error(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stands_for(monkeypatch, printing(tmp_path, HEAD, status=status))
    with pytest.raises(HarnessError, match=["got 0 of 1", "status 1"][status]):
        command.replay(GOLDEN, ["multitask"], (), False, None)


@pytest.mark.parametrize(
    ("golden", "family", "program", "error"),
    [
        (GOLDEN, "multitusk", "cluster", "did you mean 'multitask'"),
        (GOLDEN, "multitask", "clutser", "did you mean 'cluster'"),
        (Path("missing"), "multitask", "cluster", "--golden: expected a folder"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_runs(
    golden: Path,
    family: str,
    program: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stands_for(monkeypatch, Path("it starts no interpreter"))
    with pytest.raises(HarnessError, match=error):
        command.replay(golden, [family], [program], False, None)


@pytest.mark.parametrize(
    ("optimizer", "ulp", "status"),
    [
        ("RMSProp", 2.0, "listed"),
        ("RMSProp", 5.0, "different"),
        ("RMSProp", "inf", "different"),
        ("Momentum", 0.25, "different"),
    ],
)
def test_only_what_is_listed_may_differ(
    optimizer: str, ulp: float | str, status: str
) -> None:
    row = judged({**DIFFERENT, "optimizer": optimizer, "ulp": ulp})
    assert row.status == status
    assert bool(row.reason) == (status == "listed")
    assert Report(cases=[row]).failed == (status != "listed")


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "oracle/report.json"
    bad = judged({**DIFFERENT, "ulp": "inf", "first": {"where": "steps/0"}})
    program = ProgramRow("p", "identical", 3, 0.5, float("inf"), "why")
    report = Report({"tensorflow": "1.15.5"}, [bad], [program])
    write_report(report, path)
    assert read_report(path) == report
    path.write_text('{"cases": [{"id": 1}]}')
    with pytest.raises(HarnessError, match=r"report\.json: expected a report"):
        read_report(path)


@pytest.mark.parametrize(
    ("recorded", "found", "ulp"),
    [
        ({"a": [1.0, 2.0]}, {"a": np.float32([1, 2])}, 0),
        ({"a": [1.0, 2.0]}, {"a": np.float32([1, 2.0000002])}, 1),
        ({"a": ["nan", "-inf"]}, {"a": np.float32([np.nan, -np.inf])}, 0),
        ({"a": ["inf", 1.0]}, {"a": np.float32([-np.inf, 1])}, np.inf),
        ({"a": [1.0]}, {"a": np.float32([np.nan])}, np.inf),
        ({"a": [-0.0]}, {"a": np.float32([0])}, 0),
        ({"a": [0.1]}, {"a": np.float64([0.1])}, np.inf),
        ({"a": [0.577]}, {"a": np.float16([0.577])}, 0),
        ({"a": [1.0, 2.0]}, {"a": np.float32([1])}, np.inf),
        ({"a": []}, {"a": np.zeros([0, 3], np.float32)}, 0),
        ({"a": 3}, {"a": np.int64(3)}, 0),
        ({"a": 3}, {"a": np.int64(4)}, np.inf),
        ({"a": True}, {"a": np.bool_(True)}, 0),
        ({"a": "ref"}, {"a": "resource"}, np.inf),
        ({"a": None}, {"a": np.float32(1)}, np.inf),
        ({"a": 1.0}, {}, np.inf),
        ({"a": [{"b": 1}]}, {"a": []}, np.inf),
        ({}, {"a": np.float32(1)}, 0),
    ],
    ids=str,
)
def test_the_live_comparison_follows_the_format(
    recorded: Any, found: Any, ulp: float
) -> None:
    worst = max((value.ulp for value in compare(recorded, found)), default=0.0)
    assert worst == pytest.approx(ulp)


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool"])
def test_what_is_written_reads_back_to_the_bit(dtype: str) -> None:
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    if "float" in dtype:
        tiny = np.finfo(dtype).smallest_subnormal
        values[0] = [np.nan, -np.inf, tiny, np.finfo(dtype).max]
        values[1, 0] = -0.0
    back = array(json.loads(json.dumps(encoded({"w": values})))["w"], dtype)
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(values))


ECHO = """while read -r line; do
    printf '%s' "${line%\\}}"; echo ', "expected": {"raises": "ValueError"}}'
done"""


def test_files_are_written_in_the_form_that_parity_reads(tmp_path: Path) -> None:
    write_cases(tmp_path, "multitask", 3, 2, script(tmp_path / "python", ECHO))
    content = json.loads((tmp_path / "multitask.json").read_text("utf-8"))
    assert (content["format"], content["family"]) == (1, "multitask")
    drawn = list(draw_cases("multitask", 3, 2))
    assert [case["id"] for case in content["cases"]] == [c["id"] for c in drawn]
    assert [case["inputs"] for case in content["cases"]] == [c["inputs"] for c in drawn]


def test_a_recording_that_ends_early_leaves_no_file(tmp_path: Path) -> None:
    text = "cat > /dev/null\necho out of memory >&2\nexit 3"
    python, folder = script(tmp_path / "python", text), tmp_path / "golden"
    folder.mkdir()
    with pytest.raises(HarnessError, match="status 3: out of memory"):
        write_cases(folder, "multitask", 2, 0, python)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "family", "error"),
    [
        (GOLDEN, "agn", "--golden: expected a folder of your own"),
        (FOUND, "agn", "--golden: expected a folder of your own"),
        (Path("fresh"), "novograd", r"expected one of .*agn.*novograd"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    folder: Path, family: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_for(monkeypatch, Path("it starts no interpreter"))
    with pytest.raises(HarnessError, match=error):
        record_cases(folder, [family], 1, 0)
