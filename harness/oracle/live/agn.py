"""Family ``agn``: several workers of an AGNOptimizer in one graph, events in order.

In the original, every worker is a process with its own graph, and the shared variables
are on a parameter server under one name. Here a getter around AGN's getter gives every
worker its own local names, and all of them the same shared variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.training.optimizer import _var_key

from harness.oracle.live.golden import Case
from harness.oracle.live.training import (
    input_like,
    make_optimizer,
    pattern_of,
    session,
    state_of,
)

__all__ = ["agn"]

contrib = tf.contrib.opt
SHARED = "global_center_variable/"


def agn(case: Case) -> dict[str, Any]:
    """Run the events of a case, or the special code of its kind."""
    if case.kind in SPECIAL:
        return SPECIAL[case.kind](case)
    shared: dict[str, Any] = {}
    counter = tf.Variable(np.int64(0), trainable=False, name="global_step")
    workers = [
        Worker(index, case, shared, counter)
        for index in range(case.inputs["num_workers"])
    ]
    events = case.inputs["events"]
    for worker in workers:
        worker.share_slots(workers[0])
        for event in events:
            if event["worker"] == worker.index:
                worker.build(event["gradients"])
        worker.offer_slots(workers[0])
    with session() as running:
        running.run(tf.global_variables_initializer())
        running.run(tf.local_variables_initializer())
        running.run([worker.start for worker in workers])
        initial = {
            "global": workers[0].read_shared(running),
            "local": [worker.read(running) for worker in workers],
        }
        states = [played(event, workers, running) for event in events]
        final = [worker.read(running) for worker in workers]
    return {"initial": initial, "events": states, "final_local": final}


def played(event: Any, workers: list[Worker], running: Any) -> dict[str, Any]:
    """Run one step of one worker. Read its state and the shared state."""
    worker = workers[event["worker"]]
    worker.step(event["gradients"], running)
    local, shared = worker.read(running), worker.read_shared(running)
    return {"worker": worker.index, "local": local, "global": shared}


class Worker:
    """One worker: its local variables, its optimizer and the steps it can run."""

    def __init__(
        self, index: int, case: Case, shared: dict[str, Any], counter: Any
    ) -> None:
        self.index = index
        self.counter = counter
        self.recorded = case.variables
        getter = contrib.AGNCustomGetter("/cpu:0")
        outside = tf.variable_scope("", custom_getter=renaming(index, shared))
        inside = tf.variable_scope("", custom_getter=getter, use_resource=True)
        with outside, inside:
            self.local = [
                tf.get_variable(v.name, initializer=tf.constant(v.value))
                for v in self.recorded
            ]
        self.named = dict(zip((v.name for v in self.recorded), self.local))
        self.base = make_optimizer(case.inputs["optimizer"])
        self.getter = getter
        with tf.variable_scope(f"worker_{index}"):
            self.optimizer = contrib.AGNOptimizer(
                self.base,
                case.inputs["num_workers"],
                getter,
                case.inputs["communication_period"],
            )
        with only_trainable(self.local):
            self.start = self.optimizer.get_init_op(index)
        self.built: dict[Any, Any] = {}
        self.owner: Worker = self

    @property
    def accumulators(self) -> dict[str, Any]:
        """The sums of gradients, by variable."""
        return {name: self.getter._grad_map[v] for name, v in self.named.items()}

    @property
    def centers(self) -> dict[str, Any]:
        """The shared variables, by variable."""
        return {name: self.getter._global_map[v] for name, v in self.named.items()}

    def build(self, gradients: list[Any]) -> None:
        """Build the step for this pattern of gradients."""
        pattern = tuple(pattern_of(gradient) for gradient in gradients)
        if pattern in self.built:
            return
        inputs = [input_like(*pair) for pair in zip(gradients, self.recorded)]
        pairs = [(tensor, v) for (tensor, _), v in zip(inputs, self.local)]
        train = self.optimizer.apply_gradients(pairs, global_step=self.counter)
        self.built[pattern] = inputs, train

    def share_slots(self, first: Worker) -> None:
        """Use the first worker's slots of the shared variables.

        In separate processes, workers find them by name on the parameter server.
        """
        self.owner = first
        for center in first.centers.values():
            for name in first.base.get_slot_names():
                slot = first.base.get_slot(center, name)
                if slot is not None:
                    self.base._slot_dict(name)[_var_key(center)] = slot

    def offer_slots(self, first: Worker) -> None:
        """Give the first worker the slots of shared variables that it lacks."""
        for center in self.centers.values():
            for name in self.base.get_slot_names():
                slot = self.base.get_slot(center, name)
                if slot is not None:
                    first.base._slot_dict(name).setdefault(_var_key(center), slot)

    def step(self, gradients: list[Any], running: Any) -> None:
        """Run one step."""
        inputs, train = self.built[tuple(pattern_of(g) for g in gradients)]
        feeds: dict[Any, Any] = {}
        for gradient, variable, (_, feed) in zip(gradients, self.recorded, inputs):
            feeds.update(feed(gradient, variable))
        running.run(train, feeds)

    def read(self, running: Any) -> dict[str, Any]:
        """Read this worker's own state."""
        state = state_of(self.base, self.named)
        step = self.optimizer._local_step
        more = {"accumulators": self.accumulators, "local_step": step}
        values: dict[str, Any] = running.run({**state, **more})
        return values

    def read_shared(self, running: Any) -> dict[str, Any]:
        """Read the shared state."""
        state = state_of(self.owner.base, self.centers)
        state.pop("non_slots", None)
        values: dict[str, Any] = running.run({**state, "global_step": self.counter})
        return values


def renaming(index: int, shared: dict[str, Any]) -> Callable[..., Any]:
    """Return a getter that reuses shared variables and renames local ones."""

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(SHARED):
            if name not in shared:
                shared[name] = getter(name, *args, **kwargs)
            return shared[name]
        return getter(f"worker_{index}/{name}", *args, **kwargs)

    return get


class only_trainable:
    """Temporarily make these variables the graph's only trainable ones.

    ``get_init_op`` uses all trainable ones, which in a graph per worker are its own.
    """

    def __init__(self, variables: list[Any]) -> None:
        key = tf.GraphKeys.TRAINABLE_VARIABLES
        self.collection = tf.get_collection_ref(key)
        self.variables = variables

    def __enter__(self) -> None:
        self.before = list(self.collection)
        self.collection[:] = self.variables

    def __exit__(self, *_: Any) -> None:
        self.collection[:] = self.before


def make_agn(name: str = "w", period: int = 2) -> tuple[Any, Any]:
    """Create one variable with the getter, and an optimizer for it."""
    getter = contrib.AGNCustomGetter("/cpu:0")
    with tf.variable_scope("", custom_getter=getter):
        variable = tf.get_variable(name, initializer=tf.constant([[1.0, 1.0]]))
    base = tf.train.GradientDescentOptimizer(0.1)
    return variable, contrib.AGNOptimizer(base, 1, getter, period)


def unknown_variable(case: Case) -> dict[str, Any]:
    """Apply to a variable that the getter did not create."""
    _, optimizer = make_agn()
    other = tf.Variable([1.0, 1.0], name="other")
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), other)])
    return {}


def iterator(case: Case) -> dict[str, Any]:
    """Pass the pairs as a one-shot iterator."""
    variable, optimizer = make_agn()
    optimizer.apply_gradients(iter([(tf.constant([[1.0, 1.0]]), variable)]))
    return {}


def all_absent(case: Case) -> dict[str, Any]:
    """Pass only absent gradients."""
    variable, optimizer = make_agn()
    optimizer.apply_gradients([(None, variable)])
    return {}


def no_variables(case: Case) -> dict[str, Any]:
    """Request the initial operation without any variables."""
    getter = contrib.AGNCustomGetter("/cpu:0")
    base = tf.train.GradientDescentOptimizer(0.1)
    contrib.AGNOptimizer(base, 1, getter).get_init_op(0)
    return {}


def custom_getter(case: Case) -> dict[str, Any]:
    """Create a trainable and another variable in a scope, and reuse the first."""
    getter = contrib.AGNCustomGetter("/cpu:0")
    with tf.variable_scope("net", custom_getter=getter):
        local = tf.get_variable("w", [2])
        tf.get_variable("stat", [2], trainable=False)
    with tf.variable_scope("net", custom_getter=getter, reuse=True):
        again = tf.get_variable("w", [2])

    def names(key: str) -> list[str]:
        return sorted(variable.op.name for variable in tf.get_collection(key))

    return {
        "local_name": local.op.name,
        "global_name": getter._global_map[local].op.name,
        "accumulator_name": getter._grad_map[local].op.name,
        "global_collection": names(tf.GraphKeys.GLOBAL_VARIABLES),
        "local_collection": names(tf.GraphKeys.LOCAL_VARIABLES),
        "trainable_collection": names(tf.GraphKeys.TRAINABLE_VARIABLES),
        "reuse_gives_same": again is local,
        "mapped_variables": len(getter._global_map),
    }


SPECIAL = {
    "error_unknown_variable": unknown_variable,
    "error_iterator": iterator,
    "error_all_absent": all_absent,
    "error_no_variables": no_variables,
    "custom_getter": custom_getter,
}
