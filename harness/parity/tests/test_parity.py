"""The parity command: distances, planning, decoding, verdicts and bad input."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.errors import HarnessError
from harness.parity import replay as replaying
from harness.parity import tables
from harness.parity.cases import FAMILIES, GOLDEN, Case, array, gradient, read_cases
from harness.parity.cases import Variable as Recorded
from harness.parity.command import Request, run_parity
from harness.parity.distance import distance
from harness.parity.families import BUILT
from harness.parity.plan import plan_backend
from harness.parity.replay import replay
from harness.parity.report import check_writable, write_report
from harness.parity.row import Row
from harness.processes import ROOT
from lockstep import registry
from lockstep.interface import Rows
from lockstep.spec.errors import UnknownNameError

# Distances


def single(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("got", "expected", "ulp", "raw"),
    [
        (single(1.0), single(1.0), 0, 0),
        (single(np.nextafter(np.float32(1), 2)), single(1.0), 1, 1),
        (single(-0.0), single(0.0), 0, 0),
        (single(np.nan), single(np.nan), 0, 0),
        (single(np.nan), single(1.0), math.inf, math.inf),
        (single(np.inf), single(-np.inf), math.inf, math.inf),
        (single(np.inf), single(3e38), math.inf, math.inf),
        (single(1e-45), single(-1e-45), 2, 2),
        (single(1.0, 1e-9), single(1.0, 0.0), 1e-9 / 2**-23, None),
        (single(1.0, dtype=np.float16), single(1.0009766, dtype=np.float16), 1, 1),
        (np.array(3), np.array(4), math.inf, math.inf),
        (np.array("absent"), np.array("absent"), 0, 0),
        (single(1.0), single(1.0, 2.0), math.inf, math.inf),
        (single(1.0, dtype=np.float64), single(1.0), math.inf, math.inf),
        (single(), single(), 0, 0),
    ],
)
def test_distances(got: Any, expected: Any, ulp: float, raw: float | None) -> None:
    found = distance(got, expected)
    assert found.ulp == pytest.approx(ulp)
    assert raw is None or found.raw == raw


# Decoding


def test_half_precision_is_rounded_before_it_is_widened() -> None:
    value = array(0.577, "float16")
    assert value.dtype == np.float16
    assert float(value) != 0.577


def test_strings_are_the_values_json_does_not_have() -> None:
    decoded = array(["inf", "-inf", "nan", -0.0], "float32")
    assert np.isposinf(decoded[0])
    assert np.isneginf(decoded[1])
    assert np.isnan(decoded[2])
    assert np.signbit(decoded[3])


def test_a_sparse_gradient_without_rows_keeps_its_trailing_dimensions() -> None:
    recorded = Recorded("t", array(0.0, "float32"), (4, 2))
    empty = gradient({"indices": [], "values": [], "dense_shape": [4, 2]}, recorded)
    assert isinstance(empty, Rows)
    assert empty.values.shape == (0, 2)


# Verdicts


def case(family: str, identifier: str) -> Case:
    return next(c for c in read_cases(GOLDEN, [family]) if c.id == identifier)


def changed(original: Case, **fields: Any) -> Case:
    inputs = {**original.inputs, **fields.pop("inputs", {})}
    expected = {**original.expected, **fields.pop("expected", {})}
    names = {"family": original.family, "id": original.id, "kind": original.kind}
    return Case(**{**names, **fields}, inputs=inputs, expected=expected)


MULTITASK = case("multitask", "multitask-p-003")


def judged(candidate: Case) -> Row:
    return replay(candidate, registry.host("reference"))


def test_an_unspoilt_case_passes() -> None:
    row = judged(MULTITASK)
    assert (row.status, row.max_ulp, row.first_divergence) == ("passed", 0.0, None)


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (changed(MULTITASK, family="momentum"), "cannot interpret the family"),
        (changed(MULTITASK, kind="dance"), "cannot interpret the kind 'dance'"),
        (changed(MULTITASK, inputs={"tempo": 3}), "cannot interpret the key 'tempo'"),
        (
            changed(MULTITASK, inputs={"optimizer": {"name": "Lion", "args": {}}}),
            "cannot interpret the optimizer 'Lion'",
        ),
        (
            changed(MULTITASK, inputs={"wrapper": "Ema(optimizer)"}),
            "cannot interpret the wrapper",
        ),
        (changed(MULTITASK, expected={"raises": "TypeError"}), "nothing was raised"),
    ],
)
def test_what_cannot_be_interpreted_fails(spoilt: Case, reason: str) -> None:
    row = judged(spoilt)
    assert row.status == "failed"
    assert reason in row.reason


def test_the_first_divergence_is_named_with_both_values() -> None:
    steps = json.loads(json.dumps(MULTITASK.expected["steps"]))
    steps[3]["slots"]["momentum"]["never"][1] += 0.5
    row = judged(changed(MULTITASK, expected={"steps": steps}))
    assert row.status == "failed"
    first = row.first_divergence
    assert first is not None
    assert (first.step, first.quantity) == (3, "slots/momentum/never")
    assert first.index == [1]
    assert "0x" in first.got
    assert "after step 4" in row.reason


def test_what_was_got_does_not_change_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = np.zeros(1, np.float32)

    class Counting:
        def replay(self, case: Case, host: Any) -> Any:
            for _ in range(2):
                live[:] += 1
                yield {"count": live}

        def expectations(self, case: Case) -> Any:
            yield {"count": single(1.0)}
            yield {"count": single(2.0)}

    monkeypatch.setitem(replaying.BUILT, "multitask", Counting())
    found = list(replaying.compare(MULTITASK, registry.host("reference")))
    assert [float(comparison.got[0]) for comparison in found] == [1, 2]


def test_a_quantity_that_the_backend_lacks_fails() -> None:
    steps = json.loads(json.dumps(MULTITASK.expected["steps"]))
    steps[0]["non_slots"] = {"beta1_power": 0.9}
    row = judged(changed(MULTITASK, expected={"steps": steps}))
    assert row.status == "failed"
    assert "got nothing" in row.reason


def test_every_family_of_the_format_is_answered() -> None:
    # The first case of each: some later ones exist in graphs only.
    first = {case.family: case for case in reversed(read_cases(GOLDEN))}
    rows = {family: judged(case) for family, case in first.items()}
    assert set(rows) == set(FAMILIES)
    assert {row.status for row in rows.values()} <= {"passed", "not_implemented"}


# Tables


def test_every_tolerance_and_every_excuse_has_a_reason() -> None:
    for name, key in (
        ("tolerances.toml", "tolerance"),
        ("capabilities.toml", "excuse"),
    ):
        for entry in tables._table(name)[key]:
            assert len(entry["reason"]) > 20, entry


@pytest.mark.parametrize(
    ("given", "ulp"),
    [({"clip_gradients": 1.0}, 4), ({"clip_gradients": None}, 0), ({}, 0)],
)
def test_a_tolerance_may_ask_for_an_input(given: dict[str, Any], ulp: float) -> None:
    inputs = {"optimizer": "SGD", **given}
    case = Case("optimize_loss", "x", "mixed_static", inputs, {})
    assert tables.tolerance(case, "tf").ulp == ulp
    assert tables.tolerance(case, "reference").ulp == 0


@pytest.mark.parametrize(("shape", "ulp"), [([7], 0), ([2, 4], 4), ([], 0)])
def test_a_tolerance_may_ask_for_a_number_of_elements(
    shape: list[int], ulp: float
) -> None:
    variables = [{"name": "w", "dtype": "float32", "shape": shape, "value": 0}]
    inputs = {"optimizer": {"name": "Adam"}, "variables": variables}
    case = Case("base_optimizers", "x", "dense", inputs, {})
    assert tables.tolerance(case, "tf").ulp == ulp


def test_no_kind_is_excused_on_every_host() -> None:
    hosts = {(b.name, f) for b in registry.BACKENDS.values() for f in b.faces}
    for each in read_cases(GOLDEN):
        assert not all(tables.excuse(each, *host) for host in hosts), each.kind


# Planning


def test_each_case_has_one_whole_face_and_a_tenth_in_the_others() -> None:
    backend = registry.find("tf")
    cases = read_cases(GOLDEN, ["multitask", "base_optimizers"])
    plan, skipped = plan_backend(cases, backend, backend.faces, everything=False)
    assert not skipped
    assert {c.id for c in plan["eager"]} == {
        c.id for c in cases if c.kind != "sparse_without_dense_shape"
    }
    for face in ("function", "graph"):
        kinds = {(c.family, c.kind) for c in plan[face]}
        assert kinds == {(c.family, c.kind) for c in plan["eager"]}
        assert len(plan[face]) < len(cases) / 2
    assert "multitask-p-039" in {c.id for c in plan["v1"]}


def test_everything_means_every_face() -> None:
    backend = registry.find("tf")
    cases = read_cases(GOLDEN, ["base_optimizers"])
    plan, _ = plan_backend(cases, backend, backend.faces, everything=True)
    assert {face: len(chosen) for face, chosen in plan.items()} == dict.fromkeys(
        backend.faces, len(cases)
    )


# The command


def reference_only(**options: Any) -> Request:
    return Request(backends=["reference"], **options)


def test_another_folder_of_the_same_kinds_is_replayed(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "multitask.json", tmp_path / "elsewhere.json")
    result = run_parity(reference_only(golden=tmp_path), lambda row: None)
    assert {row.family for row in result.rows} == {"multitask"}
    assert sum(row.status == "passed" for row in result.rows) > 40


def test_a_failing_case_sets_the_exit_status_and_the_report(tmp_path: Path) -> None:
    content = json.loads((GOLDEN / "multitask.json").read_text("utf-8"))
    content["cases"] = content["cases"][:2]
    content["cases"][0]["expected"]["steps"][0]["global_step"] = 7
    (tmp_path / "multitask.json").write_text(json.dumps(content), "utf-8")
    report = tmp_path / "out" / "report.json"
    arguments = ["parity", "--backend", "reference", "--golden", str(tmp_path)]
    result = CliRunner().invoke(app, [*arguments, "--report", str(report)])
    assert result.exit_code == 1
    rows = [Row.from_json(row) for row in json.loads(report.read_text("utf-8"))]
    assert [row.status for row in rows] == ["failed", "passed"]
    assert rows[0].max_ulp == math.inf


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("{", "expected JSON"),
        ('{"format": 2, "family": "multitask", "cases": []}', "got format 2"),
        ('{"format": 1, "family": "multitask"}', "the keys of FORMAT.md"),
        ('{"format": 1, "family": "agn", "cases": [{"id": 1}]}', "the keys of FORMAT"),
        ("[]", "the keys of FORMAT.md"),
    ],
)
def test_a_damaged_golden_file_is_one_sentence(
    tmp_path: Path, damage: str, words: str
) -> None:
    (tmp_path / "multitask.json").write_text(damage, "utf-8")
    with pytest.raises(HarnessError, match=words):
        read_cases(tmp_path)


def test_an_empty_or_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"expected \*\.json files, got none"):
        read_cases(tmp_path)
    with pytest.raises(HarnessError, match="a folder of golden files"):
        read_cases(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Request(backends=["tensorflow"]), UnknownNameError, "expected one of"),
        (Request(families=["multitsk"]), HarnessError, "did you mean 'multitask'"),
        (Request(faces=["eagr"]), UnknownNameError, "did you mean 'eager'"),
        (reference_only(case="multitask-p-03"), HarnessError, "did you mean"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(
    request_: Request, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_parity(request_, lambda row: None)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path,
) -> None:
    with pytest.raises(HarnessError, match="a folder"):
        check_writable(tmp_path)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(HarnessError, match="expected a file that can be written"):
        check_writable(tmp_path / "file" / "report.json")


def test_a_report_is_written_whole_and_read_back(tmp_path: Path) -> None:
    rows = [judged(MULTITASK), judged(changed(MULTITASK, kind="dance"))]
    write_report(rows, tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [Row.from_json(row) for row in content] == rows
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["report.environment.json", "report.json"]
    about = json.loads((tmp_path / names[0]).read_text("utf-8"))
    assert about["numpy"] == np.__version__


def test_a_child_that_dies_fails_its_cases_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "dies"
    script.write_text("#!/bin/sh\necho 'last words' >&2\nexit 3\n", "utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    result = run_parity(reference_only(families=["multitask"]), lambda row: None)
    assert {row.status for row in result.rows} == {"failed", "skipped"}
    failed = next(row for row in result.rows if row.status == "failed")
    assert failed.reason.endswith("with status 3: last words")


WAITING = """
import signal
import sys
from harness.parity.command import Request, run_parity
# A shell's background job ignores SIGINT, and so would this child of such a job.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.executable = sys.argv[1]
run_parity(Request(families=["multitask"]), print)
"""


@pytest.mark.parametrize("end", [os.killpg, os.kill], ids=["group", "parent alone"])
def test_ctrl_c_ends_the_hosts_that_run_and_starts_no_others(
    tmp_path: Path, end: Callable[[int, int], None]
) -> None:
    started, script = tmp_path / "started", tmp_path / "waits"
    started.touch()
    words = f"#!/bin/sh\necho $$ >> '{started}'\nexec sleep 300\n"
    script.write_text(words, "utf-8")
    script.chmod(0o755)
    command = [sys.executable, "-c", WAITING, str(script)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as run:
        deadline = time.monotonic() + 60
        while len(started.read_text("utf-8").split()) < 2:
            assert time.monotonic() < deadline, "two hosts never began"
            time.sleep(0.05)
        end(run.pid, signal.SIGINT)
        try:
            assert run.wait(timeout=60) != 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    hosts = [int(host) for host in started.read_text("utf-8").split()]
    assert len(hosts) == 2
    for host in hosts:
        with pytest.raises(ProcessLookupError):
            os.kill(host, 0)


def test_the_published_report_has_every_family_that_is_built() -> None:
    path = ROOT / "results" / "parity" / "report.json"
    rows = [Row.from_json(row) for row in json.loads(path.read_text("utf-8"))]
    missing = {row.family for row in rows if row.status == "not_implemented"}
    assert not missing & BUILT.keys(), "publish the report again"
    assert BUILT.keys() <= {row.family for row in rows}


def test_a_device_that_is_not_there_is_one_error() -> None:
    request = Request(backends=["reference"], families=["multitask"], device="cuda")
    with pytest.raises(HarnessError, match="reference: expected the device 'cuda'"):
        run_parity(request, lambda row: None)


def test_a_device_needs_a_backend_that_can_use_it() -> None:
    done = CliRunner().invoke(app, ["parity", "--device", "cuda"])
    assert isinstance(done.exception, HarnessError)
    assert "add --backend" in str(done.exception)
