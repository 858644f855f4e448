"""A worker's side of a center in another process, for the workers of every backend."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from lockstep._version import __version__
from lockstep.interface import Array
from lockstep.messages.errors import LockstepError
from lockstep.messages.ray import CenterEmptyError
from lockstep.messages.step import numbers as tags
from lockstep.ray.counters import size
from lockstep.ray.served_center import Reply, Sender
from lockstep.ray.shared_weights import Layout, Membership, Start

__all__ = ["Host", "Identity", "Member", "membership"]


class Host(Protocol):
    """What runs a :class:`~lockstep.ray.served_center.ServedCenter` elsewhere."""

    def exists(self) -> bool:
        """Whether there is a center of this name."""
        ...

    def make(self) -> bool:
        """Start an empty center unless there is one; return whether there was none."""
        ...

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center; what it raises is raised here.

        A call whose answer is lost may be made a second time.
        """
        ...

    def remove(self) -> None:
        """End the process of the center."""
        ...


class Identity:
    """The name of a worker and the number of its last push.

    A copy is another worker: with the same name its pushes would be taken for repeated
    ones. So would those of a worker that was loaded from a file.
    """

    def __init__(self) -> None:
        self.worker = uuid.uuid4().hex
        self.sequence = 0

    def __reduce__(self) -> tuple[type[Identity], tuple[()]]:
        return Identity, ()


class Member:
    """One worker of a center.

    Args:
        host: where the center is.
        start: returns the worker's weights and rule, for a center without any. A center
            that was started again after a crash asks for them too, and then takes the
            weights from its checkpoint.

    Attributes:
        identity: its name, and the number of its last push.
        birth: that of the center; None before it has joined.
        rounds: what the center had when it replied last.
        staleness: of the last push.
        pushed_bytes: of all pushes.
        latest: the weights that came with the last push, until they are pulled.
    """

    def __init__(self, host: Host, start: Callable[[], Start]) -> None:
        self.host = host
        self.start = start
        self.identity = Identity()
        self.birth: str | None = None
        self.rounds = 0
        self.staleness = 0
        self.pushed_bytes = 0
        self.latest: Mapping[str, Array] = {}

    def present(self) -> dict[str, Array]:
        """Return all weights of the center; none if there is no center yet."""
        if not self.host.exists():
            return {}
        weights: dict[str, Array] = self.host.call("present")
        return weights

    def join(self) -> None:
        """Make the center unless there is one, and raise unless this worker fits it."""
        is_new = self.host.make()
        try:
            self.birth = self._call("join", self.start().membership)
        except LockstepError:
            # The next worker may come with another directory.
            if is_new and not self.present():
                self.host.remove()
            raise

    def pull(self, names: Iterable[str]) -> Mapping[str, Array]:
        """Return shared weights: those that came with the last push, or fresh ones."""
        names, latest, self.latest = list(names), self.latest, {}
        if latest.keys() == set(names):
            return latest
        return self._take(self._call("pull", names))

    def push(self, changes: Mapping[str, Array], options: Any) -> bool:
        """Push a round, and return whether it is in the shared weights.

        Those that come back wait for the pull.
        """
        identity = self.identity
        # Counted before it is sent: a call that is interrupted may have arrived.
        identity.sequence += 1
        numbers = identity.sequence, self.rounds, self.birth or ""
        sender = Sender(identity.worker, *numbers)
        reply = self._call("push", sender, changes, options)
        self.latest = self._take(reply)
        self.pushed_bytes += size(changes.values())
        return bool(reply.applied)

    def leave(self) -> None:
        """Tell the center that this worker is done."""
        self._call("leave", self.identity.worker)

    def numbers(self) -> dict[str, float]:
        """Return what there is to log of this worker's pushes, by tag."""
        return {
            tags.CENTER_ROUNDS: self.rounds,
            tags.STALENESS: self.staleness,
            tags.PUSHED_BYTES: self.pushed_bytes,
        }

    def _take(self, reply: Reply) -> Mapping[str, Array]:
        self.rounds = reply.rounds
        if reply.staleness is not None:
            self.staleness = reply.staleness
        return reply.weights

    def _call(self, method: str, *arguments: Any) -> Any:
        while True:
            try:
                return self.host.call(method, *arguments)
            except CenterEmptyError:
                # It may be killed once more before it hears the call again.
                self.host.call("begin", self.start(), self.birth)


def membership(
    backend: str, commit: str, layout: Layout, groups: list[list[str]] | None = None
) -> Membership:
    """Return what a worker of this release says of itself."""
    return Membership(__version__, backend, commit, layout, groups or [])
