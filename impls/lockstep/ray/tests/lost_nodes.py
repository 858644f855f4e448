"""A cluster of three nodes, of which two are killed one after the other.

``python -m lockstep.ray.tests.lost_nodes FOLDER`` trains with a worker on each. It
kills a node with a worker, then the one that has the center and a worker, and writes
what became of training to a JSON file.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from harness.runs.tests.nodes import Nodes, head
from lockstep.errors import CenterEmptyError, TrainingEndedError
from lockstep.interface import Array
from lockstep.ray import RayCenter
from lockstep.ray import center as on_ray
from lockstep.ray.center import RayHost
from lockstep.ray.tests.conftest import time_limit
from lockstep.ray.tests.processes import place_of
from lockstep.ray.tests.small_workers import NumpyView

RESULT = "seen.json"
SECONDS = 200.0
"""How long everything may take; half a minute on a busy machine."""
EVERY = 4
ROUNDS = 10
"""Rounds of a worker from which one sees that it goes on."""


def train(center: RayCenter, slot: int) -> int:
    """Add 1 to an element of ``w`` in each round until the end; return the rounds."""
    change: Array = np.eye(3, dtype=np.float32)[slot]
    view, rounds = NumpyView(center, np.zeros(3, np.float32)), 0
    with suppress(TrainingEndedError):
        while True:
            view.send({"w": change})
            view.pull()
            rounds += 1
            time.sleep(0.02)
    return rounds


def weights(center: RayCenter) -> Array:
    """Return the center's weights, as soon as a worker has sent it any."""
    while True:
        with suppress(CenterEmptyError):
            return center.weights()["w"]
        time.sleep(0.05)


def wait_for_rounds(center: RayCenter, *slots: int) -> None:
    """Wait until each of these workers has done some rounds."""
    before = weights(center)
    while any(weights(center)[slot] < before[slot] + ROUNDS for slot in slots):
        time.sleep(0.05)


def add_node(ray: Any, nodes: Nodes) -> str:
    """Add a node with one core, and return its name in the cluster."""
    before = {node["NodeID"] for node in ray.nodes()}
    nodes.add()
    (new,) = {node["NodeID"] for node in ray.nodes()} - before
    return str(new)


def lose_nodes(ray: Any, nodes: Nodes, folder: Path) -> dict[str, Any]:
    """Kill two nodes while all train, and return what was seen."""
    names = [add_node(ray, nodes) for _ in range(3)]
    # The head has no core, so the center is on a node as long as there is one.
    on_ray.OPTIONS["num_cpus"] = 1
    center = RayCenter("nodes", directory=folder, every=EVERY)
    RayHost(center).make()
    where, process = place_of(ray, center)
    place = names.index(where)
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    tasks = [
        ray.remote(train)
        .options(num_cpus=0, max_retries=0, scheduling_strategy=strategy(name, False))
        .remote(center, slot)
        for slot, name in enumerate(names)
    ]
    wait_for_rounds(center, 0, 1, 2)
    first, last = {0, 1, 2} - {place}
    # Among the nodes the head has the number 0.
    nodes.kill(1 + first)
    wait_for_rounds(center, place, last)
    is_same = place_of(ray, center) == (where, process)
    nodes.kill(1 + place)
    wait_for_rounds(center, last)
    now, _ = place_of(ray, center)
    rounds = center.end()["rounds"]
    lost = ray.get(tasks[last]) - weights(center)[last]
    return {
        "not moved by another node": is_same,
        "moved to the last": now == names[last],
        "consistent": bool(weights(center).sum() == rounds),
        "lost": float(lost),
    }


def main(folder: Path) -> None:
    """Start the cluster, lose its nodes, and end it."""
    with time_limit(SECONDS), head() as nodes:
        # It reads the variables of the cluster when it is imported.
        import ray

        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        try:
            seen = lose_nodes(ray, nodes, folder)
        finally:
            # Without a head it would look for one until it gives up.
            ray.shutdown()
    # Not to the standard output, where Ray writes, too.
    Path(folder, RESULT).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
