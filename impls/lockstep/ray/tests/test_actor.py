"""Workers of several processes share a center on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs Ray: pip install ray")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from lockstep.ray import RayCenter  # noqa: E402
from lockstep.ray.center import RayHost  # noqa: E402
from lockstep.ray.tests.trainer import DyingCenter, Trainer  # noqa: E402


def assert_same_bits(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    assert all(np.array(one[n]).tobytes() == np.array(other[n]).tobytes() for n in one)


@pytest.mark.slow
def test_of_two_first_workers_at_once_one_fills_the_center(
    ray: Any, center: RayCenter
) -> None:
    @ray.remote(num_cpus=0)
    def joined(seed: int) -> Any:
        return Trainer(seed, center).weights()

    one, other = ray.get([joined.remote(seed) for seed in (0, 1)])
    assert_same_bits(one, other)
    assert_same_bits(one, center.weights())


@pytest.mark.slow
def test_a_task_with_a_worker_of_numpy_shares_the_center(
    ray: Any, center: RayCenter
) -> None:
    """The weights are larger than what Ray sends with a call."""
    size = 40_000

    @ray.remote(num_cpus=0)
    def train() -> float:
        from lockstep.ray.tests.small_workers import NumpyView

        view = NumpyView(center, np.zeros(size, np.float32))
        view.send({"w": -np.ones(size, np.float32)})
        view.pull()
        view.leave()
        return float(view.weight[-1])

    from lockstep.pytorch import AGNCustomGetter, AGNOptimizer

    own = torch.nn.Parameter(torch.zeros(size))
    getter = AGNCustomGetter("cpu", center=center)
    sgd = torch.optim.SGD(getter([("w", own)]), lr=1.0)
    worker = AGNOptimizer(sgd, 2, getter, 1, commit="delta")
    assert ray.get(train.remote()) == -1.0
    worker.apply_gradients([(torch.ones(size), own)])
    assert own[-1].item() == center.weights()["w"][-1] == -2.0
    # The task has left, and its round came between this worker's start and push.
    status = center.status()
    assert (status["workers"], status["staleness"]) == (1, {0: 1, 1: 1})


@pytest.mark.slow
@pytest.mark.parametrize(("every", "repeated"), [(1, 1), (100, 0)])
def test_a_push_whose_reply_is_lost_is_applied_once(
    every: int, repeated: int, center: RayCenter, tmp_path: Path, monkeypatch
) -> None:
    """Ray calls again: the center has the push in its checkpoint, or lost it."""
    monkeypatch.setattr(RayHost, "actor", DyingCenter)
    center = RayCenter(center.name, directory=tmp_path, every=every)
    trainer = Trainer(0, center)
    trainer.round(0)
    assert (tmp_path / "died").exists()
    status = center.status()
    assert (status["rounds"], status["repeated"]) == (1, repeated)
    alone = Trainer(0, None)
    alone.round(0)
    assert_same_bits(center.weights(), alone.weights())
