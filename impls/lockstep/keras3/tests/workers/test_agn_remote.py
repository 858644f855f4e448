"""Workers of Keras whose center is behind the boundary of a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from lockstep import keras3
from lockstep.errors import (
    OutOfRangeError,
    UnsupportedError,
)
from lockstep.keras3.agn_center import RemoteCenter
from lockstep.keras3.tests.workers.worker_pairs import (
    model,
    same,
    shared,
    step,
    weights,
    worker_of,
)
from lockstep.ray.tests.local_host import LocalHost

ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]
Make = Callable[[], keras.optimizers.Optimizer]


def rows(path: str = "hidden/kernel") -> keras.optimizers.Optimizer:
    """Return an optimizer with wrappers inside, one of which knows paths."""
    sgd = keras.optimizers.SGD(0.25, momentum=0.9)
    clipping = keras3.VariableClippingOptimizer(sgd, {path: [0]}, max_norm=0.3)
    return keras3.MultitaskOptimizerWrapper(clipping)


RULES: dict[str, tuple[Make, Any]] = {
    "SGD": (lambda: keras.optimizers.SGD(0.1), keras3),
    "momentum": (lambda: keras.optimizers.SGD(0.1, 0.9, nesterov=True), keras3),
    "Adam": (lambda: keras.optimizers.Adam(0.01), keras3),
    "AdamW, norms": (
        lambda: keras.optimizers.AdamW(0.01, global_clipnorm=0.1),
        keras3,
    ),
    "average": (
        lambda: keras.optimizers.RMSprop(0.01, use_ema=True, centered=True),
        keras3,
    ),
    "NovoGrad": (lambda: keras3.NovoGrad(0.01), keras3),
    "wrappers": (rows, keras3),
}


class Team:
    """Workers of one center on a served one, or of one process without a host."""

    def __init__(
        self, make: Make, host: LocalHost | None, count: int = 3, **options: Any
    ) -> None:
        self.host = host
        self.models = [model(number) for number in range(count)]
        self.workers: list[Any] = []
        center = None
        for trained in self.models:
            center = center if host is None else RemoteCenter(host)
            worker = worker_of(trained, center, rule=make(), **options)
            center = worker.custom_getter.center
            self.workers.append(worker)
        for number, worker in enumerate(self.workers):
            worker.get_init_op(number)

    def step(self, number: int, row: int) -> None:
        step(self.models[number], self.workers[number], row % 4)

    def shared(self) -> list[Any]:
        if self.host is None:
            return shared(self.workers[0])
        assert self.host.center is not None
        return list(self.host.center.present().values())


FEW = ("momentum", "average", "wrappers")
"""The others wait for the soak."""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.soak] * (n not in FEW)) for n in RULES],
)
def test_the_center_moves_as_that_of_one_process(name: str, tmp_path: Path) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    make, names = RULES[name]
    host = LocalHost(tmp_path)
    ours = Team(make, host, names=names)
    theirs = Team(make, None, names=names)
    start = theirs.shared()
    for turn, number in enumerate(ORDER):
        if turn == 6:
            host.lost = 1
        ours.step(number, turn)
        theirs.step(number, turn)
        if turn == 9:
            host.crash()
    assert same(ours.shared(), theirs.shared())
    assert not same(ours.shared(), start)
    for one, other in zip(ours.models, theirs.models, strict=True):
        assert same(weights(one), weights(other))
    assert host.center is not None
    assert host.center.counters.repeated == 1
    assert host.center.counters.rounds == 7


@pytest.mark.sample(1)
@pytest.mark.parametrize("commit", ["gradient", "delta"])
def test_a_wrapper_around_moves_the_center_as_in_one_process(
    commit: str, tmp_path: Path
) -> None:
    """A gradient of zeros is absent, so its variable is neither pushed nor pulled."""
    host = LocalHost(tmp_path)
    teams = [Team(momentum, h, 2, commit=commit) for h in (host, None)]
    for team in teams:
        around = [keras3.MultitaskOptimizerWrapper(worker) for worker in team.workers]
        for turn in range(8):
            trained = team.models[turn % 2].trainable_variables
            random = np.random.default_rng(turn)
            found = [np.float32(random.normal(size=v.shape)) for v in trained]
            # At the sixth step, all of them.
            for place in range(4) if turn == 5 else [turn % 3]:
                found[place] *= 0
            around[turn % 2].apply(found, trained)
    ours, theirs = teams
    assert same(ours.shared(), theirs.shared())
    for one, other in zip(ours.models, theirs.models, strict=True):
        assert same(weights(one), weights(other))
    assert host.center is not None
    assert host.center.counters.rounds == 3


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.5, momentum=0.5)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    make: Make, tmp_path: Path
) -> None:
    team = Team(lambda: keras.optimizers.Adam(0.1), LocalHost(tmp_path), 1)
    team.step(0, 0), team.step(0, 1)
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError):
        Team(make, host, 1)
    assert not host.exists()
    again = Team(lambda: keras.optimizers.Adam(0.1), LocalHost(tmp_path), 1)
    assert same(weights(again.models[0]), team.shared())


def test_a_push_with_nan_is_refused_and_nothing_has_moved(tmp_path: Path) -> None:
    team = Team(momentum, LocalHost(tmp_path), 1, communication_period=1)
    before = team.shared()
    variables = team.models[0].trainable_variables
    gradients = [np.full(v.shape, np.nan, np.float32) for v in variables]
    with pytest.raises(OutOfRangeError, match=r"inf or NaN for .*; nothing has moved"):
        team.workers[0].apply(gradients, variables)
    assert same(team.shared(), before)
    team.workers[0].get_init_op(0)
    team.step(0, 0)
    assert not same(team.shared(), before)
