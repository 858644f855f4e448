"""A cluster of a head and two nodes, which are killed one after the other.

``python -m lockstep.ray.tests.lost_nodes FOLDER`` trains with a worker on each. It
kills a node with a worker, then the one that has the center and a worker, and prints as
JSON what became of training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.runs.tests.nodes import Nodes, head
from lockstep.ray import actor
from lockstep.ray.tests.limits import time_limit
from lockstep.ray.tests.random_kills import Team, is_a

__all__: list[str] = []

SECONDS = 100.0
"""How long everything may take; it takes about twenty."""

ROUNDS = 10
"""Rounds of a worker from which one sees that it goes on."""

CENTER, WORKER = 1, 2
"""The node with the center and a worker, and the one with a worker alone."""


def here(ray: Any, node: str, soft: bool = False) -> dict[str, Any]:
    """Return Ray's options for a place on a node; soft: elsewhere if it is gone."""
    strategies = ray.util.scheduling_strategies
    place = strategies.NodeAffinitySchedulingStrategy(node, soft)
    return {"scheduling_strategy": place}


def alive(ray: Any) -> list[str]:
    """Return the nodes in the order in which they came."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return [node["NodeID"] for node in nodes]


def add_node(ray: Any, nodes: Nodes) -> str:
    """Add a node, and return its name in the cluster."""
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


def lose_nodes(ray: Any, nodes: Nodes, folder: Path) -> dict[str, Any]:
    """Kill both nodes while all train, and return what was seen."""
    names = [*alive(ray), add_node(ray, nodes), add_node(ray, nodes)]
    # Ray finds another node for the center only if this one is gone.
    actor.OPTIONS.update(here(ray, names[CENTER], soft=True))
    team = Team(ray, folder, "nodes")
    team.make_center()
    for slot, name in enumerate(names):
        team.start(slot, **here(ray, name))
    wait_for_rounds(team, 0, CENTER, WORKER)
    nodes.kill(WORKER)
    wait_for_rounds(team, 0, CENTER)
    restarts = team.history.counts["begin"] - 1
    nodes.kill(CENTER)
    start = team.wait(is_a("start"))
    wait_for_rounds(team, 0)
    team.end([0])
    history = team.history
    return {
        "restarts before": restarts,
        "nodes": [names[CENTER], start["node"]],
        "names": names,
        "lost": history.losses,
        "rounds": history.state[0],
        "summary": str(history),
    }


def main(folder: Path) -> None:
    """Start the cluster, lose its nodes, and end it."""
    import ray

    with time_limit(SECONDS), head() as nodes:
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        print(json.dumps(lose_nodes(ray, nodes, folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
