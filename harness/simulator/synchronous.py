"""Synchronous data parallelism: one step on the mean gradient of all workers.

c = rule(c, (g_1 + ... + g_n) / n) with every g at c, as in a step on an n times larger
batch. The server waits for every worker in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.simulator.gathering import GatheringServer, dense
from harness.simulator.method import Gradients, Pushed, Weights
from harness.simulator.rule import Rule


class WaitingWorker(NamedTuple):
    """A worker: the server's weights, and the worker's gradients at these weights."""

    weights: Weights
    gradients: Weights


class Synchronous:
    """Average the gradients of all workers in every step.

    Args:
        rule: the base optimizer, at the server.
    """

    waits_for_all = True
    period = 1

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def worker(self, weights: Weights) -> WaitingWorker:
        """Return a worker with the server's weights."""
        return WaitingWorker(dict(weights), {})

    def server(self, weights: Weights) -> GatheringServer:
        """Return the server with fresh slots."""
        return GatheringServer(dict(weights), self.rule.start(weights))

    def weights_of(self, state: WaitingWorker | GatheringServer) -> Weights:
        """Return the weights of a worker or of the server."""
        return state.weights

    def local_step(self, worker: WaitingWorker, gradients: Gradients) -> WaitingWorker:
        """Return the worker with its gradients; absent ones are zero in the mean."""
        arrays = {name: np.zeros_like(value) for name, value in worker.weights.items()}
        for name, gradient in gradients.items():
            if gradient is not None:
                arrays[name] = dense(gradient, arrays[name])
        return worker._replace(gradients=arrays)

    def push(self, worker: WaitingWorker) -> tuple[Weights, Any]:
        """Return the gradients."""
        return worker.gradients, None

    def apply(
        self, server: GatheringServer, pushed: Sequence[Pushed]
    ) -> tuple[GatheringServer, list[Weights]]:
        """Take one step on the mean gradient; the reply is the new weights."""
        mean = {
            name: np.asarray(
                sum(arrays[name] for arrays, _, _ in pushed)
                / value.dtype.type(len(pushed))
            )
            for name, value in server.weights.items()
        }
        moved = GatheringServer(*self.rule.step(server.weights, server.state, mean))
        return moved, [moved.weights] * len(pushed)

    def pull(self, worker: WaitingWorker, reply: Weights) -> WaitingWorker:
        """Continue from the server's weights."""
        return WaitingWorker(reply, {})
