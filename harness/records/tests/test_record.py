"""Records: appended whole or not at all, read back as they were."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.processes.environment import child_variables
from harness.records.files import Log, Store, read, read_lines
from harness.records.record import Code, Record, digest, latest

RUN = {"experiment": "e", "task": "t", "config": {"rate": 0.1}, "seed": 3}


def of_seed(seed: int) -> Record:
    """Return the record with another seed, and so another id."""
    return replace(RECORD, seed=seed, id=digest({**RUN, "seed": seed}, 12))


RECORD = Record(
    **RUN,
    id=digest(RUN, 12),
    subject={"backend": "pytorch", "device": "cpu"},
    environment="abcd",
    status="ok",
    reason="",
    series={"step": [0, 10], "loss": [0.1, np.float32(1) / 3]},
    summary={"loss": float(np.float32(0.1))},
    code=Code(commit="c0ffee", dirty=False, digest="0123456789abcdef"),
    scale="quick",
    command="run e",
    process=0,
    start="2026-01-02T03:04:05Z",
    duration=1.5,
    load=0.25,
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
    write(path, RECORD, of_seed(4))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.warns(UserWarning, match=r"r\.jsonl: the last line is torn"):
        assert [record.seed for record in read(path)] == [3]
    write(path, of_seed(4))
    assert path.read_bytes() == whole


DAMAGES = {
    "no JSON": b"{]\n",
    "no object": 3,
    "nested deeply": b"[" * 200_000 + b"]" * 200_000 + b"\n",
    "no schema": {k: v for k, v in RECORD.as_json().items() if k != "schema"},
    "another schema": RECORD.as_json() | {"schema": 4},
    "an unknown key": RECORD.as_json() | {"host": "x"},
    "a missing key": {k: v for k, v in RECORD.as_json().items() if k != "seed"},
    "no code": RECORD.as_json() | {"code": None},
    "no subject": RECORD.as_json() | {"subject": None},
    "a subject without a backend": RECORD.as_json() | {"subject": {"device": "cpu"}},
    "a list for an id": RECORD.as_json() | {"id": [1]},
    "another run's id": RECORD.as_json() | {"id": "0123456789ab"},
    "another seed than the id's": RECORD.as_json() | {"seed": 4},
    "texts for numbers": RECORD.as_json() | {"summary": {"loss": "x"}},
    "numbers for a series": RECORD.as_json() | {"series": {"loss": 3}},
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


def test_a_settled_record_outlives_a_later_error() -> None:
    error = replace(RECORD, status="error", reason="x")
    assert latest([error, RECORD]) == [RECORD]
    assert latest([RECORD, error]) == [RECORD]
    assert latest([error, replace(error, reason="y")])[0].reason == "y"
    elsewhere = replace(RECORD, subject={"backend": "pytorch", "device": "cuda"})
    assert len(latest([RECORD, elsewhere])) == 2


def test_an_environment_is_written_once(tmp_path: Path) -> None:
    content = {"python": "3.11"}
    for _ in range(2):
        with Store(tmp_path, "tf") as store:
            assert store.environment(content) == digest(content, 8)
    lines = read_lines(tmp_path / "tf.environments.jsonl")
    assert lines == [{"id": digest(content, 8), **content}]
    assert not (tmp_path / "tf.jsonl").exists()


FILL = """
import sys
from pathlib import Path
from harness.errors import HarnessError
from harness.records.files import Log, Store, read, read_lines
prepare(int(sys.argv[2]))
try:
    with Log(Path(sys.argv[1])) as log:
        for number in range(100):
            log.append({"id": str(number), "text": "a" * 700})
except HarnessError as error:
    print(error)
"""
LIMITED = """
import resource, signal
def prepare(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""


def test_a_file_that_may_not_grow_keeps_whole_lines(tmp_path: Path) -> None:
    """The system itself writes a part of a line and refuses the rest."""
    pytest.importorskip("resource", reason="this system has no such limit")
    path = tmp_path / "r.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + FILL, str(path), "5000"],
        capture_output=True,
        text=True,
        env=child_variables(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "expected to append a line, got" in done.stdout
    content = path.read_bytes()
    assert content.endswith(b"\n")
    assert content.count(b"\n") == 5000 // (700 + len('{"id":"0","text":""}\n'))
