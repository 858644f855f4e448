"""Workers of several processes share a center on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


RULES = [
    ("Adam", {"lr": 0.1}, "gradient"),
    pytest.param("Adam", {"lr": 0.1}, "delta", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def remote_trainers(ray: Any) -> Iterator[Callable[..., Any]]:
    """Two processes of Ray's that hold one trainer after another."""

    class Holder:
        def make(self, *arguments: Any) -> None:
            self.trainer = Trainer(*arguments)

        def step(self, seed: int) -> None:
            self.trainer.step(seed)

        def weights(self) -> dict[str, Any]:
            return self.trainer.weights()

    holders = [ray.remote(Holder).options(num_cpus=0).remote() for _ in range(2)]

    def make(*arguments: Any) -> list[Any]:
        ray.get([h.make.remote(n, *arguments) for n, h in enumerate(holders)])
        return holders

    yield make
    for holder in holders:
        ray.kill(holder)


def in_one_process(order: list[int], rule: str, arguments: Any, commit: str) -> Any:
    """Return the weights of a center of this process after steps in an order."""
    first = Trainer(0, None, rule, arguments, commit)
    shared = first.worker.custom_getter.center
    trainers = [first] + [Trainer(n, shared, rule, arguments, commit) for n in (1, 2)]
    for seed, number in enumerate(order):
        trainers[number].step(seed)
    return {n: p.detach().numpy() for n, p in shared.parameters.items()}


@pytest.mark.parametrize(("rule", "arguments", "commit"), RULES)
def test_a_fixed_order_of_steps_gives_the_bits_of_one_process(
    ray: Any, center: RayCenter, remote_trainers: Any, rule: str, arguments: Any, commit
) -> None:
    order = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]
    own = Trainer(0, center, rule, arguments, commit)
    others = remote_trainers(center, rule, arguments, commit)
    for seed, number in enumerate(order):
        if number:
            ray.get(others[number - 1].step.remote(seed))
        else:
            own.step(seed)
    assert_same_bits(center.weights(), in_one_process(order, rule, arguments, commit))
    status = center.status()
    assert (status["rounds"], status["workers"]) == (7, 3)


@pytest.mark.slow
def test_of_two_first_workers_at_once_one_fills_the_center(
    ray: Any, center: RayCenter, remote_trainers: Any
) -> None:
    one, other = remote_trainers(center)
    found = ray.get([one.weights.remote(), other.weights.remote()])
    assert_same_bits(*found)
    assert_same_bits(found[0], center.weights())


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
    trainer = Trainer(0, center, commit="delta")
    trainer.round(0)
    assert (tmp_path / "died").exists()
    status = center.status()
    assert (status["rounds"], status["repeated"]) == (1, repeated)
    expected = in_one_process([0, 0], "SGD", None, "delta")
    assert_same_bits(center.weights(), expected)
