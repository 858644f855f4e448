"""Ray with a token, as long as this process, and the processes that it starts."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import HarnessError
from lockstep.messages.errors import sentence

__all__ = ["ONE_MACHINE", "Team", "local_ray", "on_machine", "require_ray", "stop_ray"]

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 2 << 30
"""Some copies of a large model."""

SHARE_OF_NODE = 0.001
"""Ray gives each node one piece of a resource that has its address as a name."""

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without it Ray replaces 127.0.0.1 by the address of the machine.
    ONE_MACHINE: "0",
}


def require_ray(task: str) -> None:
    """Raise unless Ray is installed.

    Raises:
        HarnessError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        remedy = "install lockstep-optimizers[ray]"
        raise HarnessError(sentence(task, "Ray", "none", remedy))


@functools.cache
def local_ray(address: str = LOOPBACK, object_store: int = OBJECT_STORE) -> Any:
    """Return Ray, which is started once a process, and ends with it.

    Its processes inherit our path and threads. They end as well if this process is
    killed: Ray watches it.

    Args:
        address: of this machine, where others find it; on loopback nobody else does.
        object_store: bytes of shared memory for what is on its way.
    """
    token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Ray reads these when it is imported, and so do the processes that it starts.
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
    """End Ray and all of its processes, if it was started here."""
    if local_ray.cache_info().currsize:
        local_ray().shutdown()
        local_ray.cache_clear()


class Team:
    """Processes that are started when they are first needed, and wait for calls.

    Args:
        ray: which this process has started.
        kind: the class of an actor, made without arguments in each process.
        places: the address of the machine of each process; none: on this machine.
    """

    def __init__(self, ray: Any, kind: type, places: Sequence[str] = ()) -> None:
        self.ray = ray
        # They wait most of the time, so none asks for a core of its own.
        self._kind = self.ray.remote(num_cpus=0)(kind)
        self._places = places
        self._members: list[Any] = []

    def call(self, count: int, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the first ``count``, all at once; return the answers."""
        return self.call_each(method, [arguments] * count)

    def call_each(self, method: str, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a method with arguments of each one's own, all at once."""
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
    """Return what an actor asks for to be started on the machine of an address."""
    return {f"node:{address}": SHARE_OF_NODE}
