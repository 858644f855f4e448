"""Graph, session and gradients, with the settings of the recording.

On the CPU, one operation at a time, with graph rewriting disabled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live.cases import Case, array

OPTIMIZERS = {
    "GradientDescent": tf.train.GradientDescentOptimizer,
    "Momentum": tf.train.MomentumOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Adagrad": tf.train.AdagradOptimizer,
    "RMSProp": tf.train.RMSPropOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "AdamW": tf.contrib.opt.AdamWOptimizer,
}


def session() -> tf.Session:
    """Start a session on the default graph."""
    config = tf.ConfigProto(
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
        device_count={"GPU": 0},
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.Session(config=config)


def make_optimizer(spec: dict[str, Any]) -> tf.train.Optimizer:
    """Create the base optimizer that a case describes."""
    return OPTIMIZERS[spec["name"]](**spec.get("args", {}))


class Training:
    """The variables, the base optimizer and the gradients of a case in one graph.

    Create it inside the graph.
    """

    def __init__(self, case: Case) -> None:
        resource = case.inputs.get("variable_kind") == "resource"
        self.variables = {
            v.name: tf.Variable(v.value, name=v.name, use_resource=resource)
            for v in case.variables
        }
        # Not with the function of this name, which would choose another kind.
        zero = np.int64(0)
        self.counter = tf.Variable(zero, trainable=False, name="global_step")
        self.base = make_optimizer(case.inputs["optimizer"])
        self.steps = [tensors(step, case) for step in case.inputs["gradients"]]

    def run(
        self, step: Callable[[list[Any]], dict[str, Any]], extra: Any = None
    ) -> dict[str, Any]:
        """Return the state before the first step, and the results of each step.

        All steps are built before the variables are initialized, so that all slots
        exist.

        Args:
            step: builds the operations of a step from gradients and variables. Those
                whose names begin with "_" are run without being recorded.
            extra: more state, a dictionary of tensors and variables to read.
        """
        variables = self.variables.values()
        built = [step(list(zip(gradients, variables))) for gradients in self.steps]
        state = state_of(self.base, self.variables)
        state = {**state, "global_step": self.counter, **(extra or {})}
        with session() as running:
            running.run(tf.global_variables_initializer())
            initial, steps = running.run(state), []
            for operations in built:
                results = running.run(operations)
                results = {k: v for k, v in results.items() if k[0] != "_"}
                steps.append({**results, **running.run(state)})
        return {"initial": initial, "steps": steps}


def tensors(gradients: list[Any], case: Case) -> list[Any]:
    """Create the gradients of a step: dense, sparse or absent."""
    return [
        tensor(gradient, variable.dtype, variable.value.shape)
        for gradient, variable in zip(gradients, case.variables)
    ]


def tensor(gradient: Any, dtype: Any, shape: Any = None) -> Any:
    """Create one gradient for a variable of this shape."""
    if gradient is None:
        return None
    if not isinstance(gradient, dict):
        return unknown(array(gradient, dtype, shape))
    rows = None if shape is None else [len(gradient["indices"]), *shape[1:]]
    values = array(gradient["values"], dtype, rows)
    indices = np.array(gradient["indices"], np.int64)
    dense_shape = gradient.get("dense_shape")
    known = None if dense_shape is None else tf.constant(dense_shape, tf.int64)
    return tf.IndexedSlices(unknown(values), unknown(indices), known)


def unknown(values: Any) -> Any:
    """Create a tensor whose values are unknown when the graph is built.

    Otherwise a loss scale would decide then whether a step is skipped.
    """
    return tf.placeholder_with_default(values, values.shape)


def state_of(optimizer: tf.train.Optimizer, named: dict[str, Any]) -> dict[str, Any]:
    """Return the variables by name, and their state in ``optimizer``."""
    state = {"variables": named, "slots": {}, "non_slots": {}}
    for slot in optimizer.get_slot_names():
        for name, variable in named.items():
            if optimizer.get_slot(variable, slot) is not None:
                of_slot = state["slots"].setdefault(slot, {})
                of_slot[name] = optimizer.get_slot(variable, slot)
    for (name, _), scalar in optimizer._non_slot_dict.items():
        state["non_slots"][name] = scalar
    return {key: content for key, content in state.items() if content}
