"""Workers that train their own weights and push the sum of a round.

In DOWNPOUR and DynSGD the server uses these sums directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.simulator.method import Gradients, Pushed, Weights
from harness.simulator.rule import Rule, RuleState
from lockstep.errors import unknown_name
from lockstep.interface import Array, Rows

GRADIENT, DELTA = COMMITS = ("gradient", "delta")


class GatheringWorker(NamedTuple):
    """A worker: its weights, the state of its rule, and its gathered sum.

    ``present``: the names of the variables with a gradient in the last step.
    """

    weights: Weights
    state: RuleState
    gathered: Weights
    present: tuple[str, ...]


class GatheringServer(NamedTuple):
    """The shared weights, and the slots that the rule keeps for them."""

    weights: Weights
    state: RuleState


class Gathering:
    """The base of AGN, DOWNPOUR and DynSGD, which differ in how they scale a sum.

    One local step of a worker with weights w, gradient g and sum a: w' = rule(w, g),
    a = a + g. At the end of a round the worker sends :meth:`committed` of a, the server
    has c = rule(c, :meth:`weighed` of it), with the worker's powers of beta, and the
    worker continues from c with a = 0.

    With ``commit="delta"`` a worker adds up the changes of its weights, a = a + w' - w,
    and the server adds the result: c = c + :meth:`weighed` of it.

    Args:
        rule: the base optimizer, of workers and, for gradients, of the server.
        period: local steps between two pushes.
        commit: ``"gradient"`` or ``"delta"``.
    """

    waits_for_all = False

    def __init__(self, rule: Rule, period: int, commit: str = GRADIENT) -> None:
        if commit not in COMMITS:
            raise unknown_name("AGNOptimizer: commit", commit, COMMITS)
        self.rule = rule
        self.period = period
        self.commit = commit

    def committed(self, gathered: Array) -> Array:
        """Return the message for a sum over a round."""
        return gathered

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return a worker's change as the server applies it."""
        return change

    def worker(self, weights: Weights) -> GatheringWorker:
        """Return a worker with an empty sum."""
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return GatheringWorker(dict(weights), self.rule.start(weights), zeros, ())

    def server(self, weights: Weights) -> GatheringServer:
        """Return the server with fresh slots."""
        return GatheringServer(dict(weights), self.rule.start(weights))

    def weights_of(self, state: GatheringWorker | GatheringServer) -> Weights:
        """Return the weights of a worker or of the server."""
        return state.weights

    def local_step(
        self, worker: GatheringWorker, gradients: Gradients
    ) -> GatheringWorker:
        """Return the worker after a step, with its gradients or changes added up."""
        moved, state = self.rule.step(worker.weights, worker.state, gradients)
        gathered = dict(worker.gathered)
        present = tuple(name for name, g in gradients.items() if g is not None)
        for name in present:
            change = self.gathered_of(worker, moved, name, gradients[name])
            with np.errstate(all="ignore"):
                gathered[name] = gathered[name] + change
        return GatheringWorker(moved, state, gathered, present)

    def gathered_of(
        self, worker: GatheringWorker, moved: Weights, name: str, gradient: Any
    ) -> Array:
        """Return a step's term of the sum: the gradient, or the change of weights."""
        if self.commit == DELTA:
            return np.asarray(moved[name] - worker.weights[name])
        return dense(gradient, worker.weights[name])

    def push(self, worker: GatheringWorker) -> tuple[Weights, Any]:
        """Return the sums of the last step's variables, and the powers of beta."""
        with np.errstate(all="ignore"):
            sent = {n: self.committed(worker.gathered[n]) for n in worker.present}
        return sent, worker.state.shared

    def apply(
        self, server: GatheringServer, pushed: Sequence[Pushed]
    ) -> tuple[GatheringServer, list[Weights]]:
        """Apply pushes in order: by the rule with the sender's powers, or add them."""
        replies: list[Weights] = []
        for arrays, shared, staleness in pushed:
            changes = {n: self.weighed(a, staleness) for n, a in arrays.items()}
            if self.commit == DELTA:
                server = added(server, changes)
            else:
                state = RuleState(server.state.slots, shared)
                stepped = self.rule.step(server.weights, state, changes)
                server = GatheringServer(*stepped)
            replies.append({name: server.weights[name] for name in arrays})
        return server, replies

    def pull(self, worker: GatheringWorker, reply: Weights) -> GatheringWorker:
        """Continue from the server's weights, with the worker's own slots."""
        cleared = {name: np.zeros_like(value) for name, value in reply.items()}
        return worker._replace(
            weights={**worker.weights, **reply},
            gathered={**worker.gathered, **cleared},
            state=self.after_pull(worker.state),
        )

    def after_pull(self, state: RuleState) -> RuleState:
        """Return a worker's state after its push was applied.

        Its powers of beta advance if the server's rule used them.
        """
        if self.commit == DELTA:
            return state
        return state._replace(shared=self.rule.advanced(state.shared))


class Downpour(Gathering):
    """Push the sum of a round unchanged.

    J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, with the
    intervals of fetching and pushing equal: after P local steps the worker sends
    a = sum g_t and the server has c = rule(c, a).
    """


class DynSGD(Gathering):
    """Push the sum of a round; the server divides it by its staleness + 1.

    J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter
    Servers", SIGMOD 2017: a push of staleness s counts 1 / (s + 1), so
    c = rule(c, a / (s + 1)) where DOWNPOUR has c = rule(c, a).
    """

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return change / (staleness + 1)."""
        return np.asarray(change / change.dtype.type(staleness + 1))


def added(server: GatheringServer, changes: Weights) -> GatheringServer:
    """Return the server with ``changes`` added to its weights."""
    with np.errstate(all="ignore"):
        moved = {n: np.asarray(server.weights[n] + c) for n, c in changes.items()}
    return server._replace(weights={**server.weights, **moved})


def dense(gradient: Array | Rows, like: Array) -> Array:
    """Return a gradient as an array; rows of a sparse gradient are added up."""
    if not isinstance(gradient, Rows):
        return gradient
    total = np.zeros_like(like)
    np.add.at(total, gradient.indices, gradient.values)
    return total
