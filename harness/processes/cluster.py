"""Worker processes on the nodes of a Ray cluster, instead of on this machine.

a thread of the command -> an actor with one core of some node -> a child process there

Ray chooses the node. What is sent and answered is what a child of our own would get and
say, so records are written by the command alone, on the machine where it was given.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError
from harness.processes.children import ROOT, Children
from harness.records.code import commit_of
from lockstep.messages.errors import sentence

__all__ = ["Cluster", "NodeLostError", "RemoteConversation"]

SECONDS_FOR_A_CORE = 60.0
"""How long a worker waits for a free core: those of a lost node do not come back."""

SUBJECT = "--cluster"


class NodeLostError(Exception):
    """The node of a worker is gone, or no node has a core for it."""


class Cluster:
    """The nodes of a running Ray cluster, each with this checkout at the same path.

    Args:
        address: of the cluster, as ``ray.init`` takes it: ``auto`` on one of its nodes,
            ``ray://HOST:10001`` elsewhere.

    Raises:
        HarnessError: there is no Ray or no such cluster, or a node has other code.
    """

    def __init__(self, address: str) -> None:
        self._ray = connected(address)
        try:
            require_same_code(self._ray)
            require_cores(self)
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def cores(self) -> int:
        """How many workers the cluster can have at once."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        return sum(int(node["Resources"].get("CPU", 0)) for node in alive)

    def converse(self, module: str, arguments: Sequence[str]) -> RemoteConversation:
        """Start ``python -m MODULE`` on a node that has a free core."""
        return RemoteConversation(self._ray, module, arguments)

    def end(self) -> None:
        """Leave the cluster; what this command had there ends with it."""
        self._ray.shutdown()


class RemoteConversation:
    """A child process on a node, as :class:`Conversation` is one of this machine.

    ``receive`` and ``end`` raise a :class:`NodeLostError` if the node is lost.
    """

    def __init__(self, ray: Any, module: str, arguments: Sequence[str]) -> None:
        self._ray = ray
        # A worker that is lost is not started again: its run is given to another one.
        kind = ray.remote(num_cpus=1, max_restarts=0)(Relay)
        self._relay = kind.remote(module, list(arguments))
        self._started = False

    def send(self, line: str) -> None:
        """Write a line."""
        self._relay.send.remote(line)

    def receive(self) -> str | None:
        """Read a line; None if the child ended, in the middle of it or before."""
        if not self._started:
            self._ask(self._relay.started, SECONDS_FOR_A_CORE)
            self._started = True
        line: str | None = self._ask(self._relay.receive)
        return line

    def stop(self) -> None:
        """End a child that may still be at work, and give its core back."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._relay)

    def end(self) -> str:
        """Wait for the end of a child that was sent everything; return how it ended."""
        how: str = self._ask(self._relay.end)
        self.stop()
        return how

    def _ask(self, method: Any, seconds: float | None = None) -> Any:
        """Call a method of the relay and wait; without an answer, it is lost."""
        try:
            return self._ray.get(method.remote(), timeout=seconds)
        except self._ray.exceptions.RayError as error:
            # One that only cannot be reached must not go on with a run of others.
            self.stop()
            if isinstance(error, self._ray.exceptions.GetTimeoutError):
                reason = f"no node had a core free for {seconds:g} s"
            else:
                reason = f"a worker's node was lost: {last_line(error)}"
            raise NodeLostError(reason) from error


class Relay:
    """Runs as an actor on a node: hands lines to a child process there, and back."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._conversation = Children().converse(module, arguments)

    def started(self) -> None:
        """Return once there is a process to answer."""

    def send(self, line: str) -> None:
        """Write a line."""
        self._conversation.send(line)

    def receive(self) -> str | None:
        """Read a line."""
        return self._conversation.receive()

    def end(self) -> str:
        """Wait for the child's end; return how it ended."""
        return self._conversation.end()


def connected(address: str) -> Any:
    """Return Ray, connected to a cluster that runs."""
    try:
        import ray
    except ImportError as error:
        remedy = "install lockstep-optimizers[ray], or leave --cluster out"
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
    nodes = [node for node in ray.nodes() if node["Alive"]]
    places = [on_node(node["NodeID"], soft=False) for node in nodes]
    asked = ray.remote(num_cpus=0)(commit_of)
    answers = [asked.options(scheduling_strategy=place).remote() for place in places]
    for node, answer in zip(nodes, answers, strict=True):
        try:
            theirs = ray.get(answer)
            got, fine = f"commit {theirs[0]}", theirs == own
        except ray.exceptions.RayError as error:
            got, fine = last_line(error), False
        if not fine:
            expected = f"this checkout, commit {own[0]}, on every node"
            remedy = "bring every node to the same commit at the same path"
            got += f" on {node['NodeManagerAddress']}"
            raise HarnessError(sentence(SUBJECT, expected, got, remedy))


def require_cores(cluster: Cluster) -> None:
    """Raise unless there is a core for a worker."""
    if cluster.cores < 1:
        remedy = "add a node with `ray start --address=HOST:PORT`"
        raise HarnessError(sentence(SUBJECT, "a node with a core", "none", remedy))


def last_line(error: Exception) -> str:
    """Return what a traceback ends with, which says most."""
    return (str(error).strip() or repr(error)).splitlines()[-1]
