"""The Ray actor in which a center lives, and how workers call it: all that uses Ray."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from lockstep.messages import ray as refusals
from lockstep.messages.errors import LockstepError
from lockstep.ray.served_center import ServedCenter

__all__ = ["NAMESPACE", "CenterActor", "RayHost"]

logger = logging.getLogger(__name__)

NAMESPACE = "lockstep"
"""Where the actors have their names: jobs of one cluster share it."""

OPTIONS = {
    "namespace": NAMESPACE,
    # It outlives the worker that made it.
    "lifetime": "detached",
    "get_if_exists": True,
    # A process that dies is started again, and calls without an answer are repeated.
    "max_restarts": -1,
    "max_task_retries": -1,
    # It waits most of the time, and must find a place on a full cluster.
    "num_cpus": 0,
}


class CenterActor:
    """A :class:`ServedCenter` that Ray runs; calls come one at a time.

    Its arguments are small, so that Ray keeps them as long as the actor: what a worker
    hands over is lost with the process, and a restart asks a worker for it again.
    """

    def __init__(
        self, name: str, directory: str, every: int, on_nonfinite: str
    ) -> None:
        self.center = ServedCenter(name, directory, every, on_nonfinite)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center."""
        return getattr(self.center, method)(*arguments)


class RayHost:
    """Finds, makes and calls the actor of a center.

    Args:
        name: of the center.
        arguments: of :class:`ServedCenter` after the name; they count where this makes
            the center.
        resources: of the node on which this makes the center.

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
        """Whether there is a center of this name."""
        try:
            self._handle = connected_ray(self.name).get_actor(self.name, NAMESPACE)
        except ValueError:
            return False
        return True

    def make(self) -> bool:
        """Start an empty center unless there is one; of two at once one is made."""
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
        """Call a method of the center, and wait while its process is started again.

        Raises:
            CenterLostError: a ConnectionError; there is no such center, or it is gone.
            LockstepError: what the method raises.
        """
        ray = connected_ray(self.name)
        if self._handle is None and not self.exists():
            raise refusals.LOST.error(center=self.name, got="no center of this name")
        try:
            return ray.get(self._handle.call.remote(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            # Ray's own text is a traceback of the other process.
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
        """Leave out the handle, which is found again by the name."""
        return {**self.__dict__, "_handle": None}


def has(node: Mapping[str, Any], resources: Mapping[str, float]) -> bool:
    """Whether a node, as ``ray.nodes()`` has it, is there and has these resources."""
    here = node["Resources"]
    return node["Alive"] and all(here.get(n, 0) >= k for n, k in resources.items())


def connected_ray(name: str) -> ModuleType:
    """Return the module ``ray`` in a process that is connected to a cluster.

    Ray would otherwise start a cluster for this process alone.
    """
    ray = import_ray(name)
    if not ray.is_initialized():
        raise refusals.NOT_CONNECTED.error(name=name)
    return ray


def import_ray(name: str) -> ModuleType:
    """Return the module ``ray``; raise one sentence if it is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise refusals.NO_RAY.error(name=name)
    import ray  # Only for a center on Ray: it takes a second.

    return ray
