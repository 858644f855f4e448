"""A center for workers of other processes: pure Python, without Ray."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lockstep.errors import (
    CenterEmptyError,
    CenterLostError,
    OutOfRangeError,
    TrainingEndedError,
    UnsupportedError,
)
from lockstep.interface import Array
from lockstep.ray import checkpoint

logger = logging.getLogger(__name__)

GRADIENT, DELTA = "gradient", "delta"
"""What workers push: a mean gradient for the center's rule, or a change to add."""

RECENT = 60.0
"""A worker is active for this many seconds after its last push."""

AT_MOST = 4
"""The largest number of names in a message."""

Layout = dict[str, str]
"""Name of a weight -> its dtype and shape, such as ``float32 [2, 3]``."""


SharedWeights: TypeAlias = Any
"""The weights of a center in its own process, and the rule that updates them: an object
with the methods of :class:`SummedWeights`."""


class SummedWeights:
    """Weights to which changes are added: w = w + change; they need no framework."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: np.array(weight) for name, weight in weights.items()}

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return weights; a push creates new arrays, so these do not change."""
        chosen = self.weights if names is None else names
        return {name: self.weights[name] for name in chosen}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Update weights by name; ``options`` are a worker's hyper-parameters."""
        with np.errstate(all="ignore"):
            for name, change in changes.items():
                self.weights[name] = np.asarray(self.weights[name] + change)

    def saved(self) -> Any:
        """Return weights and state as a tree for :mod:`lockstep.ray.checkpoint`."""
        return {"weights": self.weights}

    def load(self, saved: Any) -> None:
        """Load the result of :meth:`saved`."""
        self.weights = dict(saved["weights"])


class Membership(NamedTuple):
    """The description of a worker that joins."""

    release: str  # The version of lockstep.
    backend: str
    commit: str
    layout: Layout
    groups: list[list[str]]  # The names in each parameter group, if there are groups.

    def rule(self) -> str:
        """Return a description of the rule, which a checkpoint must match."""
        if self.commit != GRADIENT:
            return f"commit={self.commit!r}"
        return f"commit={self.commit!r} on {self.backend} with groups {self.groups}"


class Start(NamedTuple):
    """The data that a worker sends to a center without weights."""

    weights: SharedWeights
    membership: Membership


class Sender(NamedTuple):
    """The sender of a push."""

    worker: str
    sequence: int  # The number of this push, larger than that of its last push.
    since: int  # The rounds in its last reply, for the staleness.
    birth: str  # That of the center that it joined.


class Reply(NamedTuple):
    """The center's reply to a push or a pull."""

    weights: dict[str, Array]  # Of the requested names, all of the same round.
    rounds: int
    staleness: int | None = None  # None if no push was applied now.
    applied: bool = True  # False if a push was skipped because of inf or NaN.


@dataclass
class Counters:
    """Counts of a center since its creation, including those of its checkpoint.

    Attributes:
        rounds: applied pushes.
        repeated: pushes that arrived a second time and were skipped.
        nonfinite: pushes with inf or NaN, which were refused or skipped.
        bytes_pushed: bytes of the applied changes.
        bytes_pulled: bytes of the sent weights, including replies to pushes.
        staleness: s -> the number of pushes with a staleness of s, which is the number
            of other workers' pushes between a worker's pull and its push.
    """

    rounds: int = 0
    repeated: int = 0
    nonfinite: int = 0
    bytes_pushed: int = 0
    bytes_pulled: int = 0
    staleness: dict[int, int] = field(default_factory=dict)


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
        self.pushed: dict[str, float] = {}
        """Worker -> the time of its last push; a center cannot see its death."""
        self.counters = Counters()
        self.ended = False
        self.saved_rounds = 0
        self.failure: str | None = None

    # -- joining ---------------------------------------------------------------------

    def begin(self, start: Start, birth: str | None = None) -> None:
        """Load the checkpoint, or without one a worker's weights, unless there are any.

        ``birth``: that of the center that the worker joined before; None for a new one.
        """
        if self.weights is not None:
            return
        weights, membership = start
        shapes = layout(weights.pull())
        try:
            self._restore(weights, membership, shapes)
        except FileNotFoundError:
            self.birth = uuid.uuid4().hex
            if birth is not None:
                raise CenterLostError(
                    f"center {self.name!r}: expected its checkpoint {self.path} after "
                    "a restart, got no file; give RayCenter a directory that all "
                    "machines can read, and start again."
                ) from None
        except UnsupportedError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedError(
                f"center {self.name!r}: expected a checkpoint of a center in "
                f"{self.path}, got {type(error).__name__}: {error}; "
                "move the file away to start from the worker's weights."
            ) from error
        else:
            # A new start continues training that had ended.
            self.ended = self.ended and birth is not None
        self.weights, self.first, self.layout = weights, membership, shapes
        try:
            self._save()
        except UnsupportedError:
            self.weights = None
            raise

    def _restore(self, weights: SharedWeights, own: Membership, shapes: Layout) -> None:
        """Load the checkpoint, if its weights and its rule fit the worker's."""
        saved = checkpoint.read(self.path)
        expected = {"weights": shapes, "rule": own.rule()}
        found = {"weights": saved["layout"], "rule": saved["rule"]}
        for name in expected:
            if found[name] != expected[name]:
                raise UnsupportedError(
                    f"center {self.name!r}: expected a checkpoint with the worker's "
                    f"{name}, {expected[name]}, in {self.path}, got one with "
                    f"{found[name]}; use another directory, or move the file away."
                )
        weights.load(saved["state"])
        self.sequences = saved["sequences"]
        self.counters = Counters(**saved["counters"])
        self.birth, self.ended = saved["birth"], saved["ended"]

    def present(self) -> dict[str, Array]:
        """Return all weights; an empty dict if no worker has sent any yet."""
        return {} if self.weights is None else self.weights_now()

    def weights_now(self) -> dict[str, Array]:
        """Return all weights; raise if no worker has sent any yet."""
        weights: dict[str, Array] = self._begun().pull()
        return weights

    def join(self, worker: Membership) -> str:
        """Return the birth of the center; raise unless this worker may push here."""
        self._begun()
        if self.ended:
            raise self._over()
        first = self.first
        assert first is not None
        center = f"the center {self.name!r}"
        if worker.release != first.release:
            raise UnsupportedError(
                f"AGNOptimizer: expected lockstep {first.release}, as {center} has, "
                f"got {worker.release}; install one version on all machines."
            )
        if worker.commit != first.commit:
            raise UnsupportedError(
                f"AGNOptimizer: expected commit={first.commit!r}, as the first worker "
                f"of {center} has, got {worker.commit!r}; give all workers the same."
            )
        check_fit(first.layout, worker.layout)
        if first.commit == GRADIENT and worker.backend != first.backend:
            raise UnsupportedError(
                f"AGNOptimizer: expected a worker on {first.backend}, as the first of "
                f"{center}, got one on {worker.backend}; "
                "use commit='delta' in all workers, which every backend can push."
            )
        if first.commit == GRADIENT and worker.groups != first.groups:
            raise UnsupportedError(
                f"AGNOptimizer: expected the parameter groups {first.groups}, as the "
                f"first worker of {center} has, got {worker.groups}; give every "
                "worker's optimizer the same variables in the same groups."
            )
        return self.birth

    def leave(self, worker: str) -> None:
        """Remove a worker that is done."""
        self.sequences.pop(worker, None)
        self.pushed.pop(worker, None)

    # -- a round ---------------------------------------------------------------------

    def pull(self, names: Iterable[str]) -> Reply:
        """Return shared weights, even after the end of training."""
        pulled = self._begun().pull(names)
        self.counters.bytes_pulled += size(pulled.values())
        return Reply(pulled, self.counters.rounds)

    def push(self, sender: Sender, changes: Mapping[str, Array], options: Any) -> Reply:
        """Update the shared weights, once per number; return the updated weights.

        ``changes``: name -> the worker's accumulated changes, divided by its period.
        ``options``: the hyper-parameters for its rule; None without a rule.
        """
        weights, counters = self._begun(), self.counters
        if sender.birth != self.birth:
            raise CenterLostError(
                f"center {self.name!r}: expected a push of a worker that joined it, "
                "got one of an earlier center of this name, which is lost; "
                "start the worker again."
            )
        self.pushed[sender.worker] = time.monotonic()
        if sender.sequence <= self.sequences.get(sender.worker, 0):
            counters.repeated += 1
            return self.pull(changes)
        if self.ended:
            raise self._over()
        nonfinite = [n for n, c in changes.items() if not np.isfinite(c).all()]
        if nonfinite:
            counters.nonfinite += 1
            if self.on_nonfinite == "drop":
                return self.pull(changes)._replace(applied=False)
            raise OutOfRangeError(
                f"center {self.name!r}: expected finite changes, got inf or NaN for "
                f"{listed(nonfinite)}; nothing has moved; take a smaller rate, or "
                "RayCenter(on_nonfinite='drop') to leave such rounds out."
            )
        weights.push(changes, options)
        # A center that was restored from its checkpoint may have fewer rounds.
        stale = max(0, counters.rounds - sender.since)
        counters.staleness[stale] = counters.staleness.get(stale, 0) + 1
        counters.rounds += 1
        counters.bytes_pushed += size(changes.values())
        self.sequences[sender.worker] = sender.sequence
        if counters.rounds % self.every == 0:
            self._save()
        return self.pull(changes)._replace(staleness=stale)

    def _begun(self) -> SharedWeights:
        if self.weights is None:
            raise CenterEmptyError(
                f"center {self.name!r}: expected weights, got none yet; "
                "make an AGNOptimizer first."
            )
        return self.weights

    def _over(self) -> TrainingEndedError:
        return TrainingEndedError(
            f"center {self.name!r}: expected workers before the end of training, got "
            f"one after it; stop this worker, or call "
            f"RayCenter({self.name!r}).remove() before a new training."
        )

    # -- the end, and checkpoints ----------------------------------------------------

    def end(self) -> dict[str, Any]:
        """Accept no more pushes, write a last checkpoint, and return the status."""
        self._begun()
        self.ended = True
        self._save()
        return self.status()

    def status(self) -> dict[str, Any]:
        """Return the counts, the number of workers, and the state of the checkpoint."""
        since = time.monotonic() - RECENT
        return {
            "center": self.name,
            **asdict(self.counters),
            "workers": len(self.sequences),
            "active_workers": sum(pushed > since for pushed in self.pushed.values()),
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
            "counters": asdict(self.counters),
            "birth": self.birth,
            "ended": self.ended,
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            checkpoint.write(self.path, state)
        except TypeError as error:
            raise UnsupportedError(
                f"center {self.name!r}: expected optimizer state of tensors, numbers "
                f"and text, got {error}; a center on Ray cannot save this optimizer."
            ) from error
        except OSError as error:
            self.failure = str(error)
            logger.error("center %r: no checkpoint was written: %s", self.name, error)
        else:
            self.saved_rounds, self.failure = self.counters.rounds, None


def layout(weights: Mapping[str, Array]) -> Layout:
    """Return the dtype and the shape of each weight."""
    return {name: f"{w.dtype} {list(w.shape)}" for name, w in weights.items()}


def check_fit(known: Layout, own: Layout) -> None:
    """Raise unless a worker's weights have names and shapes that the center has."""
    strange = [name for name in own if name not in known]
    if strange:
        raise UnsupportedError(
            f"AGNCustomGetter: expected names that the center has, {listed(known)}, "
            f"got {listed(strange)}; give each worker's variables the same names: name "
            "models and layers alike or pass pairs (name, variable); only the first "
            "worker adds names."
        )
    for name, got in own.items():
        if got != known[name]:
            raise UnsupportedError(
                f"AGNCustomGetter: expected {name!r} to be {known[name]}, as the "
                f"shared one, got {got}; use another name."
            )


def listed(names: Collection[str]) -> str:
    """Return the first few names and the number of the others."""
    left = len(names) - AT_MOST
    text = ", ".join(repr(name) for name in list(names)[:AT_MOST])
    return f"{text} and {left} more" if left > 0 else text


def size(arrays: Iterable[Array]) -> int:
    """Return the total size of arrays in bytes."""
    return sum(array.nbytes for array in arrays)
