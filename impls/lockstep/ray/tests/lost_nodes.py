"""A cluster of three nodes, of which two are killed one after the other.

``python -m lockstep.ray.tests.lost_nodes FOLDER`` trains with a worker on each. It
kills a node with a worker, then the one that has the center and a worker, and writes
what became of training to a JSON file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.runs.tests.nodes import Nodes, head
from lockstep.ray import center as on_ray
from lockstep.ray.tests.limits import time_limit
from lockstep.ray.tests.soak import Team

RESULT = "seen.json"
SECONDS = 200.0
"""How long everything may take; half a minute on a busy machine."""
ROUNDS = 10
"""Rounds of a worker from which one sees that it goes on."""


def alive(ray: Any) -> list[str]:
    """Return the names of the nodes, the head's among them."""
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def add_node(ray: Any, nodes: Nodes) -> str:
    """Add a node with one core, and return its name in the cluster."""
    before = {*alive(ray)}
    nodes.add()
    (new,) = {*alive(ray)} - before
    return new


def wait_for_rounds(team: Team, *slots: int) -> None:
    """Wait until each of these workers has done some rounds."""
    for slot in slots:
        team.wait(lambda line, slot=slot: is_ack(line, slot), ROUNDS)


def is_ack(line: dict[str, Any], slot: int) -> bool:
    return bool(line["what"] == "ack" and line["slot"] == slot)


def is_start(line: dict[str, Any]) -> bool:
    return bool(line["what"] == "start")


def lose_nodes(ray: Any, nodes: Nodes, folder: Path) -> dict[str, Any]:
    """Kill two nodes while all train, and return what was seen."""
    names = [add_node(ray, nodes) for _ in range(3)]
    # The head has no core, so the center is on a node as long as there is one.
    on_ray.OPTIONS["num_cpus"] = 1
    team = Team(ray, folder, "nodes")
    place = names.index(team.wait(is_start)["node"])
    for slot, name in enumerate(names):
        strategies = ray.util.scheduling_strategies
        here = strategies.NodeAffinitySchedulingStrategy(name, soft=False)
        team.start(slot, scheduling_strategy=here)
    wait_for_rounds(team, 0, 1, 2)
    first, last = {0, 1, 2} - {place}
    # Among the nodes the head has the number 0.
    nodes.kill(1 + first)
    wait_for_rounds(team, place, last)
    restarts = sum(map(is_start, team.record.lines())) - 1
    nodes.kill(1 + place)
    after = names.index(team.wait(is_start)["node"])
    wait_for_rounds(team, last)
    return {
        "restarts before": restarts,
        "moved to the last": after == last,
        "losses": team.end([last]),
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
