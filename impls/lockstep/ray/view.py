"""The base class of all backends' views of a center in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.messages.workers import refusals as worker_refusals
from lockstep.messages.workers.agn import DELTA, GRADIENT
from lockstep.messages.workers.getter import check_names
from lockstep.ray.shared_weights import (
    Layout,
    SharedWeights,
    Start,
    SummedWeights,
    layout,
)
from lockstep.ray.worker import Host, Member, membership

__all__ = ["RemoteView"]


class RemoteView:
    """A worker's view of a center in another process.

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

    def __init__(self, host: Host) -> None:
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
        """Return the rule that applies mean gradients, for another process.

        Raises:
            UnsupportedError: a ValueError; there is no such rule.
        """
        raise refusals.NO_RULE.error(backend=self.backend)

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> SharedWeights:
        """Return weights with the rule that updates them, for another process."""
        raise NotImplementedError

    def groups(self) -> list[list[str]]:
        """Return the names in each parameter group; by default there is one group."""
        return [sorted(self.arrays())]

    def begin(
        self, commit: str, optimizer: Any = None, clips_rows: bool = True
    ) -> None:
        """Create the center unless it exists; raise if this worker does not fit.

        Raises:
            UnsupportedError: a ValueError; an optimizer that the center does not
                support, or see :func:`~lockstep.ray.checks.check_membership`.
            NoGradientsError: a ValueError; the getter has no variables.
            DtypeError: a TypeError; NumPy lacks the dtype of a weight.
        """
        if commit == GRADIENT:
            self.own_rule = self.rule_of(optimizer, clips_rows)
        if not self.arrays():
            raise worker_refusals.NOTHING_TO_START.error()
        self.commit = commit
        self.member.join()
        self.known = self.arrays()

    def require_fit(self, own: Layout) -> None:
        """Raise unless variables fit the center's; a new center accepts any."""
        if not self.known:
            return
        check_names(self.known, own)
        shared = layout(self.known)
        for name, got in own.items():
            if got != shared[name]:
                raise worker_refusals.OTHER_CENTER.error(
                    name=name, shared=shared[name], own=got
                )

    def start(self) -> Start:
        """Return the weights and the rule, for a center that has none."""
        weights = self.arrays()
        for name, weight in weights.items():
            if weight.dtype.kind not in "biufc":
                raise refusals.NO_ARRAY.error(name=name, got=weight.dtype)
        shapes = layout(weights)
        if self.commit == DELTA:
            own = membership(self.backend, DELTA, shapes)
            return Start(SummedWeights(weights), own)
        own = membership(self.backend, GRADIENT, shapes, self.groups())
        return Start(self.make_weights(self.own_rule, weights), own)

    def send(self, changes: Mapping[str, Any], options: Any = None) -> bool:
        """Push accumulated changes as arrays, with options for the rule.

        Returns:
            True if the center applied it, False if it skipped it because of inf or NaN.
        """
        return self.member.push(changes, options)

    def leave(self) -> None:
        """Report to the center that this worker is done."""
        self.member.leave()

    def numbers(self) -> dict[str, float]:
        """Return numbers about this worker's pushes for logging, by tag."""
        return self.member.numbers()
