"""The Ray actor of a center, and the calls of workers: all code that uses Ray."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from lockstep.errors import LockstepError
from lockstep.messages import ray as refusals
from lockstep.ray.served_center import ServedCenter

__all__ = ["NAMESPACE", "CenterActor", "RayHost"]

logger = logging.getLogger(__name__)

NAMESPACE = "lockstep"
"""The namespace of the actors' names; all jobs of a cluster use it."""

OPTIONS = {
    "namespace": NAMESPACE,
    # It continues after the worker that created it has ended.
    "lifetime": "detached",
    "get_if_exists": True,
    # A process that died is restarted, and calls without an answer are repeated.
    "max_restarts": -1,
    "max_task_retries": -1,
    # It mostly waits, and must also fit on a cluster without free CPUs.
    "num_cpus": 0,
}


class CenterActor:
    """A :class:`ServedCenter` that Ray runs; calls come one at a time.

    Ray stores the constructor's arguments for restarts, so they are small. Data from a
    worker is lost with the process. After a restart a worker is asked for it again.
    """

    def __init__(
        self, name: str, directory: str, every: int, on_nonfinite: str
    ) -> None:
        self.center = ServedCenter(name, directory, every, on_nonfinite)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center."""
        return getattr(self.center, method)(*arguments)


class RayHost:
    """Finds, creates and calls the actor of a center.

    Args:
        name: the name of the center.
        arguments: the arguments of :class:`ServedCenter` after the name; used only if
            this object creates the center.
        resources: the resources of the node on which this object creates the center.

    Raises:
        MissingFrameworkError: a ModuleNotFoundError; Ray is not installed.
        UnsupportedError: a ValueError; this process is not connected to Ray.
    """

    actor = CenterActor

    def __init__(
        self, name: str, arguments: tuple[str, int, str], resources: Mapping[str, float]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.resources = dict(resources)
        self._handle: Any = None
        connected_ray(name)

    def exists(self) -> bool:
        """Whether a center of this name exists."""
        try:
            self._handle = connected_ray(self.name).get_actor(self.name, NAMESPACE)
        except ValueError:
            return False
        return True

    def make(self) -> bool:
        """Start an empty center unless one exists; concurrent calls create only one."""
        if self.exists():
            return False
        ray = connected_ray(self.name)
        place = {"name": self.name, "resources": self.resources}
        made = ray.remote(self.actor).options(**place, **OPTIONS)
        self._handle = made.remote(self.name, *self.arguments)
        if not any(has(node, self.resources) for node in ray.nodes()):
            logger.warning(refusals.WAITS, self.name, self.resources)
        return True

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center; wait while its process is restarted.

        Raises:
            CenterLostError: a ConnectionError; there is no such center, or not any
                more.
            LockstepError: an error of the method.
        """
        ray = connected_ray(self.name)
        if self._handle is None and not self.exists():
            raise refusals.LOST.error(center=self.name, got="no center of this name")
        try:
            return ray.get(self._handle.call.remote(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            # Ray's own message is a traceback of the other process.
            if isinstance(error.cause, LockstepError):
                raise error.cause from None
            raise
        except ray.exceptions.RayActorError as error:
            got = type(error).__name__
            raise refusals.LOST.error(center=self.name, got=got) from error

    def remove(self) -> None:
        """End the process of the center, if there is one."""
        if self.exists():
            connected_ray(self.name).kill(self._handle)
            self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the handle, which can be found again by name."""
        return {**self.__dict__, "_handle": None}


def has(node: Mapping[str, Any], resources: Mapping[str, float]) -> bool:
    """Whether a node of ``ray.nodes()`` is alive and has these resources."""
    here = node["Resources"]
    return node["Alive"] and all(here.get(n, 0) >= k for n, k in resources.items())


def connected_ray(name: str) -> ModuleType:
    """Return the module ``ray`` in a process that is connected to a cluster.

    Without a connection, Ray would start a cluster for this process alone.
    """
    ray = import_ray(name)
    if not ray.is_initialized():
        raise refusals.NOT_CONNECTED.error(name=name)
    return ray


def import_ray(name: str) -> ModuleType:
    """Return the module ``ray``; raise an error in one sentence if it is missing."""
    if importlib.util.find_spec("ray") is None:
        raise refusals.NO_RAY.error(name=name)
    import ray  # Only for a center on Ray: it takes a second.

    return ray
