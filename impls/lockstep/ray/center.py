"""The description of a center on Ray: its name and its options."""

from __future__ import annotations

import math
import operator
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.errors import unknown_name
from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.ray.actor import RayHost

__all__ = ["RayCenter", "as_ray_center", "as_ray_host", "host_of"]

SCHEME = "ray://"
ON_NONFINITE = ("refuse", "drop")
OTHER_ARGUMENTS = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources for which Ray has separate arguments."""


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
            ``options(resources=...)``: it runs on a node that has all of them, and
            waits until there is one. None lets Ray choose.

    Raises:
        GetterError: a TypeError; an invalid name.
        OutOfRangeError: a ValueError; ``every`` is no integer >= 1, or ``resources`` is
            no mapping from names to numbers > 0.
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
            raise refusals.NOT_AN_ADDRESS.error(got=self.name)
        try:
            fine = operator.index(self.every) >= 1 and self.every is not True
        except TypeError:
            fine = False
        if not fine:
            raise refusals.NOT_A_COUNT.error(got=self.every)
        if self.on_nonfinite not in ON_NONFINITE:
            name = "RayCenter: on_nonfinite"
            raise unknown_name(name, self.on_nonfinite, ON_NONFINITE)
        if self.resources is not None and not are_resources(self.resources):
            raise refusals.NOT_RESOURCES.error(got=self.resources)

    def status(self) -> dict[str, Any]:
        """Return the counts and the state of the center.

        The keys are the attributes of :class:`~lockstep.ray.counters.Counters`, and
        ``workers`` (those that have pushed and did not leave, even if they were
        killed), ``active_workers`` (those of them whose last push was within a minute),
        ``begun`` (whether there are weights), ``ended``, ``checkpoint`` (its path),
        ``checkpoint_rounds`` and ``checkpoint_error``.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
        """
        status: dict[str, Any] = host_of(self).call("status")
        return status

    def weights(self) -> Mapping[str, Array]:
        """Return the shared weights, by name.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
            CenterEmptyError: a RuntimeError; it has no weights, or none yet after a
                crash, because no worker has called it since then.
        """
        weights: Mapping[str, Array] = host_of(self).call("weights_now")
        return weights

    def end(self) -> dict[str, Any]:
        """End training: write a last checkpoint, and accept no more pushes.

        Workers that push or join later raise ``TrainingEndedError``, and a loop with
        ``make_session_run_hook`` ends. The weights can still be read.

        Raises:
            CenterLostError: a ConnectionError; there is no such center.
            CenterEmptyError: a RuntimeError; see :meth:`weights`.
        """
        status: dict[str, Any] = host_of(self).call("end")
        return status

    def remove(self) -> None:
        """End the process of the center, if there is one; keep its checkpoint."""
        host_of(self).remove()


def host_of(center: RayCenter) -> RayHost:
    """Return an object that creates and calls a center.

    Raises:
        MissingFrameworkError: a ModuleNotFoundError; Ray is not installed.
        UnsupportedError: a ValueError; this process is not connected to Ray.
    """
    folder = center.directory
    if folder is None:
        unique = f"lockstep-{center.name}-{uuid.uuid4().hex}"
        folder = Path(tempfile.gettempdir()) / unique
    arguments = str(folder), operator.index(center.every), center.on_nonfinite
    return RayHost(center.name, arguments, center.resources or {})


def are_resources(resources: object) -> bool:
    """Whether Ray accepts this as the resources of an actor.

    Example:
        >>> are_resources({"big": 1}), are_resources({"big": 0}), are_resources("big")
        (True, False, False)
    """
    return isinstance(resources, Mapping) and all(
        isinstance(name, str)
        and name not in ("", *OTHER_ARGUMENTS)
        # bool is a subclass of int.
        and type(number) in (int, float)
        and 0 < number < math.inf
        for name, number in resources.items()
    )


def as_ray_host(center: object) -> RayHost | None:
    """Return an object that calls the center for a getter's argument, or None.

    Raises:
        GetterError: a TypeError; see :func:`as_ray_center`.
        MissingFrameworkError: a ModuleNotFoundError; see :func:`host_of`.
        UnsupportedError: a ValueError; see :func:`host_of`.
    """
    on_ray = as_ray_center(center)
    return None if on_ray is None else host_of(on_ray)


def as_ray_center(center: object) -> RayCenter | None:
    """Return the center on Ray for a getter's argument, or None.

    Raises:
        GetterError: a TypeError; text that begins with ``ray://`` without a name.

    Example:
        >>> as_ray_center("ray://digits").name
        'digits'
    """
    if isinstance(center, str) and center.startswith(SCHEME):
        return RayCenter(center.removeprefix(SCHEME))
    return center if isinstance(center, RayCenter) else None
