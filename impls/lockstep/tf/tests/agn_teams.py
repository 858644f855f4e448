"""Workers of AGN with one center: of their process, or behind that of a served one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parity import drivers
from lockstep import tf as lockstep_tf
from lockstep.ray.tests.local_host import LocalHost
from lockstep.tf.agn_center import RemoteCenter

START = np.float32([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]])

# Which worker of a cluster takes a step, and its gradient.
EVENTS = [
    (number, [0.1 * k - 0.7, 0.3 + 0.05 * k])
    for k, number in enumerate([0, 0, 1, 0, 1, 1, 1, 0, 0, 1])
]


class Team:
    """Workers with two variables each, on a served center or on one of one process.

    ``around`` puts wrappers around an optimizer, given a worker's variables.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        host: LocalHost | None = None,
        count: int = 2,
        names: Any = lockstep_tf,
        period: int = 2,
        around: Callable[[Any, Any], Any] = lambda rule, _: rule,
        **options: Any,
    ) -> None:
        self.host = host
        self.variables: list[Any] = []
        self.workers: list[Any] = []
        center = None
        for number in range(count):
            center = center if host is None else RemoteCenter(host)
            starts = {"w": START + number, "b": 0.5}
            weights = {n: tf.Variable(start, name=n) for n, start in starts.items()}
            getter = names.AGNCustomGetter("/cpu:0", center)
            getter(list(weights.items()))
            center = getter.center
            rule = around(make(), weights)
            worker = names.AGNOptimizer(rule, count, getter, period, **options)
            worker.get_init_op(number)
            self.variables.append(list(weights.values()))
            self.workers.append(worker)

    def step(
        self, number: int, seed: int, scales: Sequence[float] = (1.0, 1.0), **given: Any
    ) -> None:
        """Let a worker take a step with random gradients."""
        random = np.random.default_rng(seed)
        pairs = [
            (tf.constant(np.float32(random.normal(size=v.shape) * scale)), v)
            for v, scale in zip(self.variables[number], scales, strict=True)
        ]
        self.workers[number].apply_gradients(pairs, **given)

    def fill(self, number: int, value: float) -> None:
        """Let a worker take a step with gradients of one value."""
        pairs = [(tf.fill(v.shape, value), v) for v in self.variables[number]]
        self.workers[number].apply_gradients(pairs)

    def weights(self) -> list[list[bytes]]:
        """Return the bits of the workers' variables."""
        return [bits(variables) for variables in self.variables]

    def shared(self) -> list[bytes]:
        """Return the bits of the shared variables."""
        if self.host is None:
            return bits(self.workers[0].custom_getter.center.shared.values())
        assert self.host.center is not None
        return [array.tobytes() for array in self.host.center.present().values()]


def bits(variables: Iterable[Any]) -> list[bytes]:
    return [variable.numpy().tobytes() for variable in variables]


def single(names: Any = lockstep_tf, **options: Any) -> tuple[tf.Variable, Any]:
    """Return the variable of a single worker, and its optimizer."""
    variable = tf.Variable([1.0, -2.0], name="w")
    getter = names.AGNCustomGetter("/cpu:0")
    getter([variable])
    rule = lockstep_tf.AdamOptimizer(0.1)
    return variable, names.AGNOptimizer(rule, 1, getter, 2, **options)


def replayed() -> list[list[Any]]:
    """Return the state after each event on the reference, with momentum, period 2.

    A state is a worker's weight, the shared one, the accumulator, and both counts.
    """
    driver: Any = drivers.load("reference", strict=False)
    workers = driver.workers({"w": np.float32([1.0, -2.0])}, 2)
    counter, optimizers = driver.counter(), []
    for worker in workers:
        rule = {"learning_rate": 0.25, "momentum": 0.5}
        base = driver.optimizer("Momentum", rule, worker.variables)
        optimizers.append(driver.names.AGNOptimizer(base, 2, worker.getter, 2))
    states = []
    for number, gradient in EVENTS:
        worker, optimizer = workers[number], optimizers[number]
        pairs = [(np.float32(gradient), worker.variables[0])]
        optimizer.apply_gradients(pairs, global_step=counter)
        own = [*worker.variables, *worker.centers, *worker.accumulators]
        own += [optimizer.local_step, counter]
        states.append([variable.value.tolist() for variable in own])
    return states
