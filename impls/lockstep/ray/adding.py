"""What the views of a remote center share on backends that push changes of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.messages.workers import refusals as worker_refusals
from lockstep.messages.workers.agn import DELTA
from lockstep.messages.workers.getter import check_names
from lockstep.ray.shared_weights import Layout, Start, SummedWeights, layout
from lockstep.ray.worker import Host, Member, membership

__all__ = ["AddingView"]


class AddingView:
    """A worker's view of a center in another process, which adds what workers push.

    It comes before the backend's own ``Center``, whose shared variables are then the
    weights as this worker pulled them last. Nothing but arrays goes to the center, so
    workers of every backend can share it.

    Attributes:
        backend: the name of the backend.
        saves_itself: whether the center's state is no part of a worker's.
        known: the weights that the center had when this worker came; none before.
    """

    backend: ClassVar[str]
    saves_itself = True

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.member = Member(host, self.start)
        self.known = self.member.present()

    def for_worker(self) -> Self:
        """Return the view of another worker."""
        return type(self)(self.member.host)

    def arrays(self) -> dict[str, Array]:
        """Return the shared weights as they are here."""
        raise NotImplementedError

    def begin(self, commit: str) -> None:
        """Make the center unless there is one, or raise if this worker does not fit.

        Raises:
            UnsupportedError: a ValueError; a commit that takes an optimizer at the
                center, or see :func:`~lockstep.ray.checks.check_membership`.
            NoGradientsError: a ValueError; the getter was given no variables.
            DtypeError: a TypeError; NumPy lacks the dtype of a weight.
        """
        if commit != DELTA:
            raise refusals.NO_RULE.error(backend=self.backend)
        if not self.arrays():
            raise worker_refusals.NOTHING_TO_START.error()
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
        """Return the weights, for a center that has none."""
        weights = self.arrays()
        for name, weight in weights.items():
            if weight.dtype.kind not in "biufc":
                raise refusals.NO_ARRAY.error(name=name, got=weight.dtype)
        own = membership(self.backend, DELTA, layout(weights))
        return Start(SummedWeights(weights), own)

    def send(self, changes: Mapping[str, Any]) -> None:
        """Push what was gathered, as arrays."""
        self.member.push(changes, None)

    def leave(self) -> None:
        """Tell the center that this worker is done."""
        self.member.leave()
