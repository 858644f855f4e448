"""Methods of asynchronous training: what a worker sends, and what it gets back.

A worker takes P = ``period`` local steps, sends a message to the center, waits for the
reply and continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from lockstep.interface import Array
from lockstep.reference import Variable
from lockstep.reference.agn import Center
from lockstep.reference.optimizers import RuleOptimizer

Weights: TypeAlias = Mapping[str, Array]
"""Name of a variable -> its value, or its gradient."""

GRADIENT, DELTA = ("gradient", "delta")


class Worker:
    """A worker: its variables, its optimizer, and what it adds up in a round."""

    def __init__(self, optimizer: RuleOptimizer, weights: Weights) -> None:
        self.optimizer = optimizer
        self.variables = {
            name: Variable(name, value) for name, value in weights.items()
        }
        self.gathered = {name: np.zeros_like(value) for name, value in weights.items()}

    @property
    def weights(self) -> dict[str, Array]:
        """The values of the variables."""
        return {name: variable.value for name, variable in self.variables.items()}

    def step(self, gradients: Weights) -> None:
        """Take a step of the worker's own optimizer."""
        pairs = [
            (gradients[name], variable) for name, variable in self.variables.items()
        ]
        self.optimizer.apply_gradients(pairs)


def new_center(weights: Weights) -> Center:
    """Return a center with these weights and fresh slots."""
    center = Center()
    for name, value in weights.items():
        center.join(name, Variable(name, value))
    return center


def weights_of(center: Center) -> dict[str, Array]:
    """Return the center's weights."""
    return {name: variable.value for name, variable in center.variables.items()}


class Downpour:
    """Push the sum of a round unchanged; AGN and DynSGD scale it.

    J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, with the
    intervals of fetching and pushing equal. One local step of a worker with weights w,
    gradient g and sum a: w' = rule(w, g), a = a + g. At the end of a round the worker
    sends :meth:`committed` of a, the center has c = rule(c, :meth:`weighed` of it),
    with the worker's powers of beta, and the worker continues from c with a = 0.

    With ``commit="delta"`` a worker adds up the changes of its weights, a = a + w' - w,
    and the center adds the result: c = c + :meth:`weighed` of it.

    Args:
        period: local steps between two pushes.
        commit: ``"gradient"`` or ``"delta"``.
    """

    def __init__(self, period: int, commit: str = GRADIENT) -> None:
        self.period, self.commit = period, commit

    def committed(self, gathered: Array) -> Array:
        """Return the message for a sum over a round."""
        return gathered

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return a worker's change as the center applies it."""
        return change

    def local_step(self, worker: Worker, gradients: Weights) -> None:
        """Take a step, and add up gradients or changes."""
        before = worker.weights
        worker.step(gradients)
        after = worker.weights
        for name, total in worker.gathered.items():
            delta = self.commit == DELTA
            change = after[name] - before[name] if delta else gradients[name]
            worker.gathered[name] = np.asarray(total + change)

    def message(self, worker: Worker) -> Weights:
        """Return what a worker sends at the end of a round."""
        return {name: self.committed(total) for name, total in worker.gathered.items()}

    def apply(
        self, center: Center, worker: Worker, message: Weights, staleness: int
    ) -> Weights:
        """Apply a message that has arrived; return the reply, the center's weights.

        Args:
            worker: the sender.
            staleness: how often others changed the center since the worker's last pull.
        """
        changes = {n: self.weighed(change, staleness) for n, change in message.items()}
        center.push(changes, None if self.commit == DELTA else worker.optimizer)
        return weights_of(center)

    def pull(self, worker: Worker, reply: Weights) -> None:
        """Continue from the center's weights, with the worker's own slots."""
        for name, value in reply.items():
            worker.variables[name].value = value
            worker.gathered[name] = np.zeros_like(value)


class AGN(Downpour):
    """Push the mean of a round: accumulated gradient normalization.

    J. Hermans, G. Spanakis, R. Moeckel, "Accumulated Gradient Normalization", 2017
    (arXiv:1710.02368), and ``tf.contrib.opt.AGNOptimizer`` of TensorFlow 1.15. As
    TensorFlow's code, ``commit="gradient"`` sends a / P with a = sum g_t; as the paper,
    ``commit="delta"`` sends it with a = sum (w_t+1 - w_t). With gradient descent at a
    constant rate these are equal but for rounding.
    """

    def committed(self, gathered: Array) -> Array:
        """Return gathered / P."""
        return np.asarray(gathered / gathered.dtype.type(self.period))


class DynSGD(Downpour):
    """Push the sum of a round; the center divides it by its staleness + 1.

    J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter
    Servers", SIGMOD 2017: a push of staleness s counts 1 / (s + 1).
    """

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return change / (staleness + 1)."""
        return np.asarray(change / change.dtype.type(staleness + 1))


class EASGD(Downpour):
    """Move worker and center towards each other by a part of their distance.

    S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS
    2015, algorithm 1: after P local steps of a worker with weights w,
    e = alpha (w - c); w = w - e; c = c + e. In the paper a worker begins with this
    exchange, where e is 0. The paper recommends alpha = 0.9 / n for n workers.

    Args:
        period: local steps between two exchanges.
        alpha: that part of the distance, 0 < alpha < 1.
    """

    def __init__(self, period: int, alpha: float) -> None:
        super().__init__(period)
        self.alpha = alpha

    def local_step(self, worker: Worker, gradients: Weights) -> None:
        """Take a step of the worker's own rule."""
        worker.step(gradients)

    def message(self, worker: Worker) -> Weights:
        """Return the worker's weights."""
        return worker.weights

    def apply(
        self, center: Center, worker: Worker, message: Weights, staleness: int
    ) -> Weights:
        """Move the center towards the worker; the reply is the distance moved."""
        moves = {}
        for name, value in weights_of(center).items():
            part = value.dtype.type(self.alpha)
            moves[name] = np.asarray((message[name] - value) * part)
        center.push(moves)
        return moves

    def pull(self, worker: Worker, reply: Weights) -> None:
        """Move the worker towards the center."""
        for name, move in reply.items():
            variable = worker.variables[name]
            variable.value = np.asarray(variable.value - move)
