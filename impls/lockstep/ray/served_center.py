"""A center that workers of other processes call: pure Python, without Ray."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.messages.errors import UnsupportedError
from lockstep.ray import checkpoint
from lockstep.ray.checks import check_layout, check_membership, nonfinite_names
from lockstep.ray.counters import Activity, Counters, size
from lockstep.ray.shared_weights import Layout, Membership, SharedWeights, Start, layout

__all__ = ["Reply", "Sender", "ServedCenter"]

logger = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What a worker gets for a push or a pull.

    Attributes:
        weights: the shared weights of the names that it asked for, of one moment.
        rounds: the number of rounds that these have.
        staleness: of the push, if it was applied now.
        applied: False if the push was left out, because it had inf or NaN.
    """

    weights: dict[str, Array]
    rounds: int
    staleness: int | None = None
    applied: bool = True


class Sender(NamedTuple):
    """Who pushes.

    Attributes:
        worker: its name.
        sequence: the number of this push, above that of its last.
        since: the rounds that its last reply had, for the staleness.
        birth: that of the center that it joined.
    """

    worker: str
    sequence: int
    since: int
    birth: str


class ServedCenter:
    """Shared weights in a process of their own, which calls one method at a time.

    It has no weights at first. The first worker hands them over with :meth:`begin`,
    with the rule that moves them; if there is a checkpoint, the weights and the state
    of the rule come from there instead. A process that died and was started again is
    at first without weights too, so the promise after a crash is: the center goes on
    from its last checkpoint, which is at most ``every`` rounds old. Where that is gone,
    workers hear it: a center has a birth, a random text that it shares with its
    workers and its checkpoints, and takes no push of a worker that knows another.

    A push has the name of its worker and a number that grows. One whose number is not
    above the last of this worker was applied before, and is left out; its reply was
    lost on the way. The numbers are in the checkpoint, so this holds after a crash for
    the pushes that the center still has.

    Args:
        name: of the center.
        directory: of the checkpoint.
        every: rounds between two checkpoints.
        on_nonfinite: ``"refuse"`` or ``"drop"`` a push with inf or NaN.
    """

    def __init__(
        self, name: str, directory: str, every: int, on_nonfinite: str
    ) -> None:
        self.name = name
        self.path = Path(directory) / checkpoint.FILE
        self.every = every
        self.on_nonfinite = on_nonfinite
        self.birth = ""
        self.weights: SharedWeights | None = None
        self.first: Membership | None = None
        self.layout: Layout = {}
        self.sequences: dict[str, int] = {}
        self.activity = Activity()
        self.counters = Counters()
        self.ended = False
        self.saved_rounds = 0
        self.failure: str | None = None

    # -- joining ---------------------------------------------------------------------

    def begin(self, start: Start, birth: str | None = None) -> None:
        """Take over a worker's weights and rule, unless there are some.

        Args:
            start: what the worker has.
            birth: that of the center that it joined before; None if it is new.

        Raises:
            CenterLostError: a ConnectionError; the worker has joined before, and there
                is no checkpoint.
            UnsupportedError: a ValueError; the checkpoint is of other weights or of
                another rule, the file is none, or the rule has state that no file can
                have.
        """
        if self.weights is not None:
            return
        weights, membership = start
        shapes = layout(weights.pull())
        try:
            saved = checkpoint.read(self.path)
        except FileNotFoundError:
            self.birth = uuid.uuid4().hex
            if birth is not None:
                raise refusals.NO_CHECKPOINT.error(
                    center=self.name, path=self.path
                ) from None
        except ValueError as error:
            raise self._unreadable(error) from error
        else:
            self._restore(weights, membership, shapes, saved)
            # A whole new start goes on with what had ended.
            self.ended = self.ended and birth is not None
        self.weights, self.first, self.layout = weights, membership, shapes
        try:
            self._save()
        except UnsupportedError:
            self.weights = None
            raise

    def _restore(
        self, weights: SharedWeights, own: Membership, shapes: Layout, saved: Any
    ) -> None:
        """Load a checkpoint, if it is of weights and of a rule like the worker's."""
        name, path = self.name, self.path
        try:
            if saved["layout"] != shapes:
                got = saved["layout"]
                raise refusals.OTHER_WEIGHTS.error(center=name, path=path, got=got)
            expected, got = own.rule(), saved["rule"]
            if got != expected:
                raise refusals.OTHER_RULE.error(
                    center=name, path=path, expected=expected, got=got
                )
            weights.load(saved["state"])
            self.sequences = saved["sequences"]
            self.counters = Counters(**saved["counters"])
            self.birth, self.ended = saved["birth"], saved["ended"]
        except (KeyError, TypeError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> Exception:
        got = f"{type(error).__name__}: {error}"
        return refusals.UNREADABLE.error(center=self.name, path=self.path, got=got)

    def present(self) -> dict[str, Array]:
        """Return all weights; none if no worker has brought any yet."""
        return {} if self.weights is None else self.weights.pull()

    def weights_now(self) -> dict[str, Array]:
        """Return all weights; raise if no worker has brought any yet."""
        return self._begun().pull()

    def join(self, membership: Membership) -> str:
        """Return the birth of the center; raise unless this worker may push here.

        Raises:
            CenterEmptyError: a RuntimeError; there are no weights yet.
            TrainingEndedError: a RuntimeError; training is over.
            UnsupportedError: a ValueError; see
                :func:`~lockstep.ray.checks.check_membership`.
        """
        self._begun()
        if self.ended:
            raise refusals.ENDED.error(center=self.name)
        assert self.first is not None
        check_membership(self.first, membership, self.name)
        return self.birth

    def leave(self, worker: str) -> None:
        """Forget a worker that is done."""
        self.sequences.pop(worker, None)
        self.activity.forget(worker)

    # -- a round ---------------------------------------------------------------------

    def pull(self, names: Iterable[str]) -> Reply:
        """Return shared weights; also after the end of training."""
        pulled = self._begun().pull(names)
        self.counters.bytes_pulled += size(pulled.values())
        return Reply(pulled, self.counters.rounds)

    def push(self, sender: Sender, changes: Mapping[str, Array], options: Any) -> Reply:
        """Move the shared weights, once for each number; return them as they are then.

        Everything is checked before anything moves.

        Args:
            sender: who pushes, and which push it is.
            changes: name -> what the worker gathered, divided by its period.
            options: the hyper-parameters that its rule takes; None without a rule.

        Raises:
            CenterEmptyError: a RuntimeError; there are no weights.
            CenterLostError: a ConnectionError; the worker joined another center.
            TrainingEndedError: a RuntimeError; training is over.
            UnsupportedError: a ValueError; a name that the center has not.
            ShapeError: a ValueError; a change of another shape or dtype.
            OutOfRangeError: a ValueError; a change has inf or NaN.
        """
        weights = self._begun()
        if sender.birth != self.birth:
            raise refusals.ANOTHER.error(center=self.name)
        self.activity.note(sender.worker)
        if sender.sequence <= self.sequences.get(sender.worker, 0):
            self.counters.repeated += 1
            return self.pull(changes)
        if self.ended:
            raise refusals.ENDED.error(center=self.name)
        check_layout(changes, self.layout, self.name)
        if not self._is_finite(changes):
            return self.pull(changes)._replace(applied=False)
        weights.push(changes, options)
        stale = self.counters.count_round(sender.since, size(changes.values()))
        self.sequences[sender.worker] = sender.sequence
        if self.counters.rounds % self.every == 0:
            self._save()
        return self.pull(changes)._replace(staleness=stale)

    def _is_finite(self, changes: Mapping[str, Array]) -> bool:
        """Whether a push may be applied; raise if it is to be refused."""
        names = nonfinite_names(changes)
        if names:
            self.counters.nonfinite += 1
            if self.on_nonfinite == "refuse":
                raise refusals.NOT_FINITE.error(center=self.name, names=names)
        return not names

    def _begun(self) -> SharedWeights:
        if self.weights is None:
            raise refusals.EMPTY.error(center=self.name)
        return self.weights

    # -- the end, and what is kept ---------------------------------------------------

    def end(self) -> dict[str, Any]:
        """Take no more pushes, write a last checkpoint, and return the status."""
        self._begun()
        self.ended = True
        self._save()
        return self.status()

    def status(self) -> dict[str, Any]:
        """Return the counts, the number of workers, and how the checkpoint is."""
        return {
            "center": self.name,
            **self.counters.saved(),
            "workers": len(self.sequences),
            "active_workers": self.activity.count(),
            "begun": self.weights is not None,
            "ended": self.ended,
            "checkpoint": str(self.path),
            "checkpoint_rounds": self.saved_rounds,
            "checkpoint_error": self.failure,
        }

    def _save(self) -> None:
        """Write the checkpoint; where the disk does not take it, training goes on.

        The checkpoint before it stays whole, so a crash then costs more rounds.
        """
        assert self.first is not None
        state = {
            "layout": self.layout,
            "rule": self.first.rule(),
            "state": self._begun().saved(),
            "sequences": self.sequences,
            "counters": self.counters.saved(),
            "birth": self.birth,
            "ended": self.ended,
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            checkpoint.write(self.path, state)
        except TypeError as error:
            raise refusals.NOT_PLAIN.error(center=self.name, got=error) from error
        except OSError as error:
            self.failure = str(error)
            logger.error("center %r: no checkpoint was written: %s", self.name, error)
        else:
            self.saved_rounds, self.failure = self.counters.rounds, None
