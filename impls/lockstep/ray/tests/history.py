"""Whether what a killed center and its workers wrote down keeps the promise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from lockstep.ray.tests.record import WORKERS, Line

__all__ = ["History"]

Push = tuple[str, int]
State = tuple[int, tuple[float, ...]]
"""The number of rounds, and the weights that they made."""


class History:
    """The states of a center, read from its lines one by one.

    The promise: a center that was killed goes on from a state that it had, at most
    ``every`` rounds ago; a push is in a state at most once; a worker gets for its push
    a state that the center had. A push whose process died before it wrote down what
    came of it may be in or not.

    Args:
        every: rounds between two checkpoints.

    Attributes:
        state: the present one.
        losses: for each start after the first, the rounds that it went back.
        repeated: how many pushes came again and were left out.
        counts: of the lines, by what they are.
        kills: how many, by the line after which they came.

    Raises:
        AssertionError: the promise is broken.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.state: State = 0, (0.0,) * WORKERS
        self.losses: list[int] = []
        self.repeated = 0
        self.counts: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self._past = dict([self.state])
        self._applied: dict[Push, int] = {}
        self._replies: defaultdict[Push, list[State]] = defaultdict(list)
        self._call: tuple[Push, State] | None = None
        self._is_empty = True

    def read(self, lines: Iterable[Line | None]) -> History:
        """Take all lines up to the first None."""
        for line in lines:
            if line is None:
                break
            self.take(line)
        return self

    def take(self, line: Line) -> None:
        """Look at one line."""
        self.counts[line["what"]] += 1
        if line["what"] == "kill":
            self.kills[line["moment"]] += 1
        look = {
            "start": self._start,
            "begin": self._begin,
            "call": self._take_call,
            "done": self._finish_call,
            "ack": self._compare_reply,
            "end": self._end,
        }.get(line["what"])
        if look is not None:
            look(line)

    def __str__(self) -> str:
        lost = f"{sum(self.losses)} rounds, {max(self.losses, default=0)} at most"
        return (
            f"{self.kills.total()} kills, {dict(self.kills)}; {self.counts['worker']} "
            f"workers did {self.state[0]} rounds; {len(self.losses)} restarts of the "
            f"center lost {lost}; {self.repeated} pushes came again"
        )

    def _start(self, line: Line) -> None:
        """A new process has no weights, and refuses calls until it begins."""
        self._is_empty = True

    def _begin(self, line: Line) -> None:
        """A process begins with a state of the past, or with its last call's."""
        begun, (reached, _) = state_of(line), self.state
        if self._call is not None:
            push, (rounds, weights) = self._call
            self._past[rounds] = weights
            self._applied[push] = rounds
        rounds, weights = begun
        assert self._past.get(rounds) == weights, f"no state of the past: {line}"
        assert reached - rounds <= self.every, f"of {reached} rounds: {line}"
        if self.counts["begin"] > 1:
            self.losses.append(max(0, reached - rounds))
        self._past = {r: w for r, w in self._past.items() if r <= rounds}
        self._applied = {p: r for p, r in self._applied.items() if r <= rounds}
        self.state, self._call, self._is_empty = begun, None, False

    def _take_call(self, line: Line) -> None:
        if self._is_empty:
            return
        rounds, weights = self.state
        moved = [w + (slot == line["slot"]) for slot, w in enumerate(weights)]
        self._call = push_of(line), (rounds + 1, tuple(moved))

    def _finish_call(self, line: Line) -> None:
        """A push moves the weights; one that is in them changes nothing."""
        assert self._call is not None, f"no call before {line}"
        (push, moved), self._call = self._call, None
        if push in self._applied:
            self.repeated += 1
            assert state_of(line) == self.state, f"applied again: {line}"
        else:
            assert state_of(line) == moved, f"expected {moved}: {line}"
            self._applied[push] = moved[0]
        self.state = state_of(line)
        self._past.update([self.state])
        self._past.pop(self.state[0] - 2 * self.every, None)
        self._replies[push].append(self.state)

    def _compare_reply(self, line: Line) -> None:
        replies = self._replies[push_of(line)]
        assert state_of(line) in replies, f"none of {replies}: {line}"

    def _end(self, line: Line) -> None:
        assert state_of(line) == self.state, f"expected {self.state}: {line}"


def push_of(line: Line) -> Push:
    worker, sequence = line["push"]
    return worker, sequence


def state_of(line: Line) -> State:
    return line["rounds"], tuple(line["weights"])
