"""Methods of data-parallel training, as pure functions of workers and of the server.

A worker takes P = ``period`` local steps, pushes, waits for the reply and continues.
The state of a worker and of the server is never changed, but replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lockstep import reference
from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.optimizers import RuleOptimizer, Slots

Weights: TypeAlias = Mapping[str, Array]
"""Name of a variable -> its value, of any shape and dtype."""

Gradients: TypeAlias = Mapping[str, Gradient]
"""Name of a variable -> its gradient; absent ones are None or left out."""

GRADIENT, DELTA = ("gradient", "delta")


class RuleState(NamedTuple):
    """The state of a rule: slots by variable name, and scalars of all variables."""

    slots: Mapping[str, Slots]
    shared: Slots


class Rule:
    """One of the base optimizers of the reference, such as ``Rule("Adam")``.

    Args:
        name: a name of :data:`lockstep.optimizers.OPTIMIZERS`.
        arguments: the optimizer's arguments, under TensorFlow 1's names.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        # Only its rule and its arguments are used, not its state.
        self.made: RuleOptimizer = getattr(reference, f"{name}Optimizer")(**arguments)

    def start(self, weights: Weights) -> RuleState:
        """Return the state before the first step."""
        variables = {
            name: reference.Variable(name, value) for name, value in weights.items()
        }
        slots = {name: self.made.initial_slots(v) for name, v in variables.items()}
        return RuleState(slots, dict(self.made.shared))

    def step(
        self, weights: Weights, state: RuleState, gradients: Gradients
    ) -> tuple[dict[str, Array], RuleState]:
        """Return weights and state after one step on the present gradients."""
        moved, slots = dict(weights), dict(state.slots)
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            is_rows = isinstance(gradient, Rows)
            apply = self.made.rule_of_rows if is_rows else self.made.rule
            with np.errstate(all="ignore"):
                numbers = self.made.hyper(weights[name].dtype, state.shared)
                moved[name], slots[name] = apply(
                    numbers, weights[name], slots[name], gradient
                )
        return moved, RuleState(slots, self.advanced(state.shared))

    def advanced(self, shared: Slots) -> Slots:
        """Return the shared powers, each multiplied by its parameter in float32."""
        factors = (self.made.spec.shared or {}).items()
        arguments = self.made.arguments
        return {
            power: np.asarray(shared[power] * np.float32(arguments[factor]))
            for power, factor in factors
        }


class Pushed(NamedTuple):
    """A message that has arrived at the server.

    Attributes:
        arrays: the arrays by name; only their bytes count for the network.
        extra: further numbers, which do not count as bytes.
        staleness: the number of pushes of others that the server applied since this
            worker's last pull.
    """

    arrays: Weights
    extra: Any
    staleness: int


class Server(NamedTuple):
    """The shared weights, and the slots that a rule keeps for them."""

    weights: Weights
    state: RuleState


class Worker(NamedTuple):
    """A worker: its weights, the state of its rule, and what it gathers in a round.

    ``present``: the names of the variables with a gradient in the last step.
    """

    weights: Weights
    state: RuleState
    gathered: Weights
    present: tuple[str, ...] = ()


class Downpour:
    """Push the sum of a round unchanged; AGN and DynSGD scale it.

    J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, with the
    intervals of fetching and pushing equal. One local step of a worker with weights w,
    gradient g and sum a: w' = rule(w, g), a = a + g. At the end of a round the worker
    sends :meth:`committed` of a, the server has c = rule(c, :meth:`weighed` of it),
    with the worker's powers of beta, and the worker continues from c with a = 0.

    With ``commit="delta"`` a worker adds up the changes of its weights, a = a + w' - w,
    and the server adds the result: c = c + :meth:`weighed` of it.

    Args:
        rule: the base optimizer, of workers and, for gradients, of the server.
        period: local steps between two pushes.
        commit: ``"gradient"`` or ``"delta"``.
    """

    waits_for_all = False
    """Whether the server waits for all workers and applies their pushes together."""

    def __init__(self, rule: Rule, period: int, commit: str = GRADIENT) -> None:
        self.rule, self.period, self.commit = rule, period, commit

    def committed(self, gathered: Array) -> Array:
        """Return the message for a sum over a round."""
        return gathered

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return a worker's change as the server applies it."""
        return change

    def worker(self, weights: Weights) -> Worker:
        """Return a worker that starts from the server's weights."""
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return Worker(dict(weights), self.rule.start(weights), zeros)

    def server(self, weights: Weights) -> Server:
        """Return the server with fresh slots."""
        return Server(dict(weights), self.rule.start(weights))

    def local_step(self, worker: Worker, gradients: Gradients) -> Worker:
        """Return the worker after a step, with its gradients or changes added up."""
        moved, state = self.rule.step(worker.weights, worker.state, gradients)
        gathered = dict(worker.gathered)
        present = tuple(name for name, g in gradients.items() if g is not None)
        for name in present:
            before = worker.weights[name]
            with np.errstate(all="ignore"):
                delta = self.commit == DELTA
                change = (
                    moved[name] - before if delta else dense(gradients[name], before)
                )
                gathered[name] = gathered[name] + change
        return Worker(moved, state, gathered, present)

    def push(self, worker: Worker) -> tuple[Weights, Any]:
        """Return the sums of the last step's variables, and the powers of beta."""
        with np.errstate(all="ignore"):
            sent = {n: self.committed(worker.gathered[n]) for n in worker.present}
        return sent, worker.state.shared

    def apply(
        self, server: Server, pushed: Sequence[Pushed]
    ) -> tuple[Server, list[Weights]]:
        """Apply pushes in order: by the rule with the sender's powers, or add them."""
        replies: list[Weights] = []
        for arrays, shared, staleness in pushed:
            changes = {n: self.weighed(a, staleness) for n, a in arrays.items()}
            if self.commit == DELTA:
                with np.errstate(all="ignore"):
                    moved = {
                        n: np.asarray(server.weights[n] + c) for n, c in changes.items()
                    }
                server = server._replace(weights={**server.weights, **moved})
            else:
                state = RuleState(server.state.slots, shared)
                server = Server(*self.rule.step(server.weights, state, changes))
            replies.append({name: server.weights[name] for name in arrays})
        return server, replies

    def pull(self, worker: Worker, reply: Weights) -> Worker:
        """Continue from the server's weights, with the worker's own slots.

        Its powers of beta advance if the server's rule used them.
        """
        cleared = {name: np.zeros_like(value) for name, value in reply.items()}
        state = worker.state
        if self.commit == GRADIENT:
            state = state._replace(shared=self.rule.advanced(state.shared))
        return worker._replace(
            weights={**worker.weights, **reply},
            gathered={**worker.gathered, **cleared},
            state=state,
        )


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
    """Push the sum of a round; the server divides it by its staleness + 1.

    J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter
    Servers", SIGMOD 2017: a push of staleness s counts 1 / (s + 1).
    """

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return change / (staleness + 1)."""
        return np.asarray(change / change.dtype.type(staleness + 1))


class EASGD(Downpour):
    """Move worker and server towards each other by a part of their distance.

    S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS
    2015, algorithm 1: after P local steps of a worker with weights w,
    e = alpha (w - c); w = w - e; c = c + e. In the paper a worker begins with this
    exchange, where e is 0. The paper recommends alpha = 0.9 / n for n workers.

    Args:
        rule: the base optimizer of the workers.
        period: local steps between two exchanges.
        alpha: that part of the distance, 0 < alpha < 1.
    """

    def __init__(self, rule: Rule, period: int, alpha: float) -> None:
        super().__init__(rule, period)
        self.alpha = alpha

    def local_step(self, worker: Worker, gradients: Gradients) -> Worker:
        """Return the worker after a step of its own rule."""
        moved, state = self.rule.step(worker.weights, worker.state, gradients)
        return worker._replace(weights=moved, state=state)

    def push(self, worker: Worker) -> tuple[Weights, Any]:
        """Return the worker's weights."""
        return worker.weights, None

    def apply(
        self, server: Server, pushed: Sequence[Pushed]
    ) -> tuple[Server, list[Weights]]:
        """Move the server towards each worker; the reply is the distance moved."""
        replies: list[Weights] = []
        for arrays, _, _ in pushed:
            weights = server.weights
            parts = {n: w.dtype.type(self.alpha) for n, w in arrays.items()}
            moves = {
                n: np.asarray((w - weights[n]) * parts[n]) for n, w in arrays.items()
            }
            moved = {n: np.asarray(weights[n] + move) for n, move in moves.items()}
            server = server._replace(weights=moved)
            replies.append(moves)
        return server, replies

    def pull(self, worker: Worker, reply: Weights) -> Worker:
        """Move the worker towards the server."""
        moved = {n: np.asarray(worker.weights[n] - m) for n, m in reply.items()}
        return worker._replace(weights=moved)


class Synchronous(Downpour):
    """Average the gradients of all workers in every step.

    c = rule(c, (g_1 + ... + g_n) / n) with every g at c, as in a step on an n times
    larger batch. The server waits for every worker in every step.

    Args:
        rule: the base optimizer, at the server.
    """

    waits_for_all = True

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule, period=1)

    def local_step(self, worker: Worker, gradients: Gradients) -> Worker:
        """Return the worker with its gradients; absent ones are zero in the mean."""
        arrays = {name: np.zeros_like(value) for name, value in worker.weights.items()}
        for name, gradient in gradients.items():
            if gradient is not None:
                arrays[name] = dense(gradient, arrays[name])
        return worker._replace(gathered=arrays)

    def push(self, worker: Worker) -> tuple[Weights, Any]:
        """Return the gradients."""
        return worker.gathered, None

    def apply(
        self, server: Server, pushed: Sequence[Pushed]
    ) -> tuple[Server, list[Weights]]:
        """Take one step on the mean gradient; the reply is the new weights."""
        mean = {
            name: np.asarray(
                sum(arrays[name] for arrays, _, _ in pushed)
                / value.dtype.type(len(pushed))
            )
            for name, value in server.weights.items()
        }
        moved = Server(*self.rule.step(server.weights, server.state, mean))
        return moved, [moved.weights] * len(pushed)

    def pull(self, worker: Worker, reply: Weights) -> Worker:
        """Continue from the server's weights."""
        return worker._replace(weights=reply)


def dense(gradient: Gradient, like: Array) -> Array:
    """Return a gradient as an array; rows of a sparse gradient are added up."""
    if not isinstance(gradient, Rows):
        return np.asarray(gradient)
    total = np.zeros_like(like)
    np.add.at(total, gradient.indices, gradient.values)
    return total
