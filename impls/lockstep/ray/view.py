"""What the views of a center in another process share, whatever the backend."""

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

    It comes before the backend's own ``Center``, whose shared variables are then the
    weights as this worker pulled them last. With ``commit="delta"`` nothing but arrays
    goes to the center, so workers of every backend can share it. A backend that has a
    rule for mean gradients overrides :meth:`rule_of` and :meth:`make_weights`.

    Attributes:
        backend: the name of the backend.
        saves_itself: whether the center's state is no part of a worker's.
        known: the weights that the center had when this worker came; none before.
        commit: what this worker pushes.
        own_rule: what :meth:`rule_of` returned; None with ``commit="delta"``.
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
        """Return the view of another worker."""
        return type(self)(self.member.host)

    def arrays(self) -> dict[str, Array]:
        """Return the shared weights as they are here."""
        raise NotImplementedError

    def rule_of(self, optimizer: Any, clips_rows: bool) -> Any:
        """Return what moves the weights by mean gradients, for another process.

        Raises:
            UnsupportedError: a ValueError; there is no such rule.
        """
        raise refusals.NO_RULE.error(backend=self.backend)

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> SharedWeights:
        """Return weights with a rule that moves them, for another process."""
        raise NotImplementedError

    def groups(self) -> list[list[str]]:
        """Return the names in each parameter group: here there is one."""
        return [sorted(self.arrays())]

    def begin(
        self, commit: str, optimizer: Any = None, clips_rows: bool = True
    ) -> None:
        """Make the center unless there is one, or raise if this worker does not fit.

        Raises:
            UnsupportedError: a ValueError; an optimizer that the center cannot have, or
                see :func:`~lockstep.ray.checks.check_membership`.
            NoGradientsError: a ValueError; the getter was given no variables.
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
        """Raise unless variables are like the center's; a new center takes any."""
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
        """Push what was gathered as arrays, with what the rule takes beside it.

        Returns:
            Whether the center has applied it, or left it out because of inf or NaN.
        """
        return self.member.push(changes, options)

    def leave(self) -> None:
        """Tell the center that this worker is done."""
        self.member.leave()

    def numbers(self) -> dict[str, float]:
        """Return what there is to log of this worker's pushes, by tag."""
        return self.member.numbers()
