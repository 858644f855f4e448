"""A served center and its file: a full disk, and files of something else."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from lockstep.errors import UnsupportedError
from lockstep.ray import checkpoint
from lockstep.ray.served_center import ServedCenter, Start, SummedWeights, layout
from lockstep.ray.tests.served import after_crash, push, served, start, w


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
