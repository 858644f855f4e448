"""Start Ray with a token for the time of this process, and its actors."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import HarnessError
from lockstep.errors import sentence

__all__ = ["ONE_MACHINE", "Team", "local_ray", "on_machine", "require_ray", "stop_ray"]

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 2 << 30
"""The bytes of Ray's object store, enough for some copies of a large model."""

SHARE_OF_NODE = 0.001
"""The share of a node's resource that an actor requests.

Ray gives each node one unit of a resource that is named by its address.
"""

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this variable Ray replaces 127.0.0.1 by the machine's address.
    ONE_MACHINE: "0",
}


def require_ray(task: str) -> None:
    """Raise unless Ray is installed.

    Raises:
        HarnessError: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        remedy = "run pip install ray"
        raise HarnessError(sentence(task, "Ray", "none", remedy))


@functools.cache
def local_ray(address: str = LOOPBACK, object_store: int = OBJECT_STORE) -> Any:
    """Return Ray, which is started once per process and ends with it.

    Its processes inherit our path and threads. They also end if this process is killed,
    because Ray watches it.

    Args:
        address: this machine's address, by which others reach it. On loopback no other
            machine can.
        object_store: bytes of shared memory for objects in transit.
    """
    token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Ray and the processes that it starts read these variables on import.
    os.environ.update(VARIABLES | token)
    import ray

    ray.init(
        address="local",
        _node_ip_address=address,
        include_dashboard=False,
        num_cpus=1,
        object_store_memory=object_store,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    return ray


def stop_ray() -> None:
    """Stop Ray and all of its processes, if this process started it."""
    if local_ray.cache_info().currsize:
        local_ray().shutdown()
        local_ray.cache_clear()


class Team:
    """Processes that start when they are first needed, and then wait for calls.

    Args:
        ray: the Ray that this process started.
        kind: the class of the actors, called without arguments in each process.
        places: the address of each process's machine; empty for this machine.
    """

    def __init__(self, ray: Any, kind: type, places: Sequence[str] = ()) -> None:
        self.ray = ray
        # They wait most of the time, so none requests a core.
        self._kind = self.ray.remote(num_cpus=0)(kind)
        self._places = places
        self._members: list[Any] = []

    def call(self, count: int, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the first ``count`` in parallel; return the results."""
        return self.call_each(method, [arguments] * count)

    def call_each(self, method: str, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a method in parallel, with separate arguments for each process."""
        lists = list(arguments)
        while len(self._members) < len(lists):
            self._members.append(self._started(len(self._members)))
        members = zip(self._members, lists, strict=False)
        calls = [getattr(member, method).remote(*own) for member, own in members]
        answers: list[Any] = self.ray.get(calls)
        return answers

    def _started(self, number: int) -> Any:
        """Start a process on its machine."""
        if not self._places:
            return self._kind.remote()
        return self._kind.options(resources=on_machine(self._places[number])).remote()


def on_machine(address: str) -> dict[str, float]:
    """Return the resources that place an actor on the machine with this address."""
    return {f"node:{address}": SHARE_OF_NODE}
