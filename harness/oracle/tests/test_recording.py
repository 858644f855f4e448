"""Fresh cases: drawn from a seed alone, such as replays know, recorded whole or not."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.oracle import terminal
from harness.oracle.drawing.families import DRAWN
from harness.oracle.live.golden import array, encoded
from harness.oracle.recording import check_request, draw_cases, record_cases
from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case
from harness.parity.families import BY_FAMILY
from harness.parity.replay import settled_before

ECHO = """#!/bin/sh
while read -r line; do
    printf '%s' "${line%\\}}"; echo ', "expected": {"raises": "ValueError"}}'
done
"""
BROKEN = "#!/bin/sh\ncat > /dev/null\necho out of memory >&2\nexit 3\n"


def python(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def done(name: str, total: int) -> None:
    """Take what a run reports."""


@pytest.mark.parametrize("family", DRAWN)
def test_a_case_depends_on_its_seed_family_and_number_alone(family: str) -> None:
    first, second, *_ = draw_cases([family], 4, 5)
    assert list(draw_cases([family], 2, 5)) == [first, second]
    assert first["inputs"] != second["inputs"]
    assert next(draw_cases([family], 1, 6))["inputs"] != first["inputs"]


@pytest.mark.filterwarnings("ignore:.*expected axes without dimension 0")
@pytest.mark.parametrize("family", DRAWN)
def test_what_is_drawn_can_be_replayed(family: str) -> None:
    for given in draw_cases([family], 40, 1):
        assert given["kind"] in BY_FAMILY[family].KINDS
        inputs = json.loads(json.dumps(given["inputs"]))
        case = Case(family, given["id"], given["kind"], inputs, {})
        driver = drivers.load("reference")
        assert settled_before(case, driver) == (None, "")
        states = list(BY_FAMILY[family].replay(case, driver))
        assert len(states) >= 1


def test_the_draws_hold_what_breaks_arithmetic() -> None:
    """Subnormal, huge, not finite, no elements, repeated rows, absent, float16."""
    drawn = list(draw_cases(["base_optimizers"], 150, 1))
    text = json.dumps(drawn)
    for wanted in ('"nan"', '"inf"', "e-45", "e+38", "-0.0", "null", '"float16"'):
        assert wanted in text, wanted
    assert any(0 in v["shape"] for c in drawn for v in c["inputs"]["variables"])
    steps = [step for case in drawn for step in case["inputs"]["gradients"]]
    named = [g["indices"] for step in steps for g in step if isinstance(g, dict)]
    assert any(len(set(indices)) < len(indices) for indices in named)
    assert [] in named
    assert all(any(gradient is not None for gradient in step) for step in steps)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool"])
def test_what_is_written_reads_back_to_the_bit(dtype: str) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(3, 4)).astype(dtype)
    if "float" in dtype:
        tiny = np.finfo(dtype).smallest_subnormal
        values[0] = [np.nan, -np.inf, tiny, np.finfo(dtype).max]
        values[1, 0] = -0.0
    written = json.loads(json.dumps(encoded({"": None, "w": values, "n": [None]})))
    assert list(written) == ["w", "n"]
    back = array(written["w"], dtype)
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(values))


def test_files_are_written_in_the_form_that_parity_reads(tmp_path: Path) -> None:
    shell = python(tmp_path / "python", ECHO)
    folder = tmp_path / "golden"
    assert record_cases(folder, ["multitask", "agn"], 3, 2, shell, done) == 6
    content = json.loads((folder / "multitask.json").read_text("utf-8"))
    assert (content["format"], content["family"]) == (1, "multitask")
    drawn = list(draw_cases(["multitask"], 3, 2))
    assert [case["id"] for case in content["cases"]] == [c["id"] for c in drawn]
    assert all("live tensorflow 1.15.5" in case["source"] for case in content["cases"])
    assert [case["inputs"] for case in content["cases"]] == [c["inputs"] for c in drawn]


def test_a_recording_that_ends_early_leaves_no_file(tmp_path: Path) -> None:
    shell = python(tmp_path / "python", BROKEN)
    with pytest.raises(HarnessError, match="status 3: out of memory"):
        record_cases(tmp_path / "golden", ["multitask"], 2, 0, shell, done)
    assert list((tmp_path / "golden").iterdir()) == []


@pytest.mark.parametrize("folder", [GOLDEN, FOUND])
def test_what_was_recorded_is_never_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> Path:
        raise AssertionError("it starts no interpreter")

    monkeypatch.setattr(terminal, "oracle_python", unreachable)
    with pytest.raises(HarnessError, match="--golden: expected a folder of your own"):
        terminal.record_fresh(folder, (), 1, 0)


def test_a_family_that_cannot_be_run_live_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"expected one of .*agn.*novograd"):
        check_request(tmp_path, ["novograd"])
