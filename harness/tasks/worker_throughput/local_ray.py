"""Ray on this machine alone: on loopback, with a token, as long as this process."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import secrets
from collections.abc import Iterable
from typing import Any

from harness.errors import HarnessError
from lockstep.messages.errors import sentence

__all__ = ["Team", "local_ray", "require_ray", "stop_ray"]

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 2 << 30
"""Bytes of shared memory for what is on its way: some copies of the large model."""

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without it Ray replaces 127.0.0.1 by the address of the machine.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def require_ray() -> None:
    """Raise unless Ray is installed.

    Raises:
        HarnessError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        remedy = "install lockstep-optimizers[ray]"
        raise HarnessError(sentence("worker_throughput", "Ray", "none", remedy))


@functools.cache
def local_ray() -> Any:
    """Return Ray, which is started once a process, and ends with it.

    Its processes inherit our path and threads. They end as well if this process is
    killed: Ray watches it.
    """
    token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Ray reads these when it is imported, and so do the processes that it starts.
    os.environ.update(VARIABLES | token)
    import ray

    ray.init(
        address="local",
        _node_ip_address=LOOPBACK,
        include_dashboard=False,
        num_cpus=1,
        object_store_memory=OBJECT_STORE,
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
        kind: the class of an actor, made without arguments in each process.
    """

    def __init__(self, kind: type) -> None:
        self.ray = local_ray()
        # They wait most of the time, so none asks for a core of its own.
        self._kind = self.ray.remote(num_cpus=0)(kind)
        self._members: list[Any] = []

    def call(self, count: int, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the first ``count``, all at once; return the answers."""
        return self.call_each(method, [arguments] * count)

    def call_each(self, method: str, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a method with arguments of each one's own, all at once."""
        lists = list(arguments)
        while len(self._members) < len(lists):
            self._members.append(self._kind.remote())
        members = zip(self._members, lists, strict=False)
        calls = [getattr(member, method).remote(*own) for member, own in members]
        answers: list[Any] = self.ray.get(calls)
        return answers
