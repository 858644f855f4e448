"""Accumulated gradient normalization.

J. Hermans, G. Spanakis, R. Moeckel, "Accumulated Gradient Normalization", 2017
(arXiv:1710.02368), and ``tf.contrib.opt.AGNOptimizer`` of TensorFlow 1.15.

A round of P = ``period`` local steps t with gradients g_t at the worker's weights w_t:

- ``commit="gradient"``, as TensorFlow's code: the worker sends a / P with a = sum g_t,
  the server has c = rule(c, a / P);
- ``commit="delta"``, as the paper: the worker sends d / P with d = sum (w_t+1 - w_t),
  the server has c = c + d / P.

With gradient descent at a constant rate these are equal but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.simulator.gathering import Gathering, GatheringServer, GatheringWorker
from harness.simulator.method import Pushed, Weights
from harness.simulator.rule import Rule, RuleState
from lockstep.interface import Array
from lockstep.messages.errors import unknown_name
from lockstep.messages.workers.agn import COMMITS, DELTA, GRADIENT, WRAPPER

__all__ = ["AGN"]


class AGN(Gathering):
    """Push the mean of a round.

    Args:
        rule: the base optimizer.
        period: local steps between two pushes.
        commit: ``"gradient"`` or ``"delta"``.
    """

    def __init__(self, rule: Rule, period: int, commit: str = GRADIENT) -> None:
        if commit not in COMMITS:
            raise unknown_name(f"{WRAPPER}: commit", commit, COMMITS)
        super().__init__(rule, period)
        self.commit = commit

    def committed(self, gathered: Array) -> Array:
        """Return gathered / P."""
        return np.asarray(gathered / gathered.dtype.type(self.period))

    def gathered_of(
        self, worker: GatheringWorker, moved: Weights, name: str, gradient: Any
    ) -> Array:
        """Return the gradient, or what the step added to the weights."""
        if self.commit == DELTA:
            return np.asarray(moved[name] - worker.weights[name])
        return super().gathered_of(worker, moved, name, gradient)

    def apply(
        self, server: GatheringServer, pushed: Sequence[Pushed]
    ) -> tuple[GatheringServer, list[Weights]]:
        """Let the rule take the means, or add the differences."""
        if self.commit == GRADIENT:
            return super().apply(server, pushed)
        replies: list[Weights] = []
        for arrays, _, _ in pushed:
            moved = {n: np.asarray(server.weights[n] + arrays[n]) for n in arrays}
            server = server._replace(weights={**server.weights, **moved})
            replies.append(moved)
        return server, replies

    def after_pull(self, state: RuleState) -> RuleState:
        """Return the state; differences are added without the worker's powers."""
        return state if self.commit == DELTA else super().after_pull(state)
