"""A served center: what joins and moves it, what it counts, its end and its file."""

from __future__ import annotations

import errno
import logging
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from lockstep.errors import (
    CenterEmptyError,
    CenterLostError,
    OutOfRangeError,
    TrainingEndedError,
    UnsupportedError,
)
from lockstep.ray import checkpoint
from lockstep.ray.served_center import ServedCenter, Start, SummedWeights, layout
from lockstep.ray.tests.served import (
    Changes,
    after_crash,
    ones,
    push,
    sender,
    served,
    start,
    w,
)


def test_a_push_moves_the_weights_and_the_reply_has_them(tmp_path: Path) -> None:
    center = served(tmp_path)
    reply = push(center, 1)
    assert reply.weights["w"].tolist() == w(center) == [1.0, 1.0]
    assert reply.rounds == 1
    push(center, 2)
    assert reply.weights["w"].tolist() == [1.0, 1.0]


def test_the_first_worker_begins_and_others_change_nothing(tmp_path: Path) -> None:
    center = served(tmp_path)
    push(center, 1)
    center.begin(start())
    assert w(center) == [1.0, 1.0]


def test_a_push_that_comes_again_is_applied_once(tmp_path: Path) -> None:
    center = served(tmp_path)
    for sequence in (1, 1, 2, 1):
        push(center, sequence)
    push(center, 1, worker="b")
    assert w(center) == [3.0, 3.0]
    assert (center.counters.rounds, center.counters.repeated) == (3, 2)


def test_a_center_without_its_checkpoint_does_not_begin_anew(tmp_path: Path) -> None:
    center = served(tmp_path)
    center.path.unlink()
    with pytest.raises(CenterLostError, match=r"checkpoint .* after a restart, got no"):
        after_crash(center)


def test_workers_of_a_lost_center_do_not_push_to_the_next(tmp_path: Path) -> None:
    lost = served(tmp_path)
    lost.path.unlink()
    center = served(tmp_path)
    with pytest.raises(
        CenterLostError, match="got one of an earlier center of this name"
    ):
        center.push(sender(lost, 1), ones(), None)
    assert w(center) == [0.0, 0.0]


def test_an_empty_center_asks_for_weights(tmp_path: Path) -> None:
    center = ServedCenter("toy", str(tmp_path), 1, "refuse")
    assert center.present() == {}
    pulls = center.weights_now, lambda: center.pull(["w"])
    for call in (*pulls, lambda: push(center, 1), center.end):
        with pytest.raises(CenterEmptyError, match="make an AGNOptimizer first"):
            call()


def test_staleness_counts_the_pushes_of_others_since_the_pull(tmp_path: Path) -> None:
    center = served(tmp_path)
    since = center.pull(["w"]).rounds
    for sequence in (1, 2, 3):
        push(center, sequence, "fast", sequence - 1)
    push(center, 1, "slow", since)
    # After a crash the center may be younger than what a worker has.
    push(center, 4, "fast", 99)
    assert center.counters.staleness == {0: 4, 3: 1}


def test_bytes_are_counted_both_ways(tmp_path: Path) -> None:
    center = served(tmp_path)
    center.pull(["w"])
    push(center, 1)
    assert (center.counters.bytes_pushed, center.counters.bytes_pulled) == (12, 20)


WRONG: dict[str, tuple[Changes, type[Exception], str]] = {
    "nan": ({"w": np.float32([0, np.nan])}, OutOfRangeError, "inf or NaN for 'w'"),
    "inf": ({"w": np.float32([np.inf, 0])}, OutOfRangeError, "nothing has moved"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_push_is_looked_at_before_anything_moves(wrong: str, tmp_path: Path) -> None:
    changes, kind, told = WRONG[wrong]
    center = served(tmp_path)
    with pytest.raises(kind, match=told):
        changes = {"b": np.float32(1).reshape(()), **changes}
        center.push(sender(center, 1), changes, None)
    assert w(center) == [0.0, 0.0]
    assert center.present()["b"] == 0.0
    assert push(center, 1).rounds == 1


def test_a_push_that_is_not_finite_may_be_dropped(tmp_path: Path) -> None:
    center = ServedCenter("toy", str(tmp_path), 1, "drop")
    center.begin(start())
    reply = center.push(sender(center, 1), {"w": np.float32([np.nan, 1])}, None)
    assert reply.weights["w"].tolist() == [0.0, 0.0]
    assert not reply.applied
    assert (center.counters.rounds, center.counters.nonfinite) == (0, 1)
    assert push(center, 1).applied
    assert push(center, 1).applied, "a push that came again is in the weights"


MEMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "release": ({"release": "0.9"}, r"lockstep 1\.0, as the center 'toy' has, got 0"),
    "commit": ({"commit": "gradient"}, "commit='delta', as the first .* 'gradient'"),
    "shape": ({"layout": {"w": "float32 [3]"}}, r"'w' to be float32 \[2\], as the sh"),
    "dtype": ({"layout": {"w": "float64 [2]"}}, r"float32 \[2\], .* got float64 \[2\]"),
    "name": ({"layout": {"x": "float32 [2]"}}, "names that the center has, 'w', 'b'"),
}


@pytest.mark.parametrize("other", MEMBERS)
def test_a_worker_that_does_not_fit_is_refused(other: str, tmp_path: Path) -> None:
    changed, told = MEMBERS[other]
    with pytest.raises(UnsupportedError, match=told):
        served(tmp_path).join(start(**changed).membership)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"backend": "keras3"}, "a worker on reference, .* got one on keras3; use com"),
        (
            {"groups": [["b"]]},
            r"the parameter groups \[\['w'\]\], as the first .* got \[\['b'\]\]",
        ),
    ],
)
def test_a_rule_needs_workers_like_the_first(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    rule: dict[str, Any] = {"commit": "gradient", "groups": [["w"]]}
    center = ServedCenter("toy", str(tmp_path), 1, "refuse")
    center.begin(start(**rule))
    center.join(start(**rule).membership)
    with pytest.raises(UnsupportedError, match=told):
        center.join(start(**{**rule, **changed}).membership)


def test_after_the_end_pushes_are_refused_and_weights_can_be_read(
    tmp_path: Path,
) -> None:
    center = served(tmp_path, every=100)
    push(center, 1)
    assert center.end()["checkpoint_rounds"] == 1
    with pytest.raises(TrainingEndedError, match="stop this worker"):
        push(center, 2)
    with pytest.raises(TrainingEndedError):
        center.join(start().membership)
    assert center.pull(["w"]).weights["w"].tolist() == [1.0, 1.0]
    # The reply of the last push may be lost too.
    assert push(center, 1).rounds == 1


def test_the_end_survives_a_crash_but_not_a_new_start(tmp_path: Path) -> None:
    center = served(tmp_path)
    center.end()
    with pytest.raises(TrainingEndedError):
        push(after_crash(center), 1)
    assert push(served(tmp_path), 1).rounds == 1


def test_a_worker_that_is_done_is_forgotten(tmp_path: Path) -> None:
    center = served(tmp_path)
    push(center, 1, "a")
    push(center, 1, "b")
    center.leave("a")
    center.leave("nobody")
    assert center.status()["workers"] == center.status()["active_workers"] == 1


def test_a_worker_that_falls_silent_is_no_longer_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A center does not hear of a death."""
    center = served(tmp_path)
    push(center, 1, "killed")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    push(center, 1, "alive")
    status = center.status()
    assert (status["workers"], status["active_workers"]) == (2, 1)


def test_a_full_disk_is_reported_and_training_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    center = served(tmp_path)
    push(center, 1)

    def refuse(*_: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(Path, "replace", refuse)
        push(center, 2)
    assert "center 'toy': no checkpoint was written: " in caplog.text
    status = center.status()
    assert (status["rounds"], status["checkpoint_rounds"]) == (2, 1)
    assert "No space left" in status["checkpoint_error"]
    assert w(after_crash(center)) == [1.0, 1.0]
    push(center, 3)
    assert center.status()["checkpoint_error"] is None
    assert w(after_crash(center)) == [3.0, 3.0]


@pytest.mark.parametrize("state", [3, {"layout": start().membership.layout}])
def test_a_file_that_is_no_checkpoint_is_refused(state: Any, tmp_path: Path) -> None:
    checkpoint.write(tmp_path / checkpoint.FILE, state)
    with pytest.raises(UnsupportedError, match="expected a checkpoint of a center in"):
        served(tmp_path)


def test_a_checkpoint_of_other_weights_is_refused(tmp_path: Path) -> None:
    served(tmp_path)
    other = {"w": np.zeros(3, np.float32)}
    begun = Start(SummedWeights(other), start(layout=layout(other)).membership)
    center = ServedCenter("toy", str(tmp_path), 1, "refuse")
    with pytest.raises(
        UnsupportedError, match="checkpoint with the worker's weights, "
    ):
        center.begin(begun)
    assert center.present() == {}


def test_a_checkpoint_of_another_rule_is_refused(tmp_path: Path) -> None:
    served(tmp_path)
    center = ServedCenter("toy", str(tmp_path), 1, "refuse")
    told = r"commit='gradient' on reference with groups .* got one with commit='delta"
    with pytest.raises(UnsupportedError, match=told):
        center.begin(start(commit="gradient"))


class Opaque(SummedWeights):
    """Weights with state that no file of a center can have."""

    def saved(self) -> Any:
        return {"rule": object()}


def test_state_that_is_not_plain_is_refused_at_once(tmp_path: Path) -> None:
    center = ServedCenter("toy", str(tmp_path), 1, "refuse")
    weights = start().weights.pull()
    with pytest.raises(UnsupportedError, match="numbers and text, got object; a cent"):
        center.begin(Start(Opaque(weights), start().membership))
    assert not center.status()["begun"]
