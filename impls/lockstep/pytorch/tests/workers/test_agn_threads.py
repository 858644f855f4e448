"""Workers of one process in threads: no push gets lost, no pull is torn."""

from __future__ import annotations

import pickle
import sys
from copy import deepcopy
from threading import Barrier, Thread

import pytest
import torch
from torch.nn import Parameter

from lockstep.messages.workers.center import Update
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.pytorch.workers.center import Center

WORKERS, STEPS = 4, 200


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def workers(make, **options):
    center, made = Center(), []
    for _ in range(WORKERS):
        weight = Parameter(torch.zeros(3))
        getter = AGNCustomGetter("cpu", center=center)
        opt = make(getter([("w", weight)]))
        made.append((weight, AGNOptimizer(opt, WORKERS, getter, 1, **options)))
    return center, made


@pytest.mark.parametrize("commit", ["gradient", "delta"])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_every_push_of_every_thread_counts(name, commit, hasty_threads) -> None:
    """Adam with a gradient of one moves by the rate at each step, whatever came."""
    rule = getattr(torch.optim, name)
    center, made = workers(lambda params: rule(params, lr=1.0), commit=commit)

    def train(weight, worker):
        for _ in range(STEPS):
            weight.grad = torch.ones(3)
            worker.step()

    threads = [Thread(target=train, args=pair) for pair in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = center.parameters["w"].tolist()
    assert found == pytest.approx([-float(WORKERS * STEPS)] * 3, rel=1e-6)


@pytest.mark.parametrize("commit", ["gradient", "delta"])
def test_no_pull_and_no_push_comes_between_a_push(commit) -> None:
    """Whoever comes while a push is applied still waits after a fifth of a second."""
    center, made = workers(
        lambda params: torch.optim.SGD(params, lr=1.0), commit=commit
    )
    apply, inside = center._apply, []

    def slow(update) -> None:
        center._apply = apply
        others = [
            Thread(target=center.pull, args=(["w"],), daemon=True),
            Thread(target=center.push, args=(Update({}, None),), daemon=True),
        ]
        for other in others:
            other.start()
        for other in others:
            other.join(0.2)
            inside.append(other.is_alive())
        apply(update)

    center._apply = slow
    weight, worker = made[0]
    weight.grad = torch.ones(3)
    worker.step()
    assert inside == [True, True]


def test_workers_that_are_made_at_once_share_all_weights(hasty_threads) -> None:
    for _ in range(20):
        center, begin, done = Center(), Barrier(WORKERS), []

        def train(center=center, begin=begin, done=done) -> None:
            model = torch.nn.Sequential(*[torch.nn.Linear(2, 1) for _ in range(4)])
            begin.wait(60)
            getter = AGNCustomGetter("cpu", center=center)
            opt = torch.optim.SGD(getter(model), lr=1.0)
            worker = AGNOptimizer(opt, WORKERS, getter, 1)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            worker.step()
            done.append(len(center.parameters))

        threads = [Thread(target=train) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [8] * WORKERS


def test_what_is_pulled_does_not_move_with_the_center() -> None:
    center, ((_, worker), *_) = workers(lambda params: torch.optim.SGD(params, lr=1.0))
    pulled = center.pull(["w"])["w"]
    worker.apply_gradients([(torch.ones(3), worker.param_groups[0]["params"][0])])
    assert pulled.tolist() == [0.0] * 3
    assert center.parameters["w"].tolist() == [-1.0] * 3


@pytest.mark.parametrize(
    "copied",
    [deepcopy, lambda c: pickle.loads(pickle.dumps(c))],
    ids=["copy", "pickle"],
)
def test_a_copy_of_a_center_waits_for_nobody(copied) -> None:
    center, _ = workers(lambda params: torch.optim.SGD(params, lr=1.0))
    with center.lock:
        other = copied(center)
        assert other.lock is not center.lock
        done = Thread(target=other.pull, args=(["w"],), daemon=True)
        done.start()
        done.join(60)
        assert not done.is_alive()
