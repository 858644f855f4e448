"""Lines that a center and its workers write down, so that they survive a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
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

__all__ = ["WORKERS", "Line", "NumpyView", "Record", "RecordedActor", "train"]

WORKERS = 3
PAUSE = 0.02
"""Seconds between two rounds of a worker: 200 kills then leave some MB of lines."""

Line = dict[str, Any]


class Record:
    """A file in a folder to which processes append lines of JSON.

    A line is written by one call of the system, so a kill leaves it whole or out.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = Path(folder, "record.jsonl")

    def write(self, what: str, **fields: Any) -> None:
        """Append a line."""
        line = {"what": what, "pid": os.getpid(), **fields}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.write(descriptor, f"{json.dumps(line)}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self) -> Iterator[Line | None]:
        """Yield the lines from the first one on; None as long as there is no more.

        A line that crosses a page of the file can be read before its second half is
        there.
        """
        self.path.touch()
        text = ""
        with self.path.open() as file:
            while True:
                text += file.readline()
                if text.endswith("\n"):
                    yield json.loads(text)
                    text = ""
                else:
                    yield None


class RecordedCenter(ServedCenter):
    """A center that writes down each push before it looks at it, and before it replies.

    Each push changes one element of ``w`` by 1.
    """

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


def train(center: RayCenter, slot: int) -> None:
    """Train until the end of training, of which a worker may hear when it joins."""
    assert center.directory is not None
    record = Record(center.directory)
    record.write("worker", slot=slot)
    with suppress(TrainingEndedError):
        take_rounds(center, slot, record)


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


def take_rounds(center: RayCenter, slot: int, record: Record) -> None:
    """Join, and take rounds of which each adds 1 to an element of ``w``."""
    view = NumpyView(center, np.zeros(WORKERS, np.float32))
    member = view.member
    change: Array = np.eye(WORKERS, dtype=np.float32)[slot]
    with suppress(TrainingEndedError):
        while True:
            view.send({"w": change})
            view.pull()
            push = [member.worker, member.sequence]
            state = {"rounds": member.rounds, "weights": view.weight.tolist()}
            record.write("ack", push=push, slot=slot, **state)
            time.sleep(PAUSE)
    view.leave()
