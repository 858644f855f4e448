"""Workers and their center in processes of Ray's, which are killed at random."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lockstep.ray import RayCenter
from lockstep.ray.center import RayHost
from lockstep.ray.tests.history import History
from lockstep.ray.tests.record import WORKERS, Line, Record, RecordedActor, train

__all__ = ["EVERY", "MOMENTS", "Team", "is_a", "kill_at_random"]

EVERY = 4
SECONDS = 60.0
"""How long the next line of a kind may take: a process starts in one or two."""

MOMENTS = ["call", "save", "done", "ack", "ack", "ack"]
"""Lines after which the process that wrote them is killed, a worker in half of them."""

FIRST_LINES = {"call": "start", "save": "start", "done": "start", "ack": "worker"}
"""What the next process writes first, whether it is a center or a worker."""


class Team:
    """Three workers of a center, each a task of Ray's.

    Args:
        ray: the module, connected to a cluster.
        folder: of the record and of the checkpoint. If there are some, the run that
            wrote them goes on.
        name: of the center.

    Attributes:
        history: of the lines that were read.
    """

    def __init__(self, ray: Any, folder: Path, name: str) -> None:
        self.ray = ray
        self.center = RayCenter(name, directory=folder, every=EVERY)
        self.record = Record(folder)
        self.history = History(EVERY)
        self._lines = self.record.lines()
        self.history.read(self._lines)
        self._tasks: dict[int, Any] = {}
        self._dead: set[int] = set()

    def make_center(self) -> None:
        """Start the center, which writes down what it does."""
        host = RayHost(self.center)
        host.actor = RecordedActor  # type: ignore[misc]
        assert host.make()

    def start(self, slot: int, **options: Any) -> None:
        """Start the worker of this number, or another in its place."""
        remote = self.ray.remote(train).options(num_cpus=0, max_retries=0, **options)
        self._tasks[slot] = remote.remote(self.center, slot)

    def wait(self, wanted: Callable[[Line], bool], count: int = 1) -> Line:
        """Return the ``count``-th line from now on that is wanted.

        Lines of processes that were killed do not count.
        """
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            line = next(self._lines)
            if line is None:
                time.sleep(0.005)
                continue
            self.history.take(line)
            if wanted(line) and line["pid"] not in self._dead:
                count -= 1
                if not count:
                    return line
        # A worker that raised has something to say.
        ended, _ = self.ray.wait(list(self._tasks.values()), timeout=0)
        self.ray.get(ended)
        raise TimeoutError(f"{count} lines are missing after {self.history.counts}")

    def kill(self, line: Line) -> None:
        """Kill the process that wrote a line; a worker gets a successor."""
        os.kill(line["pid"], signal.SIGKILL)
        self._dead.add(line["pid"])
        if "slot" in line and line["what"] != "call":
            self.start(line["slot"])

    def end(self, slots: Iterable[int] = range(WORKERS)) -> None:
        """End training, wait for these workers, and compare what the center has."""
        self.wait(is_a("done"), 2 * EVERY)
        rounds = self.center.end()["rounds"]
        self.ray.get([self._tasks[slot] for slot in slots], timeout=SECONDS)
        weights = self.center.weights()["w"].tolist()
        self.record.write("end", rounds=rounds, weights=weights)
        self.wait(is_a("end"))

    def close(self) -> None:
        """End every process, whatever became of it."""
        for task in self._tasks.values():
            self.ray.cancel(task, force=True)
        self.center.remove()


def kill_at_random(
    team: Team, kills: int, seed: int, say: Callable[[str], None]
) -> None:
    """Kill workers and the center until a record has so many kills.

    What is killed, and after how many lines, depends on the seed and the number of the
    kill alone. Now and then the process that takes its place is killed at once.
    """
    team.make_center()
    for slot in range(WORKERS):
        team.start(slot)
    moment = "start"
    for number in range(team.history.kills.total(), kills):
        draw = random.Random(f"{seed} {number}")
        at_once = draw.random() < 0.2 and moment in FIRST_LINES
        moment = FIRST_LINES[moment] if at_once else draw.choice(MOMENTS)
        line = team.wait(is_a(moment), 1 if at_once else draw.randint(1, 12))
        # Before it happens, so that no line of a successor comes in between.
        team.record.write("kill", number=number, moment=moment)
        team.kill(line)
        if (number + 1) % 10 == 0:
            say(f"{number + 1} kills, {team.history.state[0]} rounds")
    team.end()


def is_a(what: str) -> Callable[[Line], bool]:
    """Return a function that knows the lines of a kind."""
    return lambda line: line["what"] == what
