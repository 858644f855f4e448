"""Train with every wrapper in one process, and as 1 and 2 replicas; run as a program.

Its argument is a list of wrapper, execution mode and number of replicas (0: no
strategy), as JSON. It prints a line of JSON for each: these three, the state after all
steps, the same on every replica, and the reports.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

from lockstep import tf as ls  # noqa: E402
from lockstep.tf.wrapper import base_of  # noqa: E402

v1 = tf.compat.v1
INF = float("inf")
STEPS = [[1.0, 3.0], [2.0, INF], [1.0, -1.0], [0.5, 0.25], [0.0, 0.0]]
"""What each replica multiplies its loss by: in the second step the gradients of one
replica only are finite, in the third those of both cancel."""
ROWS = [[0, 2, 2], [3, 0]]
"""The rows of the embedding in the batch of each replica; no row has three shares,
whose sum would depend on their order."""
SLOTS = ("m", "v", "momentum", "second_moment")

# TensorFlow numbers the collectives of every strategy alike, so two strategies of the
# same devices do not work in one process.
STRATEGIES = {
    1: tf.distribute.MirroredStrategy(["CPU:0"]),
    2: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
}


def adam() -> Any:
    return v1.train.AdamOptimizer(0.125)


def momentum() -> Any:
    return v1.train.MomentumOptimizer(0.125, 0.5)


def rows(opt: Any, model: list[Any]) -> Any:
    return ls.VariableClippingOptimizer(opt, {model[1].ref(): [1]}, 1.5)


def agn(opt: Any, model: list[Any]) -> Any:
    getter = ls.AGNCustomGetter("/cpu:0")
    getter(model)
    return ls.AGNOptimizer(opt, 1, getter, communication_period=2)


def dynamic() -> Any:
    return ls.DynamicLossScale(8.0, increment_period=2)


def backoff() -> Any:
    return ls.AutomaticLossScaler("Backoff", {"scale_max": 64.0})


Masters = ls.MixedPrecisionOptimizerWrapper
Scaled = ls.MixedPrecisionLossScaleOptimizer
Multitask = ls.MultitaskOptimizerWrapper

OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "multitask": lambda model: Multitask(adam()),
    "novograd": lambda model: Multitask(ls.NovoGrad(0.125)),
    "rows": lambda model: rows(momentum(), model),
    "agn": lambda model: agn(momentum(), model),
    "fixed": lambda model: Scaled(momentum(), 8.0),
    "dynamic": lambda model: Scaled(adam(), dynamic(), clip_norm=4.0),
    "masters": lambda model: Masters(adam(), dynamic()),
    "backoff": lambda model: Masters(momentum(), backoff()),
    "stack": lambda model: Masters(Multitask(rows(adam(), model)), 8.0),
}
SKIPPING = ("fixed", "dynamic", "masters", "backoff", "stack")
HALF = ("masters", "backoff", "stack")


def make_model(kind: str) -> list[Any]:
    """Make a float16 or float32 weight, an embedding, and a head of one task."""
    values = np.array([1.0, 2.0]), np.arange(10.0).reshape(5, 2) / 4, np.array([0.5])
    dtypes = tf.float16 if kind in HALF else tf.float32, tf.float32, tf.float32
    names = "shared", "embedding", "head"
    parts = zip(values, dtypes, names, strict=True)
    return [tf.Variable(tf.cast(v, dtype), name=name) for v, dtype, name in parts]


def loss_of(model: list[Any], factor: Any, replica: int) -> Any:
    """Compute the loss of the batch of a replica; only the first one has the task."""
    shared, embedding, head = model
    total = tf.reduce_sum(tf.cast(shared, tf.float32)) * factor
    total += tf.reduce_sum(tf.gather(embedding, ROWS[replica])) * factor
    return total + tf.reduce_sum(head) * factor if replica == 0 else total


class Run:
    """One training: the model, the optimizer, and how they are stepped and read."""

    def __init__(self, kind: str, count: int) -> None:
        self.strategy = STRATEGIES.get(count)
        self.count = count
        with self.strategy.scope() if self.strategy else contextlib.nullcontext():
            self.model = make_model(kind)
            self.counter = tf.Variable(
                0,
                trainable=False,
                dtype=tf.int64,
                name="global_step",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.optimizer = OPTIMIZERS[kind](self.model)

    def minimize(self, factors: Any) -> Any:
        """Take a step as one process with both batches, or as a replica with one."""
        mine = (0, 1)
        if self.count == 2:
            context = tf.distribute.get_replica_context()
            mine = (int(tf.get_static_value(context.replica_id_in_sync_group)),)

        def loss() -> Any:
            return sum(loss_of(self.model, factors[k], k) for k in mine)

        return self.optimizer.minimize(loss, self.counter, self.model)

    def step(self, factors: Any) -> Any:
        """Take a step on all replicas; return the operation of the first one."""
        if self.strategy is None:
            return self.minimize(factors)
        done = self.strategy.run(self.minimize, args=(factors,))
        return self.strategy.experimental_local_results(done)[0]

    def state(self, read: Callable[[Any], Any]) -> dict[str, Any]:
        """Return all state by name, after a check that replicas agree on it."""
        parts = [*self.model, *getattr(self.optimizer, "masters", [])]
        getter = getattr(self.optimizer, "custom_getter", None)
        parts += [] if getter is None else getter.center.shared.values()
        # What a v1 optimizer makes among replicas inside of a function is missing in
        # its variables(): slots and what all variables share are looked up.
        slots = {
            f"{part.name} {name}": slot
            for part in parts
            for name in SLOTS
            if (slot := self.optimizer.get_slot(part, name)) is not None
        }
        shared = base_of(self.optimizer)._non_slot_dict.values()
        others = [*self.model, self.counter, *shared, *self.optimizer.variables()]
        is_slot = {slot.ref() for slot in slots.values()}
        others = [variable for variable in others if variable.ref() not in is_slot]
        named = slots | {re.sub(r"(_\d+)?:0$", "", v.name): v for v in others}
        found = {}
        for name, variable in named.items():
            copies = [variable]
            if self.strategy:
                copies = self.strategy.experimental_local_results(variable)
            values = [np.asarray(read(copy), np.float64).tolist() for copy in copies]
            assert all(value == values[0] for value in values), name
            found[name] = values[0]
        return found


def train(kind: str, mode: str, count: int) -> Any:
    """Take all steps; return the state, and the reports in eager mode."""
    steps = [s for s in STEPS if kind in SKIPPING or INF not in s]
    run = Run(kind, count)
    if mode == "graph":
        factors = v1.placeholder(tf.float32, [2])
        done = run.step(factors)
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [done]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for step in steps:
                session.run(done, {factors: step})
            return run.state(session.run), []

    def unit(factors: Any) -> None:
        run.step(factors)

    call = tf.function(unit, autograph=False) if mode == "function" else unit
    reports = []
    for step in steps:
        call(tf.constant(step))
        if mode == "eager":
            reports.append(repr(run.optimizer.last_step))
    return run.state(lambda variable: variable.numpy()), reports


def main(chosen: list[list[Any]]) -> None:
    """Print the results of some wrappers, modes and numbers of replicas."""
    for kind, mode, count in chosen:
        graph = tf.Graph().as_default if mode == "graph" else contextlib.nullcontext
        with graph():
            line = [kind, mode, count, train(kind, mode, count)]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
