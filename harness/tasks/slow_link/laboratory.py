"""A process with a separate network, and with Ray on each of its machines.

``task`` starts ``python -m harness.tasks.slow_link.laboratory BACKEND SOCKET`` in
separate namespaces. This process and the center are on machine 0, and worker k is on
machine k + 1. It receives the settings of one run at a time, and replies with its
outcome or with an error sentence.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.slow_link import machines
from harness.tasks.slow_link.machines import address
from harness.tasks.slow_link.task import Settings
from harness.tasks.worker_team import task as workers
from lockstep.ray import RayCenter

OBJECT_STORE = 256 << 20
"""Bytes of memory on each machine for objects in transit."""

SECONDS_FOR_NODE = 120.0
"""The timeout of Ray's start on a new machine."""


class Laboratory:
    """The machines, which are added when a run needs them, and their processes.

    Args:
        kind: the class of a worker.
        folder: the folder for files of runs, which is removed when this process ends.
    """

    def __init__(self, kind: type, folder: Path) -> None:
        self.folder, self.runs = folder, 0
        self.network = machines.Network()
        self.ray = workers.start_ray(address(0), OBJECT_STORE)
        # One worker on each machine but the first.
        places = [address(k + 1) for k in range(workers.MOST)]
        self.team = workers.Team(self.ray, kind, places)

    def measure(self, settings: Settings) -> Outcome:
        while len(self.network.machines) <= settings.workers:
            # One after the other, because simultaneous starts use the same file names.
            self._add_machine()
        self.network.slow_down(settings.link_mbit)
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        [link] = self.team.call(
            1, "call", machines.measure, *machines.answer(address(0))
        )
        center = RayCenter(
            f"center-{folder.name}",
            directory=folder / "center",
            resources=workers.on_machine(address(0)),
        )
        # Workers start together, so their first pushes queue at the center's link.
        transfer = settings.model_bytes / (1e6 * settings.link_mbit / 8)
        settling = (settings.workers + 1) * transfer
        outcome = workers.measure(
            settings, self.team, center, folder / "ranks", settling
        )
        of_link = {f"link/{name}": value for name, value in link._asdict().items()}
        return replace(outcome, summary={**of_link, **outcome.summary})

    def _add_machine(self) -> None:
        """Add a machine with a Ray node, and wait until it has started."""
        machine = self.network.add()
        options = {
            "address": self.ray.get_runtime_context().gcs_address,
            "node-ip-address": address(machine),
            "num-cpus": 1,
            "object-store-memory": OBJECT_STORE,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        subprocess.Popen(
            machines.inside(self.network.machines[machine], ray),
            # Ray must not be restricted to one machine here.
            env={**os.environ, workers.ONE_MACHINE: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + SECONDS_FOR_NODE
        while sum(node["Alive"] for node in self.ray.nodes()) <= machine:
            if time.monotonic() > end:
                raise HarnessError(f"node {machine + 1} of Ray did not start in time.")
            time.sleep(0.2)


def main(backend: str, socket: str) -> None:
    """Do runs until the requesting process ends."""
    connection = Connection(int(socket))
    requests: SimpleQueue[Settings] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    kind = backends.model("slow_link", backend).Worker
    folder = machines.mount_memory()
    os.environ["RAY_TMPDIR"] = str(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = machines.INTERFACE
    laboratory = None
    while True:
        settings = requests.get()
        try:
            laboratory = laboratory or Laboratory(kind, folder)
            answer: Outcome | str = laboratory.measure(settings)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        connection.send(answer)


def _listen(connection: Connection, requests: SimpleQueue[Settings]) -> None:
    """Queue the requests; end this process when the other side is closed."""
    while True:
        try:
            requests.put(connection.recv())
        except (EOFError, OSError):
            # Exit immediately, because the main thread may wait for other machines. The
            # kernel ends all processes of this namespace with the first one.
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
