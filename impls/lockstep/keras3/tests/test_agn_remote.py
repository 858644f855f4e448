"""Workers whose center is behind the boundary of a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from lockstep import keras3
from lockstep.errors import UnsupportedError
from lockstep.keras3.tests.agn_teams import Team, momentum
from lockstep.ray.tests.local_host import LocalHost

optimizers = keras.optimizers
ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]
Make = Callable[[], optimizers.Optimizer]


def wrappers() -> optimizers.Optimizer:
    """Return an optimizer with wrappers inside, one of which knows paths."""
    sgd = optimizers.SGD(0.25, momentum=0.9)
    rows = keras3.VariableClippingOptimizer(sgd, {"hidden/kernel": [0]}, max_norm=0.3)
    return keras3.MultitaskOptimizerWrapper(rows)


RULES: dict[str, Make] = {
    "momentum": lambda: optimizers.SGD(0.1, 0.9, nesterov=True),
    "average": lambda: optimizers.RMSprop(0.01, use_ema=True, centered=True),
    "wrappers": wrappers,
    # The others wait for the soak.
    "SGD": lambda: optimizers.SGD(0.1),
    "Adam": lambda: optimizers.Adam(0.01),
    "AdamW, norms": lambda: optimizers.AdamW(0.01, global_clipnorm=0.1),
    "NovoGrad": lambda: keras3.NovoGrad(0.01),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.soak] * (k > 2)) for k, n in enumerate(RULES)],
)
def test_the_center_moves_as_that_of_one_process(name: str, tmp_path: Path) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    host = LocalHost(tmp_path)
    ours, theirs = Team(RULES[name], host, 3), Team(RULES[name], None, 3)
    start = theirs.shared()
    for turn, number in enumerate(ORDER):
        host.lost += turn == 6
        ours.step(number, turn)
        theirs.step(number, turn)
        if turn == 9:
            host.crash()
    assert ours.shared() == theirs.shared() != start
    for number in range(3):
        assert ours.weights(number) == theirs.weights(number)
    assert (host.center.counters.repeated, host.center.counters.rounds) == (1, 7)


@pytest.mark.sample(1)
@pytest.mark.parametrize("commit", ["gradient", "delta"])
def test_a_wrapper_around_moves_the_center_as_in_one_process(
    commit: str, tmp_path: Path
) -> None:
    """A gradient of zeros is absent, so its variable is neither pushed nor pulled."""
    host = LocalHost(tmp_path)
    teams = [Team(momentum, h, commit=commit) for h in (host, None)]
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
    assert ours.shared() == theirs.shared()
    assert [ours.weights(k) for k in range(2)] == [theirs.weights(k) for k in range(2)]
    assert host.center.counters.rounds == 3


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "make", [momentum, lambda: optimizers.Adam(0.1, amsgrad=True)], ids=["SGD", "Adam"]
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    make: Make, tmp_path: Path
) -> None:
    def team(make: Make = lambda: optimizers.Adam(0.1), host: Any = None) -> Team:
        return Team(make, host or LocalHost(tmp_path), 1)

    saved = team()
    saved.step(0, 0), saved.step(0, 1)
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError):
        team(make, host)
    assert not host.exists()
    assert team().weights(0) == saved.shared()
