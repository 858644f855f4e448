"""The line by which people watch a center."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli import main
from lockstep.ray import RayCenter, center
from lockstep.ray.served_center import ServedCenter
from lockstep.ray.tests.served import push, served
from lockstep.ray.watch import status_line, watch


def line(served: ServedCenter, before: int | None = None, seconds: float = 1.0) -> str:
    return status_line(served.status(), before, seconds)


def test_a_line_has_what_the_center_counts(tmp_path: Path) -> None:
    center = served(tmp_path, every=2)
    assert line(center) == (
        "toy: 0 rounds, 0 of 0 workers active, mean staleness 0.00, 0.0 MB pushed, "
        "0.0 MB pulled, checkpoint of round 0"
    )
    for number, worker in enumerate("abb"):
        push(center, number + 1, worker)
    center.counters.bytes_pulled = 36_000_000
    assert line(center, before=1, seconds=4.0) == (
        "toy: 3 rounds, 0.5/s, 2 of 2 workers active, mean staleness 1.00, "
        "0.0 MB pushed, 36.0 MB pulled, checkpoint of round 2"
    )


def test_a_center_that_went_back_has_no_rate_below_zero(tmp_path: Path) -> None:
    assert "0 rounds, 0.0/s, " in line(served(tmp_path), before=50)


def test_a_line_says_why_the_checkpoint_is_old(tmp_path: Path) -> None:
    center = served(tmp_path)
    center.failure = "No space left on device"
    assert line(center).endswith("round 0, checkpoint failed: No space left on device")


class Answers:
    """A host whose center counts on from one status to the next, and then ends."""

    def __init__(self, folder: Path) -> None:
        self.center = served(folder)

    def call(self, method: str) -> dict[str, Any]:
        rounds = self.center.counters.rounds
        push(self.center, rounds + 1)
        self.center.ended = rounds == 1
        return self.center.status()


def test_watching_prints_lines_until_training_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    host = Answers(tmp_path)
    monkeypatch.setattr(center, "RayHost", lambda _: host)
    monkeypatch.setattr("time.sleep", waits.append)
    watch(RayCenter("toy"), 0.5)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("toy: 1 round, 1 of 1 worker active, ")
    assert second.startswith("toy: 2 rounds, 2.0/s, 1 of 1 worker active, ")
    assert waits == [0.5]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_time_that_cannot_be_meant_is_refused_before_it_connects(
    seconds: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.ray.watch.connect", pytest.fail)
    with pytest.raises(SystemExit) as ended:
        main(["watch", "toy", f"--seconds={seconds}"])
    assert ended.value.code == 2
    assert "--seconds: expected a number > 0, got" in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    # Other tests on this machine may have started one.
    monkeypatch.setattr(pytest.importorskip("ray"), "init", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["watch", "plane"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "watch: expected a Ray cluster (address 'auto'), got none; start it" in said


def test_a_cluster_that_does_not_answer_is_one_sentence_within_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = threading.Event()
    monkeypatch.setattr(pytest.importorskip("ray"), "init", lambda **_: gone.wait())
    monkeypatch.setattr("lockstep.ray.watch.PATIENCE", 0.01)
    with pytest.raises(SystemExit) as ended:
        main(["watch", "plane", "--address", "127.0.0.1:1"])
    gone.set()
    assert ended.value.code == 2
    assert "got no answer within 0.01 seconds; start it" in capsys.readouterr().err
