"""Worker processes on the nodes of a Ray cluster, instead of on this machine.

a thread of the command -> an actor with one core of some node -> a child process there

Ray chooses the node. The lines sent and received are the same as with a local child. So
only the command writes records, on the machine on which it was started.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError
from harness.processes.children import ROOT, Child, watched
from harness.processes.environment import child_variables
from harness.records.code import commit_of
from lockstep.errors import sentence

SECONDS_FOR_A_CORE = 60.0
"""Limit of the wait for a free core. The cores of a lost node do not come back."""

SUBJECT = "--cluster"


class NodeLostError(Exception):
    """The node of a worker was lost, or no node has a free core."""


class Cluster:
    """The nodes of a running Ray cluster, each with this checkout at the same path.

    Args:
        address: of the cluster, as for ``ray.init``: ``auto`` on one of its nodes,
            ``ray://HOST:10001`` elsewhere.

    Attributes:
        cores: number of workers that the cluster can run in parallel.
        ended: whether this command has left the cluster.

    Raises:
        HarnessError: Ray or the cluster was not found, or a node has other code.
    """

    def __init__(self, address: str) -> None:
        self._ray = connected(address)
        self.ended = False
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self.cores = sum(int(node["Resources"].get("CPU", 0)) for node in nodes)
        try:
            require_same_code(self._ray)
            if self.cores < 1:
                remedy = "add a node with `ray start --address=HOST:PORT`"
                text = sentence(SUBJECT, "a node with a core", "none", remedy)
                raise HarnessError(text)
        except BaseException:
            self.end()
            raise

    def start(self, module: str, arguments: Sequence[str]) -> RemoteChild:
        """Start ``python -m MODULE`` on a node with a free core."""
        return RemoteChild(self._ray, module, arguments)

    def end(self) -> None:
        """Disconnect from the cluster. All actors of this command end."""
        self.ended = True
        self._ray.shutdown()


class RemoteChild:
    """A child process on a node, with the methods of a local one.

    Raises:
        NodeLostError: the node is lost, or no node has a free core.
    """

    def __init__(self, ray: Any, module: str, arguments: Sequence[str]) -> None:
        self._ray = ray
        # A lost actor is not restarted: another worker gets its run.
        kind = ray.remote(num_cpus=1, max_restarts=0)(ChildOnNode)
        self._actor = kind.remote(module, list(arguments))
        self._result(self._actor.__ray_ready__, SECONDS_FOR_A_CORE)

    def send(self, line: str) -> None:
        """Write a line."""
        self._actor.send.remote(line)

    def receive(self) -> str | None:
        """Read a line. Return None if the child exited before the line was complete."""
        line: str | None = self._result(self._actor.receive)
        return line

    def end(self) -> str:
        """Wait for a child that needs no more lines; return how it ended."""
        how: str = self._result(self._actor.end)
        self.stop()
        return how

    def stop(self) -> None:
        """Stop a child that may still be working, and release its core."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)

    def _result(self, method: Any, seconds: float | None = None) -> Any:
        try:
            return self._ray.get(method.remote(), timeout=seconds)
        except self._ray.exceptions.GetTimeoutError as error:
            reason = f"no node had a core free for {seconds:g} s"
            cause: Exception = error
        except self._ray.exceptions.RayError as error:
            reason = f"a worker's node was lost: {last_line(error)}"
            cause = error
        # An unreachable worker must not continue a run that another one gets.
        self.stop()
        raise NodeLostError(reason) from cause


class ChildOnNode(Child):
    """The actor that starts a child process on its node."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        super().__init__(watched(module, arguments), child_variables())


def connected(address: str) -> Any:
    """Return Ray, connected to a running cluster."""
    try:
        import ray
    except ImportError as error:
        remedy = "run pip install ray, or leave --cluster out"
        raise HarnessError(sentence(SUBJECT, "Ray", "none", remedy)) from error
    paths = [str(ROOT), str(ROOT / "impls")]
    try:
        ray.init(
            address,
            job_config=ray.job_config.JobConfig(code_search_path=paths),
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        remedy = (
            "begin one with `ray start --head`, give its address here and its token in "
            "RAY_AUTH_TOKEN"
        )
        expected = "the address of a running Ray cluster"
        got = f"{address!r} ({last_line(error)})"
        raise HarnessError(sentence(SUBJECT, expected, got, remedy)) from error
    return ray


def require_same_code(ray: Any) -> None:
    """Raise unless every node has this commit at this path."""
    own = commit_of()
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = ray.remote(num_cpus=0)(commit_of)
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        place = on_node(node["NodeID"], soft=False)
        try:
            theirs = ray.get(asked.options(scheduling_strategy=place).remote())
            got, fine = f"commit {theirs[0]}", theirs == own
        except ray.exceptions.RayError as error:
            got, fine = last_line(error), False
        if not fine:
            expected = f"this checkout, commit {own[0]}, on every node"
            remedy = "bring every node to the same commit at the same path"
            got += f" on {node['NodeManagerAddress']}"
            raise HarnessError(sentence(SUBJECT, expected, got, remedy))


def last_line(error: Exception) -> str:
    """Return the last line of an error's text, which has the cause."""
    return (str(error).strip() or repr(error)).splitlines()[-1]
