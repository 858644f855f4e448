"""A process with a separate network, and with Ray on each of its machines.

``training`` starts ``python -m harness.tasks.slow_link.laboratory BACKEND SOCKET`` in
separate namespaces. This process and the center are on machine 0, and worker k is on
machine k + 1. It receives the settings of one run at a time, and replies with its
outcome or with an error sentence.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.slow_link.link import answering
from harness.tasks.slow_link.machines import (
    INTERFACE,
    Network,
    address,
    inside,
    mount_memory,
)
from harness.tasks.slow_link.task import Settings
from harness.tasks.worker_team.local_ray import ONE_MACHINE, Team, local_ray, on_machine
from harness.tasks.worker_team.measurement import Measurement, histograms
from harness.tasks.worker_team.settings import MOST, PERIODS
from lockstep.ray import RayCenter
from lockstep.ray.center import OPTIONS, CenterActor, host_of

__all__ = ["Laboratory", "main"]

OBJECT_STORE = 256 << 20
"""Bytes of memory on each machine for objects in transit."""

SECONDS_FOR_NODE = 60.0
"""The timeout of Ray's start on a new machine."""

MODEL_FILES = "harness.tasks.slow_link"


class Laboratory:
    """The machines, which are added when a run needs them, and their processes.

    Args:
        kind: the class of a worker.
        folder: the folder for files of runs, which is removed when this process ends.
    """

    def __init__(self, kind: type, folder: Path) -> None:
        self.folder, self.kind = folder, kind
        self.network = Network()
        self.ray = local_ray(address(0), OBJECT_STORE)
        self.runs = 0

    @functools.cached_property
    def team(self) -> Team:
        """One worker on each machine but the first."""
        places = [address(k + 1) for k in range(MOST)]
        return Team(self.ray, self.kind, places)

    def measure(self, settings: Settings) -> Outcome:
        """Do one run."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        self.require_workers(settings.workers)
        self.network.slow_down(settings.link_mbit)
        return SlowLink(settings, self, folder).all()

    def require_workers(self, count: int) -> None:
        """Add machines with Ray nodes until there is one for each worker."""
        while len(self.network.machines) <= count:
            # One after the other, because simultaneous starts use the same file names.
            self._start_node(self.network.add())
            self._wait_for_nodes(len(self.network.machines))

    def _wait_for_nodes(self, count: int) -> None:
        end = time.monotonic() + SECONDS_FOR_NODE
        while sum(node["Alive"] for node in self.ray.nodes()) < count:
            if time.monotonic() > end:
                raise HarnessError(f"node {count} of Ray did not start in time.")
            time.sleep(0.2)

    def _start_node(self, machine: int) -> None:
        head = self.ray.get_runtime_context().gcs_address
        options = {
            "address": head,
            "node-ip-address": address(machine),
            "num-cpus": 1,
            "object-store-memory": OBJECT_STORE,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        command = inside(self.network.machines[machine], ray)
        quiet: dict[str, Any] = dict.fromkeys(
            ("stdin", "stdout", "stderr"), subprocess.DEVNULL
        )
        # Ray must not be restricted to one machine here.
        variables = {**os.environ, ONE_MACHINE: "1"}
        subprocess.Popen(command, env=variables, **quiet)


class SlowLink(Measurement):
    """The measurements of a run on separate machines."""

    def __init__(
        self, settings: Settings, laboratory: Laboratory, folder: Path
    ) -> None:
        center = RayCenter(f"center-{folder.name}", directory=folder / "center")
        super().__init__(settings, laboratory.team, center)
        self.network, self.folder = laboratory.network, folder
        self.transfer = settings.model_bytes / (1e6 * settings.link_mbit / 8)

    def all(self) -> Outcome:
        """Measure everything."""
        self.folder.mkdir()
        self.link()
        self.make_center()
        self.one_worker()
        self.synchronous(self.folder / "ranks")
        stale = {period: self.asynchronous(period) for period in PERIODS}
        self.center.remove()
        return Outcome("ok", "", histograms(stale), self.summary)

    def link(self) -> None:
        """Measure the link of a worker without other traffic."""
        with answering(address(0)) as place:
            [link] = self.team.call(1, "measure_link", *place)
        self.summary |= {
            "link/bandwidth": link.bandwidth,
            "link/latency": link.latency,
        }

    def make_center(self) -> None:
        """Start the center on machine 0; by default Ray would choose any machine."""
        name, arguments = self.center.name, host_of(self.center).arguments
        options = {**OPTIONS, "resources": on_machine(address(0))}
        remote = self.team.ray.remote(CenterActor).options(name=name, **options)
        self.team.ray.get(remote.remote(name, *arguments).__ray_ready__.remote())

    def counted_bytes(self) -> int:
        """Return the bytes that the machines of this run's workers have sent."""
        return sum(self.network.sent_bytes(k + 1) for k in range(self.workers))

    def seconds_to_settle(self, period: int) -> float:
        """Return the seconds until the order of pushes is settled, with slow links.

        Workers start together, so their first pushes queue at the center's link.
        """
        return super().seconds_to_settle(period) + (self.workers + 1) * self.transfer

    def asynchronous(self, period: int) -> Counter[int]:
        """Measure steps and the interfaces' bytes; return the staleness of pushes."""
        before = self.counted_bytes()
        stale = super().asynchronous(period)
        sent = self.counted_bytes() - before
        self.summary[f"bytes/{period}"] = sent / sum(stale.values()) / period
        return stale


def main(backend: str, socket: str) -> None:
    """Do runs until the requesting process ends."""
    connection = Connection(int(socket))
    requests: SimpleQueue[Settings] = SimpleQueue()
    listening = threading.Thread(target=_listen, args=(connection, requests))
    listening.daemon = True
    listening.start()
    kind = backends.model(MODEL_FILES, backend).Worker
    folder = mount_memory()
    variables = {"RAY_TMPDIR": str(folder), "GLOO_SOCKET_IFNAME": INTERFACE}
    os.environ.update(variables)
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
