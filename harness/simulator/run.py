"""Workers in simulated time: deterministic, in NumPy, in one process.

The same seed gives the same order of events, and so the same staleness of every push.

>>> from harness.simulator.methods import AGN
>>> from lockstep.reference import GradientDescentOptimizer
>>> def gradients(weights, worker, stream):
...     return {"w": weights["w"] - stream.normal()}
>>> descent = lambda: GradientDescentOptimizer(0.1)
>>> team = Team(descent, {"w": np.array(3.0)}, gradients, workers=3, steps=120)
>>> len(team.train(AGN(period=4)).staleness)  # one round was not complete
29
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import numpy as np

from harness.simulator.methods import (
    Downpour,
    Weights,
    Worker,
    new_center,
    weights_of,
)
from lockstep.interface import Array
from lockstep.reference.agn import Center
from lockstep.reference.optimizers import RuleOptimizer

Gradient: TypeAlias = Callable[[Weights, int, np.random.Generator], Weights]
"""(weights, number of the worker, its generator) -> gradients at these weights."""


@dataclass
class Run:
    """The result of a simulation.

    Attributes:
        weights: the center's weights at the end.
        staleness: how often others changed the center between a worker's pull and its
            push, for all pushes in their order.
        trace: the seconds and the measured center, in order; the last one is the end.
        steps: local steps of all workers so far.
        seconds: simulated time of the last event.
        due: the steps after which the center is measured again.
    """

    weights: Weights
    staleness: list[int] = field(default_factory=list)
    trace: list[tuple[float, float]] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    due: int = 0


@dataclass(frozen=True)
class Team:
    """Workers that train in simulated time; the center's own work takes no time.

    Each worker has two generators, for times and for data, seeded with the seed and its
    number. So the duration of a step does not depend on the data or on the method.

    Attributes:
        make_optimizer: returns the optimizer of a worker.
        weights: the initial weights of the center and of every worker.
        gradient: returns the gradients of a worker's new minibatch.
        workers: the number of workers, >= 1.
        steps: the total of local steps, after which no worker begins another.
        latency: the seconds of a message, one way.
        spread: the standard deviation of the seconds of a step, which have a gamma
            distribution of mean 1; 0 makes every step take the mean.
        seed: the seed of times and data.
        measure: a number of the center's weights.
        every: the local steps of all workers between two measurements.
    """

    make_optimizer: Callable[[], RuleOptimizer]
    weights: Weights
    gradient: Gradient
    workers: int
    steps: int
    latency: float = 0.0
    spread: float = 0.25
    seed: int = 0
    measure: Callable[[Weights], float] = len
    every: int = 1

    def train(self, method: Downpour) -> Run:
        """Train with an asynchronous method, event by event."""
        center, run = new_center(self.weights), Run(self.weights)
        left = iter(range(self.steps))
        workers = [self.work(k, method, center, run, left) for k in range(self.workers)]
        entries = count()  # events at the same time keep the order of entry
        events = [(0.0, next(entries), worker) for worker in workers]
        with np.errstate(all="ignore"):  # a run that diverges is a result
            while events:
                run.seconds, _, worker = heapq.heappop(events)
                pause = next(worker, None)
                if pause is not None:
                    event = run.seconds + pause, next(entries), worker
                    heapq.heappush(events, event)
        return self.ended(run, weights_of(center))

    def work(
        self,
        number: int,
        method: Downpour,
        center: Center,
        run: Run,
        left: Iterator[int],
    ) -> Iterator[float]:
        """Train as one worker while steps are left; yield the seconds until it goes on.

        A worker that sends a message waits for the reply.
        """
        worker = Worker(self.make_optimizer(), self.weights)
        times, data = self.streams(number)
        pulled = 0
        for step in count(1):
            if next(left, None) is None:
                return
            yield self.duration(times)
            run.steps += 1
            gradients = self.gradient(worker.weights, number, data)
            method.local_step(worker, gradients)
            if step % method.period:
                continue
            message = method.message(worker)
            yield self.latency
            # Each push has changed the center once.
            staleness = len(run.staleness) - pulled
            run.staleness.append(staleness)
            reply = method.apply(center, worker, message, staleness)
            pulled = len(run.staleness)
            self.measured(run, weights_of(center))
            yield self.latency
            method.pull(worker, reply)

    def train_together(self) -> Run:
        """Average the gradients of all workers in every step, for which all wait.

        c = rule(c, (g_1 + ... + g_n) / n) with every g at c, as in a step on an n times
        larger batch.
        """
        center, run = Worker(self.make_optimizer(), self.weights), Run(self.weights)
        streams = [self.streams(number) for number in range(self.workers)]
        for _ in range(self.steps // self.workers):
            run.seconds += max(self.duration(times) for times, _ in streams)
            run.seconds += self.latency
            weights = center.weights
            gradients = [
                self.gradient(weights, number, data)
                for number, (_, data) in enumerate(streams)
            ]
            with np.errstate(all="ignore"):
                center.step({name: _mean(name, gradients) for name in weights})
            run.staleness += [0] * self.workers
            run.steps += self.workers
            self.measured(run, center.weights)
            run.seconds += self.latency
        return self.ended(run, center.weights)

    def measured(self, run: Run, weights: Weights) -> None:
        """Measure the center after a change, if it is time to."""
        if run.steps >= run.due:
            run.due = run.steps + self.every
            run.trace.append((run.seconds, self.measure(weights)))

    def ended(self, run: Run, weights: Weights) -> Run:
        """Return a run with its final weights, which are measured once more."""
        run.weights = weights
        run.trace.append((run.seconds, self.measure(weights)))
        return run

    def streams(self, number: int) -> list[np.random.Generator]:
        """Return the generators of a worker, for times and for data."""
        return [np.random.default_rng([self.seed, kind, number]) for kind in (0, 1)]

    def duration(self, times: np.random.Generator) -> float:
        """Draw the seconds of a step."""
        if not self.spread:
            return 1.0
        shape = self.spread**-2
        return float(times.gamma(shape, 1 / shape))


def _mean(name: str, gradients: Sequence[Weights]) -> Array:
    first, *others = (each[name] for each in gradients)
    return np.asarray(sum(others, first) / first.dtype.type(len(gradients)))
