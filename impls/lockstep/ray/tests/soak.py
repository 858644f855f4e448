"""Workers and a center whose processes are killed, and what they promise nevertheless.

They append what they do to a file, so that a kill loses no line. Each push adds 1 to
one of the center's weights, so the sum of these is the number of rounds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.errors import TrainingEndedError
from lockstep.interface import Array
from lockstep.ray import RayCenter
from lockstep.ray.center import CenterActor, RayHost
from lockstep.ray.served_center import Reply, Sender, ServedCenter, Start
from lockstep.ray.worker import RemoteView

WORKERS, EVERY = 3, 4
PAUSE = 0.02
"""Seconds between two rounds of a worker: 200 kills then leave some MB of lines."""
SECONDS = 60.0
"""The limit for the next line of a kind: a process starts in one or two."""

MOMENTS = ["call", "save", "done", "ack", "ack", "ack"]
"""Lines after which the process that wrote them is killed, a worker in half of them."""
FIRST_LINES = {"call": "start", "save": "start", "done": "start", "ack": "worker"}
"""What the next process writes first, whether it is a center or a worker."""

Line = dict[str, Any]


def check(lines: Iterable[Line], every: int = EVERY) -> list[int]:
    """Return how many rounds each restart of the center lost.

    Raises an AssertionError unless a center that was killed goes on from a state that
    it had at most ``every`` rounds ago, a push is in a state at most once, and a worker
    gets a state that the center had. A push during a kill may be in or not.
    """
    state: tuple[int, ...] = (0,) * WORKERS
    past, applied, losses = {state}, {}, []
    replies: defaultdict[Any, list[Any]] = defaultdict(list)
    call, is_empty = None, True
    for line in lines:
        what, push = line["what"], tuple(line.get("push", ()))
        found = tuple(line.get("weights", ()))
        assert line.get("rounds") in (None, sum(found)), line
        if what == "start":
            is_empty = True
        elif what == "call" and not is_empty:
            moved = tuple(w + (k == line["slot"]) for k, w in enumerate(state))
            call = push, moved
        elif what == "done":
            assert call is not None, line
            push, moved = call
            assert found == (state if push in applied else moved), line
            applied.setdefault(push, moved)
            past.add(found)
            replies[push].append(found)
            state, call = found, None
        elif what == "begin":
            if call is not None:
                past.add(call[1])
                applied[call[0]] = call[1]
            assert found in past, f"no state of the past: {line}"
            assert sum(state) - sum(found) <= every, f"after {state}: {line}"
            losses.append(max(0, sum(state) - sum(found)))
            past = {each for each in past if sum(each) <= sum(found)}
            applied = {p: s for p, s in applied.items() if sum(s) <= sum(found)}
            state, call, is_empty = found, None, False
        elif what == "ack":
            assert found in replies[push], line
        elif what == "end":
            assert found == state, line
    return losses[1:]


class Record:
    """A file in a folder to which processes append lines of JSON."""

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = Path(folder, "record.jsonl")
        self.path.touch()

    def write(self, what: str, **fields: Any) -> None:
        """Append a line by one call of the system, which a kill does not divide."""
        line = json.dumps({"what": what, "pid": os.getpid(), **fields})
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def follow(self) -> Iterator[Line | None]:
        """Yield the lines from the first one on; None as long as there is no more."""
        text = ""
        with self.path.open() as file:
            while True:
                # A line can be read before its second half is there.
                text += file.readline()
                if text.endswith("\n"):
                    yield json.loads(text)
                    text = ""
                else:
                    yield None

    def lines(self) -> list[Line]:
        """Return all lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class RecordedCenter(ServedCenter):
    """A center that writes down each push before it is applied, and its result."""

    def __init__(self, name: str, directory: str, *settings: Any) -> None:
        super().__init__(name, directory, *settings)
        self.record = Record(directory)

    def begin(self, start: Start, birth: str | None = None) -> None:
        was_empty = self.weights is None
        super().begin(start, birth)
        if was_empty:
            self._write_state("begin")

    def push(self, sender: Sender, changes: Any, options: Any) -> Reply:
        slot = int(np.flatnonzero(changes["w"]).item())
        push = [sender.worker, sender.sequence]
        self.record.write("call", push=push, slot=slot)
        reply = super().push(sender, changes, options)
        self._write_state("done")
        return reply

    def _save(self) -> None:
        self.record.write("save")
        super()._save()

    def _write_state(self, what: str) -> None:
        weights = self.present()["w"].tolist()
        self.record.write(what, rounds=self.counters.rounds, weights=weights)


class RecordedActor(CenterActor):
    """The process of a :class:`RecordedCenter`."""

    def __init__(self, name: str, directory: str, *settings: Any) -> None:
        import ray

        self.center = RecordedCenter(name, directory, *settings)
        node = ray.get_runtime_context().get_node_id()
        self.center.record.write("start", node=node)


class NumpyView(RemoteView):
    """The view of a worker that has one weight, ``w``, and no framework."""

    backend = "numpy"

    def __init__(self, center: RayCenter, weight: Array) -> None:
        super().__init__(RayHost(center))
        self.weight = weight
        self.begin("delta")
        self.pull()

    def arrays(self) -> dict[str, Array]:
        return {"w": self.weight}

    def pull(self) -> None:
        self.weight = np.array(self.member.pull(["w"])["w"])


def train(center: RayCenter, slot: int) -> None:
    """Add 1 to an element of ``w`` in each round, until the end of training."""
    assert center.directory is not None
    record = Record(center.directory)
    record.write("worker", slot=slot)
    change: Array = np.eye(WORKERS, dtype=np.float32)[slot]
    with suppress(TrainingEndedError):
        view = NumpyView(center, np.zeros(WORKERS, np.float32))
        member = view.member
        with suppress(TrainingEndedError):
            while True:
                view.send({"w": change})
                view.pull()
                push = [member.worker, member.sequence]
                state = {"rounds": member.rounds, "weights": view.weight.tolist()}
                record.write("ack", push=push, slot=slot, **state)
                time.sleep(PAUSE)
        view.leave()


class Team:
    """Three workers of a center, each a task of Ray's: the module, connected to it."""

    def __init__(self, ray: Any, folder: Path, name: str) -> None:
        self.ray = ray
        self.center = RayCenter(name, directory=folder, every=EVERY)
        self.record = Record(folder)
        self._lines = self.record.follow()
        self._tasks: dict[int, Any] = {}
        self._dead: set[int] = set()
        host = RayHost(self.center)
        host.actor = RecordedActor  # type: ignore[misc]
        assert host.make()

    def start(self, slot: int, **options: Any) -> None:
        """Start the worker of this number, or another in its place."""
        remote = self.ray.remote(train).options(num_cpus=0, max_retries=0, **options)
        self._tasks[slot] = remote.remote(self.center, slot)

    def wait(self, wanted: Callable[[Line], bool], count: int = 1) -> Line:
        """Return the ``count``-th wanted line from now on of a process that lives."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            line = next(self._lines)
            if line is None:
                time.sleep(0.005)
            elif wanted(line) and line["pid"] not in self._dead:
                count -= 1
                if not count:
                    return line
        # A worker that raised says why.
        ended, _ = self.ray.wait(list(self._tasks.values()), timeout=0)
        self.ray.get(ended)
        raise TimeoutError(f"{count} lines are missing")

    def kill(self, line: Line) -> None:
        """Kill the process that wrote a line; a worker gets a successor."""
        os.kill(line["pid"], signal.SIGKILL)
        self._dead.add(line["pid"])
        if "slot" in line and line["what"] != "call":
            self.start(line["slot"])

    def end(self, slots: Iterable[int] = range(WORKERS)) -> list[int]:
        """End training, wait for these workers, and check what all wrote down."""
        self.wait(lambda line: line["what"] == "done", 2 * EVERY)
        rounds = self.center.end()["rounds"]
        self.ray.get([self._tasks[slot] for slot in slots], timeout=SECONDS)
        weights = self.center.weights()["w"].tolist()
        self.record.write("end", rounds=rounds, weights=weights)
        return check(self.record.lines())

    def close(self) -> None:
        """End every process, whatever became of it."""
        for task in self._tasks.values():
            self.ray.cancel(task, force=True)
        self.center.remove()


def kill_at_random(team: Team, kills: int, seed: int) -> Counter[str]:
    """Kill workers and the center so often; return how often after which line.

    Now and then the process that takes the place of a killed one is killed at once.
    """
    for slot in range(WORKERS):
        team.start(slot)
    draw, moment, killed = random.Random(seed), "start", Counter[str]()
    for _ in range(kills):
        at_once = draw.random() < 0.2 and moment in FIRST_LINES
        moment = FIRST_LINES[moment] if at_once else draw.choice(MOMENTS)
        count = 1 if at_once else draw.randint(1, 12)
        team.kill(team.wait(lambda line, what=moment: line["what"] == what, count))
        killed[moment] += 1
    return killed
