"""One run, in a process that builds the machines and starts Ray on each of them.

``python -m harness.tasks.slow_link.laboratory BACKEND CONFIG``, in separate namespaces,
prints the summary of the run as JSON. This process and the center are on machine 0, and
worker k is on machine k + 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
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


def main(backend: str, config: str) -> None:
    settings = Settings(**json.loads(config))
    machines.build(settings.workers + 1, settings.link_mbit)
    folder = Path(machines.MEMORY)
    os.environ["RAY_TMPDIR"] = str(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = machines.INTERFACE
    ray = workers.start_ray(address(0), OBJECT_STORE)
    places = [address(k + 1) for k in range(settings.workers)]
    for machine in range(1, settings.workers + 1):
        # One after the other, because simultaneous starts use the same file names.
        start_node(ray, machine)
    kind = backends.model("slow_link", backend).Worker
    team = workers.Team(ray, kind, places)
    server = machines.answer(address(0))
    [link] = team.call(1, "call", machines.measure, server)
    center = RayCenter(
        "center",
        directory=folder / "center",
        resources=workers.on_machine(address(0)),
    )
    # Workers start together, so their first pushes queue at the center's link.
    transfer = settings.model_bytes / (1e6 * settings.link_mbit / 8)
    settling = (settings.workers + 1) * transfer
    outcome = workers.measure(settings, team, center, folder / "ranks", settling)
    print(json.dumps({**link, **outcome.summary}), flush=True)
    os._exit(0)  # The kernel ends all processes of this namespace with the first one.


def start_node(ray: Any, machine: int) -> None:
    """Start a node of Ray on a machine, and wait until it is there."""
    options = {
        "address": ray.get_runtime_context().gcs_address,
        "node-ip-address": address(machine),
        "num-cpus": 1,
        "object-store-memory": OBJECT_STORE,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
    subprocess.Popen(
        machines.on_machine(machine, start),
        # Ray must not be restricted to one machine here.
        env={**os.environ, workers.ONE_MACHINE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + SECONDS_FOR_NODE
    while sum(node["Alive"] for node in ray.nodes()) <= machine:
        if time.monotonic() > end:
            raise HarnessError(f"node {machine + 1} of Ray did not start in time.")
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
