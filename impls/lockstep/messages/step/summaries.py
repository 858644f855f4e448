"""Summaries: their names, tags, recorders and checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from lockstep.errors import unknown_name
from lockstep.messages.step import refusals

__all__ = [
    "DEFAULT_SUMMARIES",
    "OPTIMIZER_SUMMARIES",
    "Recorder",
    "Summaries",
    "SummaryRecord",
    "check_recorder",
    "check_summaries",
    "tag",
]

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
    "variables",
    "variable_norm",
    "larc_summaries",
    "loss_scale",
]
"""The names of all summaries."""

DEFAULT_SUMMARIES = ["learning_rate", "global_gradient_norm", "loss_scale"]
"""The summaries for ``summaries=None``."""

CLIPPED_NORM = "global_clipped_gradient_norm"
LARC_CLIP_ON, LARC_UPDATE = "larc_clip_on", "larc_grad_update"
LARC_RATE = "larc_final_lr"
"""Tags that are not names of summaries."""


class Recorder(Protocol):
    """Interface of a recorder; values are tensors of the backend's framework."""

    def scalar(self, tag: str, value: Any) -> None:
        """Record a 0-d value."""
        ...

    def histogram(self, tag: str, values: Any) -> None:
        """Record values of any shape; all are finite."""
        ...


class SummaryRecord:
    """A recorder that stores the last value of each tag.

    Attributes:
        scalars: tag -> value, a tensor of the backend's framework.
        histograms: tag -> values.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}
        self.histograms: dict[str, Any] = {}

    def scalar(self, tag: str, value: Any) -> None:
        """Store a 0-d value."""
        self.scalars[tag] = value

    def histogram(self, tag: str, values: Any) -> None:
        """Store values of any shape."""
        self.histograms[tag] = values


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is computed."""

    names: frozenset[str]
    recorder: Recorder | None

    def wants(self, *names: str) -> bool:
        """Return whether any of these summaries is to be recorded."""
        return self.recorder is not None and not self.names.isdisjoint(names)

    def scalar(self, name: str, kind: str, value: Any, variable: str = "") -> None:
        """Record ``value`` under the tag of ``kind`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.scalar(tag(kind, variable), value)

    def histogram(self, name: str, values: Any, variable: str) -> None:
        """Record the finite ``values`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.histogram(tag(name, variable), values)


def tag(kind: str, variable: str = "") -> str:
    """Return the tag KIND, or KIND/VARIABLE with ":" replaced by "_"."""
    return f"{kind}/{variable.replace(':', '_')}" if variable else kind


def check_summaries(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the requested names; None means the default summaries.

    Raises:
        UnknownNameError: a ValueError; an unknown name, with the nearest one.
        DtypeError: a TypeError; not a collection of names.
    """
    if summaries is None:
        return frozenset(DEFAULT_SUMMARIES)
    if isinstance(summaries, str) or not isinstance(summaries, Iterable):
        raise refusals.SUMMARIES_NOT_LISTED.error(owner=owner, got=summaries)
    names = list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            raise unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return frozenset(names)


def check_recorder(recorder: Any, owner: str) -> None:
    """Raise DtypeError, a TypeError, unless ``recorder`` is None or a recorder."""
    methods = ("scalar", "histogram")
    if recorder is None or all(callable(getattr(recorder, m, None)) for m in methods):
        return
    remedy = "leave it out, or give an object with these two"
    if hasattr(recorder, "add_scalar"):
        remedy = "wrap it: TensorBoardRecorder(writer, step)"
    raise refusals.BAD_RECORDER.error(
        owner=owner, got=type(recorder).__name__, remedy=remedy
    )
