"""Asynchronous workers in simulated time: deterministic, in NumPy, in one process.

The same seed gives the same order of events, and so the same staleness of every push.

>>> from harness.simulator.methods import AGN, Rule
>>> def gradients(weights, worker, generator):
...     return {"w": weights["w"] - generator.normal()}
>>> agn = AGN(Rule("GradientDescent", learning_rate=0.1), period=4)
>>> run = simulate(agn, {"w": np.array(3.0)}, gradients, workers=3, steps=120)
>>> run.steps, len(run.pushes)  # one round was not complete
(120, 29)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from harness.simulator.methods import Downpour, Gradients, Pushed, Weights

Gradient = Callable[[Weights, int, np.random.Generator], Gradients]
"""(weights, number of the worker, its generator) -> gradients at these weights."""


class Push(NamedTuple):
    """One push at the server: its worker, its time and its staleness."""

    worker: int
    seconds: float
    staleness: int


@dataclass
class Run:
    """The result of a simulation.

    Attributes:
        weights: the server's weights at the end.
        pushes: all pushes, in the order in which the server applied them.
        trace: the seconds and the result of ``observe`` after each change of the
            server's weights.
        steps: local steps of all workers.
        bytes_moved: bytes of all messages in both directions.
        seconds: simulated time of the last event.
    """

    weights: Weights
    pushes: list[Push] = field(default_factory=list)
    trace: list[tuple[float, Any]] = field(default_factory=list)
    steps: int = 0
    bytes_moved: int = 0
    seconds: float = 0.0


class Queue:
    """Actions, sorted by time; actions at the same time run in the order of entry."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._entered = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Add an action, to be run ``seconds`` from now."""
        heapq.heappush(self._heap, (self.seconds + seconds, self._entered, action))
        self._entered += 1

    def run(self) -> None:
        """Run all actions until the queue is empty."""
        while self._heap:
            self.seconds, _, action = heapq.heappop(self._heap)
            action()


class Interleaving:
    """The server and the workers of a method, without times.

    Attributes:
        workers: the state of each worker.
        server: the server's state.
        versions: how often the server's weights have changed.
    """

    def __init__(self, method: Downpour, weights: Weights, workers: int) -> None:
        self.method = method
        self.server = method.server(weights)
        self.workers = [method.worker(weights) for _ in range(workers)]
        self.versions = 0
        self._pulled = [0] * workers
        self._steps = [0] * workers

    def step(self, worker: int, gradients: Gradients) -> bool:
        """Take a local step; return whether the worker must push now."""
        self.workers[worker] = self.method.local_step(self.workers[worker], gradients)
        self._steps[worker] += 1
        return self._steps[worker] % self.method.period == 0

    def apply(self, messages: dict[int, tuple[Weights, Any]]) -> dict[int, Weights]:
        """Apply messages that arrive together; return the replies, by worker."""
        numbers = sorted(messages)
        pushed = [Pushed(*messages[k], self.staleness(k)) for k in numbers]
        self.server, replies = self.method.apply(self.server, pushed)
        self.versions += 1
        for number in numbers:
            # The weights that the worker will pull are from this reply.
            self._pulled[number] = self.versions
        return dict(zip(numbers, replies, strict=True))

    def staleness(self, worker: int) -> int:
        """Return how often the server's weights changed since a worker's pull."""
        return self.versions - self._pulled[worker]

    def pull(self, worker: int, reply: Weights) -> None:
        """Deliver the reply to a push."""
        self.workers[worker] = self.method.pull(self.workers[worker], reply)


def simulate(method: Downpour, weights: Weights, *args: Any, **options: Any) -> Run:
    """Run the workers of a method; the arguments are those of :class:`Simulation`."""
    return Simulation(method, weights, *args, **options).run()


class Simulation:
    """The workers of a method in simulated time.

    Each worker computes P local steps, sends, waits for the reply and continues. Every
    worker has two generators, for times and for data, seeded with the seed and its
    number. So the duration of a step does not depend on the data. The server's own work
    takes no time.

    Args:
        method: the method.
        weights: the initial weights.
        gradient: (weights, worker, generator) -> gradients.
        workers: the number of workers, >= 1.
        steps: the total of local steps, after which no worker begins another.
        latency: the seconds of a message, one way.
        spread: the standard deviation of the seconds of a step, which have a gamma
            distribution of mean 1; 0 makes every step take the mean.
        seed: the seed of times and data.
        observe: called with the server's weights after each change.
    """

    def __init__(
        self,
        method: Downpour,
        weights: Weights,
        gradient: Gradient,
        workers: int,
        steps: int,
        latency: float = 0.0,
        spread: float = 0.25,
        seed: int = 0,
        observe: Callable[[Weights], Any] | None = None,
    ) -> None:
        self.state = Interleaving(method, weights, workers)
        self.method, self.queue, self.result = method, Queue(), Run(weights)
        self.gradient, self.observe = gradient, observe
        self.left, self.latency, self.spread = steps, latency, spread
        self.waiting: dict[int, tuple[Weights, Any]] = {}
        self.times, self.data = (
            [np.random.default_rng([seed, kind, k]) for k in range(workers)]
            for kind in (0, 1)
        )

    def run(self) -> Run:
        """Start every worker and run until no event is left."""
        for number in range(len(self.state.workers)):
            self.begin(number)
        self.queue.run()
        self.result.weights = self.state.server.weights
        self.result.seconds = self.queue.seconds
        return self.result

    def begin(self, number: int) -> None:
        """Begin a worker's step, unless all steps have been begun."""
        if not self.left:
            return
        self.left -= 1
        seconds = 1.0
        if self.spread:
            shape = self.spread**-2
            seconds = float(self.times[number].gamma(shape, 1 / shape))
        self.queue.after(seconds, lambda: self.end(number))

    def end(self, number: int) -> None:
        """End a worker's step; then it sends, or begins another step."""
        weights = self.state.workers[number].weights
        gradients = self.gradient(weights, number, self.data[number])
        self.result.steps += 1
        if not self.state.step(number, gradients):
            self.begin(number)
            return
        message = self.method.push(self.state.workers[number])
        self.send(message[0], lambda: self.arrive(number, message))

    def send(self, arrays: Weights, arrived: Callable[[], None]) -> None:
        """Count the bytes of a message, which arrives later."""
        self.result.bytes_moved += sum(array.nbytes for array in arrays.values())
        self.queue.after(self.latency, arrived)

    def arrive(self, number: int, message: tuple[Weights, Any]) -> None:
        """Receive a message at the server, and reply if no message is missing."""
        self.waiting[number] = message
        everyone = len(self.waiting) == len(self.state.workers)
        if self.method.waits_for_all and not everyone:
            return
        messages, self.waiting = self.waiting, {}
        for sender in sorted(messages):
            stale = self.state.staleness(sender)
            self.result.pushes.append(Push(sender, self.queue.seconds, stale))
        replies = self.state.apply(messages)
        if self.observe is not None:
            observation = self.observe(self.state.server.weights)
            self.result.trace.append((self.queue.seconds, observation))
        for sender, reply in replies.items():
            self.send(reply, self.continued(sender, reply))

    def continued(self, number: int, reply: Weights) -> Callable[[], None]:
        """Return the action for a reply's arrival: the worker continues from it."""

        def arrived() -> None:
            self.state.pull(number, reply)
            self.begin(number)

        return arrived
