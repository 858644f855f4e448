"""Elastic averaging, asynchronous.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS
2015, algorithm 1: after P local steps of a worker with weights w,
e = alpha (w - c); w = w - e; c = c + e. In the paper a worker begins with this
exchange, where e is 0. The paper recommends alpha = 0.9 / n for n workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.errors import HarnessError
from harness.simulator.method import Gradients, Pushed, Weights
from harness.simulator.rule import Rule, RuleState
from lockstep.errors import sentence


class ElasticWorker(NamedTuple):
    """A worker: its weights and the state of its rule."""

    weights: Weights
    state: RuleState


class EASGD:
    """Move worker and server towards each other by a part of their distance.

    Args:
        rule: the base optimizer of the workers.
        period: local steps between two exchanges.
        alpha: that part of the distance, 0 < alpha < 1.
    """

    waits_for_all = False

    def __init__(self, rule: Rule, period: int, alpha: float) -> None:
        if not 0 < alpha < 1:
            remedy = "give 0.9 / n for n workers"
            text = sentence("EASGD: alpha", "0 < alpha < 1", repr(alpha), remedy)
            raise HarnessError(text)
        self.rule = rule
        self.period = period
        self.alpha = alpha

    def worker(self, weights: Weights) -> ElasticWorker:
        """Return a worker with the server's weights."""
        return ElasticWorker(dict(weights), self.rule.start(weights))

    def server(self, weights: Weights) -> Weights:
        """Return the server's state, which is only its weights."""
        return dict(weights)

    def weights_of(self, state: Any) -> Weights:
        """Return the weights of a worker or of the server."""
        weights: Weights = getattr(state, "weights", state)
        return weights

    def local_step(self, worker: ElasticWorker, gradients: Gradients) -> ElasticWorker:
        """Return the worker after a step of its own rule."""
        return ElasticWorker(*self.rule.step(worker.weights, worker.state, gradients))

    def push(self, worker: ElasticWorker) -> tuple[Weights, Any]:
        """Return the worker's weights."""
        return worker.weights, None

    def apply(
        self, server: Weights, pushed: Sequence[Pushed]
    ) -> tuple[Weights, list[Weights]]:
        """Move the server towards each worker; the reply is the distance moved."""
        replies: list[Weights] = []
        for arrays, _, _ in pushed:
            moves = {n: self.part(w - server[n]) for n, w in arrays.items()}
            server = {n: np.asarray(server[n] + move) for n, move in moves.items()}
            replies.append(moves)
        return server, replies

    def part(self, distance: Any) -> Any:
        """Return alpha times a distance, in its dtype."""
        return np.asarray(distance * distance.dtype.type(self.alpha))

    def pull(self, worker: ElasticWorker, reply: Weights) -> ElasticWorker:
        """Move the worker towards the server."""
        moved = {n: np.asarray(worker.weights[n] - m) for n, m in reply.items()}
        return worker._replace(weights=moved)
