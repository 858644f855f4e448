"""What fails on real processes of one machine, and what is left of it.

Elsewhere: a reply that is lost in ``test_actor.py``, nodes in ``test_lost_nodes.py``,
a full disk in ``test_served_center.py``, and kills at random moments, also in the
middle of a checkpoint, in ``test_random_kills.py``.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs Ray: pip install ray")
pytest.importorskip("torch", reason="needs PyTorch")

from lockstep.errors import CenterLostError, TrainingEndedError, UnsupportedError
from lockstep.ray import RayCenter
from lockstep.ray.tests.processes import ordinary_worker, place_of
from lockstep.ray.tests.small_workers import WORKERS
from lockstep.ray.tests.trainer import Trainer

pytestmark = pytest.mark.slow


def test_a_killed_worker_blocks_nobody_and_a_new_one_rejoins(
    address: str, center: RayCenter
) -> None:
    """The worker that is killed has made the center, and is in its second round."""
    with ordinary_worker(1, address, center) as worker:
        assert worker.hear()[0] == "joined"
        after_one_round = worker.ask("round")[1:]
        assert worker.ask("step")[0] == "done"
    assert center.weights()["bias"].tolist() == [float(x) for x in after_one_round]
    own = Trainer(0, center)
    own.round(0)
    assert center.status()["rounds"] == 2
    with ordinary_worker(2, address, center) as worker:
        joined = worker.hear()[1:]
        assert [float(x) for x in joined] == center.weights()["bias"].tolist()
        worker.ask("round")
    assert center.status()["rounds"] == 3


def test_a_killed_center_goes_on_from_its_checkpoint(
    ray: Any, center: RayCenter, tmp_path: Path
) -> None:
    center = RayCenter(center.name, directory=tmp_path, every=2)
    trainer = Trainer(0, center)
    for number in range(3):
        trainer.round(2 * number)
    _, before = place_of(ray, center)
    os.kill(before, signal.SIGKILL)
    trainer.round(6)
    assert place_of(ray, center)[1] != before
    # Of the three rounds before, the checkpoint has two.
    assert center.status()["rounds"] == 3


def test_a_straggler_does_not_slow_the_others(address: str, center: RayCenter) -> None:
    """The system stops it in the middle of each round, while another does ten."""
    own = Trainer(0, center)
    with ordinary_worker(1, address, center) as straggler:
        straggler.hear()
        for number in range(3):
            straggler.ask("step")
            straggler.send(signal.SIGSTOP)
            for k in range(10):
                own.round(20 * number + 2 * k)
            assert center.status()["rounds"] == 11 * number + 10
            straggler.send(signal.SIGCONT)
            straggler.ask("step")
    # Its pushes come ten rounds late, and each is new to the other worker.
    assert center.status()["staleness"] == {0: 28, 1: 2, 10: 3}


def test_a_second_center_of_a_name_is_the_first(
    center: RayCenter, tmp_path: Path
) -> None:
    Trainer(0, center).round(0)
    second = RayCenter(center.name, directory=tmp_path / "second", every=1)
    other = Trainer(1, second)
    other.round(2)
    status = center.status()
    assert (status["rounds"], status["workers"]) == (2, 2)
    assert status["checkpoint"] == str(tmp_path / "center.npz")
    assert not (tmp_path / "second").exists()
    assert other.weights()["bias"].tolist() == center.weights()["bias"].tolist()


def test_a_worker_of_another_kind_is_refused_and_the_first_goes_on(
    center: RayCenter,
) -> None:
    first = WORKERS["pytorch"](center, communication_period=1).start()
    with pytest.raises(
        UnsupportedError, match=r"to be \S+32 \[2\], as the sh.*32 \[3\]"
    ):
        WORKERS["pytorch"](center, np.float32([1, 2, 3]))
    with pytest.raises(UnsupportedError) as raised:
        WORKERS["pytorch"](center, commit="gradient")
    # Ray's own message would be a traceback of the other process.
    assert "\n" not in str(raised.value)
    first.step(np.float32([1, 1]))
    status = center.status()
    assert (status["rounds"], status["workers"]) == (1, 1)


def test_late_callers_hear_that_training_ended(center: RayCenter) -> None:
    trainer = Trainer(0, center)
    trainer.round(0)
    assert center.end()["checkpoint_rounds"] == 1
    with pytest.raises(TrainingEndedError, match="stop this worker"):
        trainer.round(2)
    with pytest.raises(TrainingEndedError):
        Trainer(1, center)
    center.remove()
    with pytest.raises(CenterLostError, match="no center of this name"):
        center.status()
    with pytest.raises(CenterLostError, match="expected its process to answer"):
        trainer.round(4)


HEAD = "node:__internal_head__"
"""A resource of which Ray gives 1 to the node that has the head."""


def wait_until_left(ray: Any, name: str, number: float) -> None:
    deadline = time.monotonic() + 20.0  # Ray counts what is left about once a second.
    while ray.available_resources().get(name, 0) != pytest.approx(number):
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.05)


def test_a_center_takes_its_resources_until_it_is_removed(ray: Any, tmp_path) -> None:
    center = RayCenter("head", directory=tmp_path, resources={HEAD: 0.25})
    Trainer(0, center).round(0)
    wait_until_left(ray, HEAD, 0.75)
    center.remove()
    wait_until_left(ray, HEAD, 1.0)
