"""Steps per second of workers on separate machines with slow links.

A machine is a network namespace with a Ray node. A link is a pair of virtual interfaces
to a bridge between all machines. The kernel limits its rate in both directions. So all
exchanges are really sent, although everything runs on one computer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Positive, settings
from harness.tasks.slow_link import machines
from harness.tasks.slow_link.machines import address
from harness.tasks.worker_team import task as workers
from harness.tasks.worker_team.task import prepare as prepare
from lockstep.ray import RayCenter

SECONDS_FOR_START, WINDOWS = 600.0, 20
"""The timeout of a run: seconds for the start, and multiples of its window."""

SECONDS_FOR_NODE = 120.0
"""The timeout of Ray's start on a machine."""

OBJECT_STORE = 256 << 20
"""Bytes of memory on each machine for objects in transit."""


@settings
class Settings(workers.TeamSettings):
    link_mbit: Positive  # megabits a second of each link in each direction


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; nothing is random, so a seed is a repetition.

    Namespaces cannot be left, so each run has a process of its own.

    Summary, in seconds, and in steps per second of all workers:

    - of the link of one worker: ``link/bandwidth``, bytes per second, and
      ``link/latency``, one way;
    - of one worker: ``seconds/step`` without an exchange, ``seconds/exchange``, the
      additional time of an exchange, ``seconds/center``, its CPU time at the center;
    - ``steps/ddp`` and ``steps/PERIOD``.

    Raises:
        UnsupportedError: this computer does not allow slow links.
        HarnessError: the run failed or took too long.
    """
    machines.require_machines()
    seconds = SECONDS_FOR_START + WINDOWS * Settings(**config).window
    program = f"from {__name__} import run; run({dict(config)!r}, {backend!r})"
    command = machines.isolated([sys.executable, "-c", program])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"a run was not done in {seconds:g} s.") from error
    if done.returncode:
        last = machines.last_line(done)
        raise HarnessError(f"a run on separate machines failed: {last}")
    return Outcome("ok", "", {}, json.loads(done.stdout.splitlines()[-1]))


def run(config: Mapping[str, Any], backend: str) -> None:
    """Build the machines, do a run on them, and print its summary as JSON.

    This process and the center are on machine 0, and worker k is on machine k + 1.
    """
    of = Settings(**config)
    machines.build(of.workers + 1, of.link_mbit)
    folder = Path(machines.MEMORY)
    os.environ["RAY_TMPDIR"] = str(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = machines.INTERFACE
    ray = workers.start_ray(address(0), OBJECT_STORE)
    for machine in range(1, of.workers + 1):
        # One after the other, because simultaneous starts use the same file names.
        start_node(ray, machine)
    kind = backends.model("slow_link", backend).Worker
    team = workers.Team(ray, kind, [address(k + 1) for k in range(of.workers)])
    server = machines.answer(address(0))
    [link] = team.call(1, "call", machines.measure, server)
    place = workers.on_machine(address(0))
    center = RayCenter("center", directory=folder / "center", resources=place)
    # Workers start together, so their first pushes queue at the center's link.
    transfer = of.model_bytes / (1e6 * of.link_mbit / 8)
    settling = (of.workers + 1) * transfer
    outcome = workers.measure(of, team, center, folder / "ranks", settling)
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
