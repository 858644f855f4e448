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

from harness.oracle.live.cases import Case
from harness.oracle.live.training import make_optimizer, session, state_of, tensors

contrib = tf.contrib.opt


def agn(case: Case) -> dict[str, Any]:
    """Run the events of a case, or what its kind names."""
    if case.kind == "custom_getter":
        return custom_getter()
    if case.kind.startswith("error"):
        return provoked(case.kind)
    shared: dict[str, Any] = {}
    slots: dict[str, Any] = {}
    counter = tf.Variable(np.int64(0), trainable=False, name="global_step")
    count = case.inputs["num_workers"]
    workers = [Worker(number, case, shared, slots) for number in range(count)]
    steps = []
    for event in case.inputs["events"]:
        worker = workers[event["worker"]]
        pairs = zip(tensors(event["gradients"], case), worker.local.values())
        train = worker.optimizer.apply_gradients(list(pairs), global_step=counter)
        steps.append((worker, train))
    common = {**workers[0].shared_state(), "global_step": counter}
    own = [worker.state() for worker in workers]
    with session() as running:
        running.run(tf.global_variables_initializer())
        running.run(tf.local_variables_initializer())
        running.run([worker.start for worker in workers])
        initial, events = running.run({"global": common, "local": own}), []
        for worker, train in steps:
            running.run(train)
            state = running.run({"local": own[worker.number], "global": common})
            events.append({"worker": worker.number, **state})
        final = running.run(own)
    return {"initial": initial, "events": events, "final_local": final}


class Worker:
    """One worker: its local variables and its optimizer.

    Args:
        shared: the shared variables of all workers, by name.
        slots: the slots of all workers' base optimizers. In separate processes, workers
            find those of shared variables by name on the parameter server.
    """

    def __init__(
        self, number: int, case: Case, shared: dict[str, Any], slots: dict[str, Any]
    ) -> None:
        self.number = number
        # get_init_op uses all trainable variables, which in a process are a worker's.
        tf.get_collection_ref(tf.GraphKeys.TRAINABLE_VARIABLES)[:] = []
        self.getter = contrib.AGNCustomGetter("/cpu:0")
        outside = tf.variable_scope("", custom_getter=renaming(number, shared))
        inside = tf.variable_scope("", custom_getter=self.getter, use_resource=True)
        with outside, inside:
            self.local = {
                v.name: tf.get_variable(v.name, initializer=tf.constant(v.value))
                for v in case.variables
            }
        self.base = make_optimizer(case.inputs["optimizer"])
        self.base._slots = slots
        with tf.variable_scope(f"worker_{number}"):
            period = case.inputs["communication_period"]
            workers = case.inputs["num_workers"]
            self.optimizer = contrib.AGNOptimizer(
                self.base, workers, self.getter, period
            )
        self.start = self.optimizer.get_init_op(number)

    def state(self) -> dict[str, Any]:
        """Return this worker's own state."""
        gathered = {name: self.getter._grad_map[v] for name, v in self.local.items()}
        state = {"accumulators": gathered, "local_step": self.optimizer._local_step}
        return {**state_of(self.base, self.local), **state}

    def shared_state(self) -> dict[str, Any]:
        """Return the shared variables and their slots."""
        centers = {name: self.getter._global_map[v] for name, v in self.local.items()}
        state = state_of(self.base, centers)
        state.pop("non_slots", None)
        return state


def renaming(number: int, shared: dict[str, Any]) -> Callable[..., Any]:
    """Return a getter that reuses shared variables and renames local ones."""

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if not name.startswith("global_center_variable/"):
            return getter(f"worker_{number}/{name}", *args, **kwargs)
        if name not in shared:
            shared[name] = getter(name, *args, **kwargs)
        return shared[name]

    return get


def provoked(kind: str) -> dict[str, Any]:
    """Do what a case of kind ``error_*`` names."""
    getter = contrib.AGNCustomGetter("/cpu:0")
    base = tf.train.GradientDescentOptimizer(0.1)
    optimizer = contrib.AGNOptimizer(base, 1, getter, 2)
    if kind == "error_no_variables":
        optimizer.get_init_op(0)
    with tf.variable_scope("", custom_getter=getter):
        variable = tf.get_variable("w", initializer=tf.constant([[1.0, 1.0]]))
    ones = tf.constant([[1.0, 1.0]])
    if kind == "error_unknown_variable":
        optimizer.apply_gradients([(ones, tf.Variable([[1.0, 1.0]]))])
    if kind == "error_iterator":
        optimizer.apply_gradients(iter([(ones, variable)]))
    if kind == "error_all_absent":
        optimizer.apply_gradients([(None, variable)])
    return {}


def custom_getter() -> dict[str, Any]:
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
