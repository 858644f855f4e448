"""Records: appended whole or not at all, read back as they were."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.errors import HarnessError
from harness.record import Log, Record, latest, read

RECORD = Record(
    experiment="e",
    id="0123",
    task="t",
    config={"rate": 0.1},
    seed=3,
    subject={"backend": "pytorch", "device": "cpu"},
    environment="abcd",
    status="ok",
    reason="",
    series={"step": [0, 10], "loss": [0.1, np.float32(1) / 3]},
    summary={"loss": float(np.float32(0.1))},
)


def write(path: Path, *records: Record) -> None:
    with Log(path) as log:
        for record in records:
            log.append(record.as_json())


def test_a_record_comes_back_in_float32(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.jsonl"
    write(path, RECORD)
    (back,) = read(path)
    assert replace(back, series={}, summary={}) == replace(
        RECORD, series={}, summary={}
    )
    for name, values in RECORD.series.items():
        expected = np.float32(values)
        assert np.array_equal(np.float32(back.series[name]), expected)
    assert '"loss":[0.1,0.33333334]' in path.read_text()


def test_pandas_reads_the_file(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", RECORD, replace(RECORD, seed=4))
    table = pd.read_json(tmp_path / "r.jsonl", lines=True)
    assert table["seed"].tolist() == [3, 4]


def test_values_that_are_not_finite_survive(tmp_path: Path) -> None:
    series = {"loss": [1.0, math.inf, math.nan]}
    write(tmp_path / "r.jsonl", replace(RECORD, series=series, status="diverged"))
    json.loads((tmp_path / "r.jsonl").read_text(), parse_constant=pytest.fail)
    (back,) = read(tmp_path / "r.jsonl")
    assert back.series["loss"][0] == 1.0
    assert np.isnan(back.series["loss"][1:]).all()


def test_a_torn_last_line_is_ignored_and_gone_after_the_next_append(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl"
    write(path, RECORD, replace(RECORD, seed=4))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.warns(UserWarning, match=r"r\.jsonl: the last line is torn"):
        assert [record.seed for record in read(path)] == [3]
    with pytest.warns(UserWarning, match="was ignored"):
        write(path, replace(RECORD, seed=4))
    assert path.read_bytes() == whole


DAMAGES = {
    "no JSON": b"{]\n",
    "another schema": RECORD.as_json() | {"schema": 2},
    "a missing key": {k: v for k, v in RECORD.as_json().items() if k != "seed"},
    "an unknown status": RECORD.as_json() | {"status": "fine"},
    "no object": 3,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_line_elsewhere_is_named(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "r.jsonl"
    line = damage if isinstance(damage, bytes) else json.dumps(damage).encode() + b"\n"
    good = json.dumps(RECORD.as_json()).encode() + b"\n"
    path.write_bytes(good + line + good)
    with pytest.raises(HarnessError, match=r"r\.jsonl, line 2: expected .* restore"):
        read(path)


def test_only_one_process_writes(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="this system cannot tell")
    with Log(tmp_path / "r.jsonl"):
        with pytest.raises(HarnessError, match="another run at work"):
            Log(tmp_path / "r.jsonl")


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match="choose a folder that you may write to"):
        Log(tmp_path / "file" / "r.jsonl")


def test_a_log_without_lines_leaves_no_file(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_settled_record_outlives_a_later_error() -> None:
    error = replace(RECORD, status="error", reason="x")
    assert latest([error, RECORD]) == [RECORD]
    assert latest([RECORD, error]) == [RECORD]
    assert latest([error, replace(error, reason="y")])[0].reason == "y"
    elsewhere = replace(RECORD, subject={"backend": "pytorch", "device": "cuda"})
    assert len(latest([RECORD, elsewhere])) == 2
