"""A center on Ray: its name and options, its actor, and the calls of workers.

All code that uses Ray is here and in ``lockstep watch``.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.checks import check_integer
from lockstep.errors import (
    CenterLostError,
    GetterError,
    LockstepError,
    MissingFrameworkError,
    UnsupportedError,
    unknown_name,
)
from lockstep.interface import Array
from lockstep.ray.served_center import ServedCenter

SCHEME = "ray://"
ON_NONFINITE = ("refuse", "drop")
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


@dataclass(frozen=True)
class RayCenter:
    """A center on Ray: its name, its node, and its checkpoints.

    ``center="ray://NAME"`` of an ``AGNCustomGetter`` is short for
    ``center=RayCenter("NAME")``. All options come from the worker that creates the
    center. The methods can be called in any process that is connected to Ray.

    Args:
        name: letters, digits, ``.``, ``_`` and ``-``; unique in a cluster.
        directory: the directory of the checkpoint. A new center continues from a
            checkpoint that is already there. On several machines it must be a directory
            that all of them share. None: a new temporary directory, with which the
            center survives a crash of its process, but not of its machine.
        every: the rounds between two checkpoints, which is the most that a crash loses.
        on_nonfinite: ``"refuse"`` raises an error in a worker that pushes inf or NaN;
            ``"drop"`` skips the round, and the worker begins the next one. The worker's
            own optimizer keeps its state from the local steps.
        resources: the resources that the center uses, as in Ray's
            ``options(resources=...)``, which checks them: it runs on a node that has
            all of them, and waits until there is one. None lets Ray choose.

    Raises:
        GetterError: a TypeError; an invalid name.
        OutOfRangeError: a ValueError; ``every`` is no integer >= 1.
        UnknownNameError: a ValueError; an unknown ``on_nonfinite``.

    Example:
        >>> RayCenter("digits", directory="/shared/digits", every=20).name
        'digits'
    """

    name: str
    directory: str | Path | None = field(default=None, kw_only=True)
    every: int = field(default=100, kw_only=True)
    on_nonfinite: str = field(default="refuse", kw_only=True)
    resources: Mapping[str, float] | None = field(
        default=None, kw_only=True, hash=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[\w.-]+", self.name):
            raise GetterError(
                "AGNCustomGetter: center: expected 'ray://NAME' with a NAME of "
                f"letters, digits, '.', '_' and '-', got {self.name!r}; "
                "name the center, and give the address of a cluster to ray.init()."
            )
        check_integer("RayCenter", "every", self.every)
        if self.on_nonfinite not in ON_NONFINITE:
            name = "RayCenter: on_nonfinite"
            raise unknown_name(name, self.on_nonfinite, ON_NONFINITE)

    def status(self) -> dict[str, Any]:
        """Return the counts and the state of the center.

        The keys are the attributes of :class:`~lockstep.ray.served_center.Counters`,
        and ``workers`` (those that have pushed and did not leave, even if they were
        killed), ``active_workers`` (those of them whose last push was within a minute),
        ``begun`` (whether there are weights), ``ended``, ``checkpoint`` (its path),
        ``checkpoint_rounds`` and ``checkpoint_error``.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
        """
        return dict(RayHost(self).call("status"))

    def weights(self) -> Mapping[str, Array]:
        """Return the shared weights, by name.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
            CenterEmptyError: a RuntimeError; it has no weights, or none yet after a
                crash, because no worker has called it since then.
        """
        return dict(RayHost(self).call("weights_now"))

    def end(self) -> dict[str, Any]:
        """End training: write a last checkpoint, and accept no more pushes.

        Workers that push or join later raise ``TrainingEndedError``, and a loop with
        ``make_session_run_hook`` ends. The weights can still be read.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
            CenterEmptyError: a RuntimeError; see :meth:`weights`.
        """
        return dict(RayHost(self).call("end"))

    def remove(self) -> None:
        """End the process of the center, if there is one; keep its checkpoint."""
        RayHost(self).remove()


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

    Raises:
        MissingFrameworkError: a ModuleNotFoundError; Ray is not installed.
        UnsupportedError: a ValueError; this process is not connected to Ray.
    """

    actor = CenterActor

    def __init__(self, center: RayCenter) -> None:
        self.name = center.name
        folder = center.directory
        if folder is None:
            unique = f"lockstep-{center.name}-{uuid.uuid4().hex}"
            folder = Path(tempfile.gettempdir()) / unique
        self.arguments = str(folder), int(center.every), center.on_nonfinite
        self.resources = dict(center.resources or {})
        self._handle: Any = None
        connected_ray(center.name)

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
        place = {"name": self.name, "resources": self.resources, **OPTIONS}
        made = ray.remote(self.actor).options(**place)
        self._handle = made.remote(self.name, *self.arguments)
        return True

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center; wait while its process is restarted."""
        ray = connected_ray(self.name)
        if self._handle is None and not self.exists():
            raise self._lost("no center of this name")
        try:
            return ray.get(self._handle.call.remote(method, *arguments))
        except ray.exceptions.RayTaskError as error:
            # Ray's own message is a traceback of the other process.
            if isinstance(error.cause, LockstepError):
                raise error.cause from None
            raise
        except ray.exceptions.RayActorError as error:
            raise self._lost(type(error).__name__) from error

    def _lost(self, got: str) -> CenterLostError:
        return CenterLostError(
            f"center {self.name!r}: expected its process to answer, got {got}; "
            "start a worker again, which makes the center of its last checkpoint."
        )

    def remove(self) -> None:
        """End the process of the center, if there is one."""
        if self.exists():
            connected_ray(self.name).kill(self._handle)
            self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the handle, which can be found again by name."""
        return {**self.__dict__, "_handle": None}


def connected_ray(name: str) -> ModuleType:
    """Return the module ``ray`` in a process that is connected to a cluster.

    Without a connection, Ray would start a cluster for this process alone.
    """
    ray = import_ray(name)
    if not ray.is_initialized():
        raise UnsupportedError(
            "AGNCustomGetter: expected a process that is connected to Ray for "
            f"center='ray://{name}', got one that is not; "
            "call ray.init() first, with the cluster's address if there is one."
        )
    return ray


def import_ray(name: str) -> ModuleType:
    """Return the module ``ray``; raise an error in one sentence if it is missing."""
    if importlib.util.find_spec("ray") is None:
        raise MissingFrameworkError(
            "AGNCustomGetter: expected ray to be installed for "
            f"center='ray://{name}', got none; run pip install ray."
        )
    import ray  # Only for a center on Ray: it takes a second.

    return ray


def as_ray_host(center: object) -> RayHost | None:
    """Return an object that calls the center of a getter's argument, or None."""
    if isinstance(center, str) and center.startswith(SCHEME):
        center = RayCenter(center.removeprefix(SCHEME))
    return RayHost(center) if isinstance(center, RayCenter) else None
