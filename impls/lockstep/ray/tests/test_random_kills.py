"""A center that is killed at random moments is in a state that the promise allows."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from lockstep._version import __version__
from lockstep.ray.served_center import Membership, Start, SummedWeights, layout
from lockstep.ray.tests.local_host import LocalHost, copied
from lockstep.ray.worker import Member

WORKERS, EVERY, KILLS = 3, 4, 40

IN_A_CHECKPOINT = ["numpy.savez", "os.fsync", "pathlib.Path.replace"]
MOMENTS = ["before", "after", *IN_A_CHECKPOINT]


class Kill(BaseException):
    """Ends a call as a kill does: nothing catches it."""


def kill(*_: Any, **__: Any) -> NoReturn:
    raise Kill


class KillingHost(LocalHost):
    """Kills the center around or within some calls, and calls again as Ray does.

    Attributes:
        kills: how often it was killed.
    """

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(folder, EVERY)
        self.draw = draw
        self.kills = 0

    def call(self, method: str, *arguments: Any) -> Any:
        while True:
            moment = self.draw.choice(MOMENTS) if self.draw.random() < 0.4 else None
            try:
                return copied(self.call_until(moment, method, copied(arguments)))
            except Kill:
                self.kills += 1
                self.crash()

    def call_until(self, moment: str | None, method: str, arguments: Any) -> Any:
        """Call, with a kill at this moment if it comes."""
        if moment == "before":
            raise Kill
        with pytest.MonkeyPatch.context() as patched:
            if moment in IN_A_CHECKPOINT:
                patched.setattr(moment, kill)
            reply = getattr(self.center, method)(*arguments)
        if moment == "after":
            raise Kill
        return reply


def joined(host: KillingHost) -> Member:
    """Return a worker that has joined."""
    weights = {f"w{k}": np.zeros(()) for k in range(WORKERS)}
    own = Membership(__version__, "reference", "delta", layout(weights), [])
    member = Member(host, lambda: Start(SummedWeights(weights), own))
    member.join()
    return member


def test_copies_and_what_is_loaded_twice_are_workers_of_their_own() -> None:
    member = Member(None, dict)  # type: ignore[arg-type]
    saved = pickle.dumps(member)
    team = [member, copy.deepcopy(member), pickle.loads(saved), pickle.loads(saved)]
    assert len({each.worker for each in team}) == 4


@pytest.mark.parametrize("seed", range(5))
def test_a_push_is_in_once_on_top_of_a_state_of_a_few_rounds_ago(
    seed: int, tmp_path: Path
) -> None:
    """Each worker adds 1 to a weight of its own, so weights count what was applied."""
    host = KillingHost(tmp_path, random.Random(seed))
    host.make()
    members = [joined(host) for _ in range(WORKERS)]
    names = [f"w{k}" for k in range(WORKERS)]
    states, rounds = {0: dict.fromkeys(names, 0.0)}, 0
    while host.kills < KILLS:
        kills = host.kills
        number = host.draw.randrange(WORKERS)
        members[number].push({names[number]: np.ones(())}, None)
        assert host.center is not None
        found = {n: float(w) for n, w in host.center.present().items()}
        before = {**found, names[number]: found[names[number]] - 1.0}
        reached = members[number].rounds
        assert states[reached - 1] == before
        lost = rounds + 1 - reached
        assert 0 <= lost <= (EVERY if host.kills > kills else 0)
        states = {r: s for r, s in states.items() if r < reached} | {reached: found}
        rounds = reached
