"""The worker's side of a center in another process, for all backends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from lockstep._version import __version__
from lockstep.errors import LockstepError
from lockstep.interface import Array
from lockstep.messages.ray import CenterEmptyError
from lockstep.messages.step import numbers as tags
from lockstep.ray.counters import size
from lockstep.ray.served_center import Reply, Sender
from lockstep.ray.shared_weights import Layout, Membership, Start

__all__ = ["Host", "Identity", "Member", "membership"]


class Host(Protocol):
    """An object that runs a ``ServedCenter`` in another process."""

    def exists(self) -> bool:
        """Whether a center of this name exists."""
        ...

    def make(self) -> bool:
        """Start an empty center unless one exists; return whether it was started."""
        ...

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the center; its errors are raised here.

        If the answer to a call is lost, the call may be repeated.
        """
        ...

    def remove(self) -> None:
        """End the process of the center."""
        ...


class Identity:
    """The name of a worker and the number of its last push.

    A copy is another worker. With the same name its pushes, like those of a worker
    loaded from a file, would be mistaken for repeated ones.
    """

    def __init__(self) -> None:
        self.worker = uuid.uuid4().hex
        self.sequence = 0

    def __reduce__(self) -> tuple[type[Identity], tuple[()]]:
        return Identity, ()


class Member:
    """One worker of a center.

    Args:
        host: runs the center.
        start: returns the worker's weights and rule, for a center without any. A center
            that was restarted after a crash needs them too, and then loads the weights
            from its checkpoint.

    Attributes:
        identity: the worker's name, and the number of its last push.
        birth: the center's birth; None before the worker has joined.
        rounds: the center's rounds in its last reply.
        staleness: the staleness of the last push.
        pushed_bytes: the bytes of all pushes.
        latest: the weights in the reply to the last push, until they are pulled.
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
        """Return all weights of the center; an empty dict if there is no center yet."""
        if not self.host.exists():
            return {}
        weights: dict[str, Array] = self.host.call("present")
        return weights

    def join(self) -> None:
        """Create the center unless it exists; raise unless this worker fits it."""
        is_new = self.host.make()
        try:
            self.birth = self._call("join", self.start().membership)
        except LockstepError:
            # The next worker may have another directory.
            if is_new and not self.present():
                self.host.remove()
            raise

    def pull(self, names: Iterable[str]) -> Mapping[str, Array]:
        """Return shared weights: those of the last push's reply, or current ones."""
        names, latest, self.latest = list(names), self.latest, {}
        if latest.keys() == set(names):
            return latest
        return self._take(self._call("pull", names))

    def push(self, changes: Mapping[str, Array], options: Any) -> bool:
        """Push a round; return whether the center applied it.

        The weights in the reply are stored for the next pull.
        """
        identity = self.identity
        # Counted before it is sent, because an interrupted call may have arrived.
        identity.sequence += 1
        numbers = identity.sequence, self.rounds, self.birth or ""
        sender = Sender(identity.worker, *numbers)
        reply = self._call("push", sender, changes, options)
        self.latest = self._take(reply)
        self.pushed_bytes += size(changes.values())
        return bool(reply.applied)

    def leave(self) -> None:
        """Report to the center that this worker is done."""
        self._call("leave", self.identity.worker)

    def numbers(self) -> dict[str, float]:
        """Return numbers about this worker's pushes for logging, by tag."""
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
                # The center may be killed again before it gets the repeated call.
                self.host.call("begin", self.start(), self.birth)


def membership(
    backend: str, commit: str, layout: Layout, groups: list[list[str]] | None = None
) -> Membership:
    """Return the description of a worker of this release."""
    return Membership(__version__, backend, commit, layout, groups or [])
