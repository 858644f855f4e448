"""What fails on real processes of one machine, and what is left of it.

Elsewhere: a reply that is lost in ``test_actor.py``, a node in ``test_lost_nodes.py``,
a rank in ``pytorch/tests/test_ranks.py``, a parameter server in
``tf/tests/test_agn_cluster.py``, and kills in the middle of a checkpoint, to
the line, in ``test_random_kills.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs Ray: pip install ray")
pytest.importorskip("torch", reason="needs PyTorch")

from lockstep.errors import CenterLostError, TrainingEndedError, UnsupportedError
from lockstep.ray import RayCenter
from lockstep.ray.center import RayHost
from lockstep.ray.tests.history import History
from lockstep.ray.tests.processes import ordinary_worker, process_of
from lockstep.ray.tests.random_kills import (
    MOMENTS,
    Team,
    kill_at_random,
)
from lockstep.ray.tests.small_workers import WORKERS
from lockstep.ray.tests.trainer import FullDisk, Trainer

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
    own = Trainer(0, center, commit="delta")
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
    trainer = Trainer(0, center, commit="delta")
    for number in range(3):
        trainer.round(2 * number)
    before = process_of(ray, center)
    os.kill(before, signal.SIGKILL)
    trainer.round(6)
    assert process_of(ray, center) != before
    # Of the three rounds before, the checkpoint has two.
    assert center.status()["rounds"] == 3


def test_a_straggler_does_not_slow_the_others(address: str, center: RayCenter) -> None:
    """The system stops it in the middle of each round, while another does ten."""
    own = Trainer(0, center, commit="delta")
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
    Trainer(0, center, commit="delta").round(0)
    second = RayCenter(center.name, directory=tmp_path / "second", every=1)
    other = Trainer(1, second, commit="delta")
    other.round(2)
    status = center.status()
    assert (status["rounds"], status["workers"]) == (2, 2)
    assert status["checkpoint"] == str(tmp_path / "center.npz")
    assert not (tmp_path / "second").exists()
    assert other.weights()["bias"].tolist() == center.weights()["bias"].tolist()


UNFIT = {
    "shape": (np.float32([1, 2, 3]), r"to be \S+32 \[2\], as the sh.*32 \[3\]"),
    "dtype": (np.float64([1, 2]), r"to be \S+32 \[2\], as the sh.*64 \[2\]"),
    "version": (np.float32([1, 2]), r"lockstep \S+, as the center .* has, got 0\.0\."),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_worker_of_another_kind_is_refused_and_the_first_goes_on(
    unfit: str, center: RayCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = WORKERS["pytorch"](center, communication_period=1).start()
    start, sentence = UNFIT[unfit]
    if unfit == "version":
        monkeypatch.setattr("lockstep.ray.worker.__version__", "0.0.1")
    with pytest.raises(UnsupportedError, match=sentence):
        WORKERS["pytorch"](center, start)
    first.step(np.float32([1, 1]))
    status = center.status()
    assert (status["rounds"], status["workers"]) == (1, 1)


def test_a_full_disk_costs_rounds_only_if_the_center_is_killed(
    ray: Any, center: RayCenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses the center to write more than a few bytes to a file."""
    monkeypatch.setattr(RayHost, "actor", FullDisk)
    center = RayCenter(center.name, directory=tmp_path, every=1)
    trainer = Trainer(0, center, commit="delta")
    trainer.round(0)
    (tmp_path / "full").touch()
    trainer.round(2)
    status = center.status()
    assert (status["rounds"], status["checkpoint_rounds"]) == (2, 1)
    assert "File too large" in status["checkpoint_error"]
    os.kill(process_of(ray, center), signal.SIGKILL)
    trainer.round(4)
    # The checkpoint is that of the first round.
    assert center.status()["rounds"] == 2
    (tmp_path / "full").unlink()
    trainer.round(6)
    status = center.status()
    assert (status["checkpoint_rounds"], status["checkpoint_error"]) == (3, None)


def test_late_callers_hear_that_training_ended(center: RayCenter) -> None:
    trainer = Trainer(0, center, commit="delta")
    trainer.round(0)
    assert center.end()["checkpoint_rounds"] == 1
    with pytest.raises(TrainingEndedError, match="stop this worker"):
        trainer.round(2)
    with pytest.raises(TrainingEndedError):
        Trainer(1, center, commit="delta")
    center.remove()
    with pytest.raises(CenterLostError, match="no center of this name"):
        center.status()
    with pytest.raises(CenterLostError, match="expected its process to answer"):
        trainer.round(4)


def test_a_worker_that_does_not_fit_gets_one_sentence(center: RayCenter) -> None:
    Trainer(0, center, commit="delta")
    with pytest.raises(UnsupportedError) as raised:
        Trainer(0, center)
    assert "\n" not in str(raised.value)
    assert "expected commit='delta', as the first worker" in str(raised.value)


def kill(ray: Any, folder: Path, kills: int, seed: int) -> History:
    """Kill processes at random, end those that are left, and return what was seen."""
    team = Team(ray, folder, f"kills-{seed}")
    try:
        kill_at_random(team, kills, seed, lambda text: print(text, flush=True))
    finally:
        team.close()
    print(team.history)
    return team.history


@pytest.mark.soak
def test_five_random_kills_leave_states_that_are_promised(
    ray: Any, tmp_path: Path
) -> None:
    history = kill(ray, tmp_path, 5, seed=4)
    # Workers and the center are among them.
    assert history.kills.total() == 5
    assert history.losses and history.kills["ack"]


@pytest.mark.soak
def test_two_hundred_random_kills_leave_states_that_are_promised(
    ray: Any, pytestconfig: pytest.Config
) -> None:
    folder = Path(pytestconfig.getoption("--soak"), "kills")
    history = kill(ray, folder, 200, seed=1)
    assert history.kills.total() == 200
    assert min(history.kills[moment] for moment in {*MOMENTS, "start", "worker"}) > 5
    shutil.rmtree(folder)
