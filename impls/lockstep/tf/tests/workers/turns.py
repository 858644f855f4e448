"""Two workers that train in a fixed order, and the reference that does the same."""

from __future__ import annotations

import numpy as np

from harness.parity import drivers
from harness.parity.drivers.reference import NumpyDriver

__all__ = ["EVENTS", "START", "State", "replayed"]

START = [1.0, -2.0]
EVENTS = [
    (number, [0.1 * k - 0.7, 0.3 + 0.05 * k])
    for k, number in enumerate([0, 0, 1, 0, 1, 1, 1, 0, 0, 1])
]
"""Which worker takes a step, and its gradient."""

State = list[object]
"""A worker's weight, the shared one, the accumulator, local step and global step."""


def replayed(events: list[tuple[int, list[float]]] = EVENTS) -> list[State]:
    """Return the state after each event on the reference, with momentum, period 2."""
    driver = drivers.load("reference", strict=False)
    assert isinstance(driver, NumpyDriver)
    workers = driver.workers({"w": np.float32(START)}, 2)
    counter, optimizers = driver.counter(), []
    for worker in workers:
        rule = driver.optimizer(
            "Momentum", {"learning_rate": 0.25, "momentum": 0.5}, worker.variables
        )
        optimizers.append(driver.names.AGNOptimizer(rule, 2, worker.getter, 2))
    states = []
    for number, gradient in events:
        worker, optimizer = workers[number], optimizers[number]
        pairs = [(np.float32(gradient), worker.variables[0])]
        optimizer.apply_gradients(pairs, global_step=counter)
        own = [*worker.variables, *worker.centers, *worker.accumulators]
        own += [optimizer.local_step, counter]
        states.append([variable.value.tolist() for variable in own])
    return states
