"""A center for workers of other processes: pure Python, without Ray."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.ray import checkpoint
from lockstep.ray.checks import check_layout, check_membership, nonfinite_names
from lockstep.ray.counters import Activity, Counters, size
from lockstep.ray.shared_weights import Layout, Membership, SharedWeights, Start, layout

__all__ = ["Reply", "Sender", "ServedCenter"]

logger = logging.getLogger(__name__)


class Reply(NamedTuple):
    """The center's reply to a push or a pull.

    Attributes:
        weights: the shared weights of the requested names, all of the same round.
        rounds: the number of rounds at that moment.
        staleness: the staleness of the push; None if it was not applied now.
        applied: False if the push was skipped because of inf or NaN.
    """

    weights: dict[str, Array]
    rounds: int
    staleness: int | None = None
    applied: bool = True


class Sender(NamedTuple):
    """The sender of a push.

    Attributes:
        worker: the worker's name.
        sequence: the number of this push, larger than that of the worker's last push.
        since: the number of rounds in its last reply, for the staleness.
        birth: the birth of the center that the worker joined.
    """

    worker: str
    sequence: int
    since: int
    birth: str


class ServedCenter:
    """Shared weights in their own process; one method runs at a time.

    At first it has no weights. The first worker sends them with :meth:`begin`, with the
    rule that updates them. If there is a checkpoint, the weights and the state of the
    rule come from the checkpoint instead. A restarted process has no weights at first
    either. So after a crash the center continues from its last checkpoint, which is at
    most ``every`` rounds old. If the checkpoint is lost, workers raise an error: a
    center has a birth, a random text, which its workers and its checkpoints store. It
    rejects pushes of workers with another birth.

    A push has the name of its worker and an increasing number. A push whose number is
    not larger than the worker's last one was already applied, but its reply was lost.
    It is skipped. The numbers are in the checkpoint, so after a crash this holds for
    all pushes that the checkpoint includes.

    Args:
        name: the name of the center.
        directory: the directory of the checkpoint.
        every: the rounds between two checkpoints.
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
        """Load a worker's weights and rule, unless there are weights.

        Args:
            start: the worker's weights and membership.
            birth: the birth of the center that it joined before; None for a new worker.

        Raises:
            CenterLostError: a ConnectionError; the worker has joined before, and there
                is no checkpoint.
            UnsupportedError: a ValueError; the checkpoint has other weights or another
                rule, the file is no checkpoint, or the rule has state that cannot be
                saved in a file.
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
            # A new start continues training that had ended.
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
        """Load a checkpoint, if its weights and its rule fit the worker's."""
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
        """Return all weights; an empty dict if no worker has sent any yet."""
        return {} if self.weights is None else self.weights.pull()

    def weights_now(self) -> dict[str, Array]:
        """Return all weights; raise if no worker has sent any yet."""
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
        """Remove a worker that is done."""
        self.sequences.pop(worker, None)
        self.activity.forget(worker)

    # -- a round ---------------------------------------------------------------------

    def pull(self, names: Iterable[str]) -> Reply:
        """Return shared weights, even after the end of training."""
        pulled = self._begun().pull(names)
        self.counters.bytes_pulled += size(pulled.values())
        return Reply(pulled, self.counters.rounds)

    def push(self, sender: Sender, changes: Mapping[str, Array], options: Any) -> Reply:
        """Update the shared weights, once per number; return the updated weights.

        All checks come before the first change.

        Args:
            sender: the worker, and the number of the push.
            changes: name -> the worker's accumulated changes, divided by its period.
            options: the hyper-parameters for its rule; None without a rule.

        Raises:
            CenterEmptyError: a RuntimeError; there are no weights.
            CenterLostError: a ConnectionError; the worker joined another center.
            TrainingEndedError: a RuntimeError; training is over.
            UnsupportedError: a ValueError; an unknown name.
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
        """Whether a push may be applied; raise if ``on_nonfinite`` refuses it."""
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

    # -- the end, and checkpoints ----------------------------------------------------

    def end(self) -> dict[str, Any]:
        """Accept no more pushes, write a last checkpoint, and return the status."""
        self._begun()
        self.ended = True
        self._save()
        return self.status()

    def status(self) -> dict[str, Any]:
        """Return the counts, the number of workers, and the state of the checkpoint."""
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
        """Write the checkpoint; if the disk fails, log it and continue.

        The previous checkpoint is not damaged, so a crash then loses more rounds.
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
