"""The worker's side of a center in another process, for all backends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from lockstep._version import __version__
from lockstep.errors import (
    CenterEmptyError,
    DtypeError,
    LockstepError,
    NoGradientsError,
)
from lockstep.interface import Array
from lockstep.ray.served_center import (
    DELTA,
    GRADIENT,
    Layout,
    Membership,
    Reply,
    Sender,
    SharedWeights,
    Start,
    SummedWeights,
    check_fit,
    layout,
    size,
)


class Member:
    """One worker of a center.

    Args:
        host: calls the center, as :class:`~lockstep.ray.center.RayHost` does. If the
            answer to a call is lost, the call may be repeated.
        start: returns the worker's weights and rule, for a center without any. A center
            that was restarted after a crash needs them too, and then loads the weights
            from its checkpoint.

    Attributes:
        worker: the worker's name. A copy, and a worker loaded from a file, get another
            one, because their pushes would be mistaken for repeated ones.
        sequence: the number of its last push.
        birth: the center's birth; None before the worker has joined.
        rounds: the center's rounds in its last reply.
        staleness: the staleness of the last push.
        pushed_bytes: the bytes of all pushes.
        latest: the weights in the reply to the last push, until they are pulled.
    """

    def __init__(self, host: Any, start: Callable[[], Start]) -> None:
        self.host = host
        self.start = start
        self.worker = uuid.uuid4().hex
        self.sequence = 0
        self.birth: str | None = None
        self.rounds = 0
        self.staleness = 0
        self.pushed_bytes = 0
        self.latest: Mapping[str, Array] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "worker": uuid.uuid4().hex, "sequence": 0}

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
        # Counted before it is sent, because an interrupted call may have arrived.
        self.sequence += 1
        sender = Sender(self.worker, self.sequence, self.rounds, self.birth or "")
        reply = self._call("push", sender, changes, options)
        self.latest = self._take(reply)
        self.pushed_bytes += size(changes.values())
        return bool(reply.applied)

    def leave(self) -> None:
        """Report to the center that this worker is done."""
        self._call("leave", self.worker)

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


class RemoteView:
    """A worker's view of a center in another process; the base of all backends' views.

    In the list of base classes it is before the backend's own ``Center``, whose shared
    variables then have the weights of this worker's last pull. With ``commit="delta"``
    only arrays are sent to the center, so workers of all backends can share it. A
    backend with a rule for mean gradients overrides :meth:`rule_of` and
    :meth:`make_weights`.

    Attributes:
        backend: the name of the backend.
        saves_itself: whether the center's state is not saved with a worker's.
        known: the center's weights when this worker joined; empty before.
        commit: the kind of this worker's pushes.
        own_rule: the result of :meth:`rule_of`; None with ``commit="delta"``.
    """

    backend: ClassVar[str]
    saves_itself = True

    def __init__(self, host: Any) -> None:
        super().__init__()
        self.commit = DELTA
        self.own_rule: Any = None
        self.member = Member(host, self.start)
        self.known = self.member.present()

    def for_worker(self) -> Self:
        """Return a view for another worker."""
        return type(self)(self.member.host)

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        raise NotImplementedError

    def rule_of(self, optimizer: Any, clips_rows: bool) -> Any:
        """Return the rule that applies mean gradients, for another process."""
        raise NotImplementedError

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> SharedWeights:
        """Return weights with the rule that updates them, for another process."""
        raise NotImplementedError

    def groups(self) -> list[list[str]]:
        """Return the names in each parameter group; by default there is one group."""
        return [sorted(self.arrays())]

    def begin(
        self, commit: str, optimizer: Any = None, clips_rows: bool = True
    ) -> None:
        """Create the center unless it exists; raise if this worker does not fit."""
        if commit == GRADIENT:
            self.own_rule = self.rule_of(optimizer, clips_rows)
        if not self.arrays():
            raise NoGradientsError(
                "AGNOptimizer.get_init_op: expected at least one trainable variable, "
                "got none; make the variables through the AGNCustomGetter first."
            )
        self.commit = commit
        self.member.join()
        self.known = self.arrays()

    def require_fit(self, own: Layout) -> None:
        """Raise unless variables fit the center's; a new center accepts any."""
        if self.known:
            check_fit(layout(self.known), own)

    def start(self) -> Start:
        """Return the weights and the rule, for a center that has none."""
        weights = self.arrays()
        for name, weight in weights.items():
            if weight.dtype.kind not in "biufc":
                raise DtypeError(
                    "AGNCustomGetter: expected weights of a dtype that NumPy has, for "
                    f"a center on Ray, got {weight.dtype} for {name!r}; "
                    "train float32 weights."
                )
        groups, rule = [], SummedWeights(weights)
        if self.commit == GRADIENT:
            groups, rule = self.groups(), self.make_weights(self.own_rule, weights)
        own = (__version__, self.backend, self.commit, layout(weights), groups)
        return Start(rule, Membership(*own))

    def send(self, changes: Mapping[str, Any], options: Any = None) -> bool:
        """Push changes as arrays; return whether the center applied them."""
        return self.member.push(changes, options)

    def leave(self) -> None:
        """Report to the center that this worker is done."""
        self.member.leave()

    def numbers(self) -> dict[str, float]:
        """Return numbers about this worker's pushes for logging, by tag."""
        return {
            "center_rounds": self.member.rounds,
            "staleness": self.member.staleness,
            "pushed_bytes": self.member.pushed_bytes,
        }
