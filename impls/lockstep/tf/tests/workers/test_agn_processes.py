"""A cluster of TensorFlow 1 in processes of their own, and what a killed one costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest

import lockstep
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.workers.turns import EVENTS, START, State, replayed

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SECONDS = 200.0
"""After so many a process is killed, and what waits for its answer fails."""


class Task:
    """One process of the cluster; its lines of the log are read while it runs."""

    def __init__(self, job: str, number: int, addresses: str, folder: Path) -> None:
        script = Path(__file__).with_name("cluster_task.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), job, str(number), addresses, str(folder)],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(lockstep.__file__).parents[1]),
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._limit = threading.Timer(SECONDS, self.process.kill)
        self._limit.start()
        self._lost = threading.Event()
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read, args=[self.process.stderr])
        self._reader.start()

    def _read(self, log: IO[str]) -> None:
        """Read the log, and note where TensorFlow says that it lost a server."""
        for line in log:
            self._log.append(line)
            if "This may be due to a preemption" in line:
                self._lost.set()

    def tell(self, gradient: list[float]) -> None:
        """Let the worker take a step."""
        print(json.dumps(gradient), file=self.process.stdin, flush=True)

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "".join(self._log[-30:])
        return line

    def step(self, gradient: list[float]) -> State:
        """Take a step and return the state after it."""
        self.tell(gradient)
        return self.state()

    def state(self) -> State:
        """Return the state that a worker prints next."""
        found: State = json.loads(self.hear())
        return found

    def wait_for_loss(self) -> None:
        """Wait until the log says that a server is lost."""
        assert self._lost.wait(SECONDS)

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        self._limit.cancel()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


class Cluster:
    """A parameter server and two workers."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        ps, *workers = free_addresses(3)
        self._addresses = json.dumps({"ps": [ps], "worker": workers})
        self._folder, self._running = folder, running
        self.ps = self.start_ps()
        self.workers = [self._start("worker", number) for number in range(2)]
        self.begun = [worker.state() for worker in self.workers]

    def start_ps(self) -> Task:
        """Start the parameter server, at the address that it always has."""
        ps = self._start("ps", 0)
        assert ps.hear() == "ready"
        return ps

    def _start(self, job: str, number: int) -> Task:
        task = Task(job, number, self._addresses, self._folder)
        self._running.callback(task.kill)
        return task


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Start a cluster, and end its processes after the test."""
    with ExitStack() as running:
        yield Cluster(tmp_path, running)


def test_processes_train_as_the_reference_and_survive_the_parameter_server(
    cluster: Cluster,
) -> None:
    assert cluster.begun == [[START, START, [0.0, 0.0], 0, 0]] * 2
    states = [cluster.workers[who].step(gradient) for who, gradient in EVENTS]
    assert states == replayed()
    saved: Any = states[7]
    assert saved[4] == 4
    # The chief saves at its own rounds, so the fifth is in no checkpoint.
    assert cluster.workers[1].step([1.0, 1.0])[4] == 5

    cluster.ps.kill()
    for worker in cluster.workers:
        worker.tell([0.5, -0.5])
    for worker in cluster.workers:
        worker.wait_for_loss()
    cluster.start_ps()
    for worker in cluster.workers:
        weight, center, accumulator, local_step, rounds = worker.state()
        assert (center, rounds) == (saved[1], 4)
        assert weight != center
        assert (accumulator, local_step) == ([0.5, -0.5], 1)
