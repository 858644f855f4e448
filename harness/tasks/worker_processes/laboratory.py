"""The process that starts Ray and its workers, and does one run after the other.

``task`` starts ``python -m harness.tasks.worker_processes.laboratory`` with a backend,
the number of workers and the megabits a second of their links. With slow links it is in
namespaces of its own: this process and the center are on machine 0, and worker k is on
machine k + 1. If they are 0, all processes are on one machine.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.worker_processes import machines
from harness.tasks.worker_processes.task import TARGET, Settings

OBJECT_STORE = 256 << 20
"""Bytes of Ray's memory on each machine for objects in transit."""

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The seconds that Ray waits for its first process, twice the default.
    "RAY_gcs_server_port_wait_time_s": "60",
    # Without this variable Ray replaces 127.0.0.1 by the machine's address.
    ONE_MACHINE: "0",
}

STARTS = 3
"""The attempts to start Ray; it waits only 30 s for its second process."""

SECONDS_FOR_NODE = 120.0
"""The timeout of Ray's start on a new machine."""

LAST = 5
"""The measurements whose mean is the final accuracy."""


def start_ray(address: str) -> Any:
    """Start Ray, whose processes end with this one, and return it.

    They inherit our path and threads. On loopback no other machine can reach them.
    """
    # Ray and the processes that it starts read these variables on import.
    os.environ.update(VARIABLES)
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    for attempt in range(1, STARTS + 1):
        try:
            ray.init(
                address="local",
                _node_ip_address=address,
                include_dashboard=False,
                num_cpus=1,
                object_store_memory=OBJECT_STORE,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            break
        except Exception:  # Ray has no error of its own for a start that timed out.
            ray.shutdown()
            if attempt == STARTS:
                raise
    return ray


class Team:
    """Workers, each on its machine.

    Args:
        kind: the class of a worker.
        workers: their number.
        mbit: megabits a second of their links; 0 if all are on one machine.
        folder: the folder for files of runs.
    """

    def __init__(self, kind: type, workers: int, mbit: float, folder: Path) -> None:
        self.folder, self.runs = folder, 0
        addresses = ["127.0.0.1"] * (workers + 1)
        if mbit:
            addresses = [machines.address(k) for k in range(workers + 1)]
        self.ray = start_ray(addresses[0])
        if mbit:
            for machine in range(1, workers + 1):
                # One after the other, because simultaneous ones use the same files.
                start_node(self.ray, machine)
        # Ray gives each node one unit of a resource that is named by its address.
        self.center, *places = [{f"node:{at}": 0.001} for at in addresses]
        # They wait for each other most of the time, so none requests a core.
        worker = self.ray.remote(num_cpus=0)(kind)
        self.workers = [worker.options(resources=place).remote() for place in places]

    def measure(self, of: Settings, seed: int) -> Outcome:
        """Do a run."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        self._call("begin", of, seed, str(folder), self.center)
        begin = time.time() + 0.2
        answers = self._call("train", begin, begin + of.seconds)
        self._call("end")
        shutil.rmtree(folder, ignore_errors=True)
        steps = sum(steps / seconds for steps, seconds, _ in answers)
        return outcome(answers[0][2], of.seconds, steps)

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all workers in parallel, with their numbers."""
        calls = [
            getattr(worker, method).remote(number, *arguments)
            for number, worker in enumerate(self.workers)
        ]
        answers: list[Any] = self.ray.get(calls)
        return answers


def start_node(ray: Any, machine: int) -> None:
    """Start a node of Ray on a machine, and wait until it is there."""
    options = {
        "address": ray.get_runtime_context().gcs_address,
        "node-ip-address": machines.address(machine),
        "num-cpus": 1,
        "object-store-memory": OBJECT_STORE,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
    subprocess.Popen(
        machines.on_machine(machine, start),
        # Ray must not be restricted to one machine here.
        env={**os.environ, ONE_MACHINE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + SECONDS_FOR_NODE
    while sum(node["Alive"] for node in ray.nodes()) <= machine:
        if time.monotonic() > end:
            raise HarnessError(f"node {machine + 1} of Ray did not start in time.")
        time.sleep(0.2)


def outcome(
    measured: list[tuple[float, float, bool]], end: float, steps: float
) -> Outcome:
    """Return the outcome of a run; an accuracy holds until the next measurement.

    Args:
        measured: seconds, held-out accuracy, and whether the weights were finite.
        end: seconds of training that count.
        steps: local steps per second of all workers.
    """
    seconds, accuracy, finite = (list(column) for column in zip(*measured, strict=True))
    series = {"seconds": seconds, "accuracy": accuracy}
    if not finite[-1]:
        return Outcome("diverged", "the shared weights were not finite", series)
    reached = [s for s, a in zip(seconds, accuracy, strict=True) if a >= TARGET]
    # DDP takes a few steps more; they do not count.
    area = np.sum(np.diff(np.minimum([*seconds, end], end)) * accuracy)
    summary = {
        "accuracy": float(np.mean(accuracy[-LAST:])),
        "mean_accuracy": float(area / end),
        "to_target": reached[0] if reached else float("inf"),
        "steps": steps,
    }
    return Outcome("ok", "", series, summary)


def main(backend: str, workers: int, mbit: float) -> None:
    """Do the runs in the order in which they are read; an error ends this process."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What Ray prints is no answer.
    kind = backends.model("worker_processes", backend).Worker
    if mbit:
        machines.build(workers + 1, mbit)
        os.environ["RAY_TMPDIR"] = machines.MEMORY
        os.environ["GLOO_SOCKET_IFNAME"] = machines.INTERFACE
    with tempfile.TemporaryDirectory() as folder:
        team = Team(kind, workers, mbit, Path(folder))
        for line in sys.stdin:
            config, seed = json.loads(line)
            found = team.measure(Settings(**config), seed)
            answers.write(json.dumps(dataclasses.asdict(found)) + "\n")
            answers.flush()
        team.ray.shutdown()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
