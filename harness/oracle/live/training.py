"""Graph, session and gradients, with the settings of the recording.

On the CPU, one operation at a time, with graph rewriting disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live.golden import Case, Variable, array

__all__ = ["OPTIMIZERS", "Training", "make_optimizer", "session", "state_of"]

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


def make_variable(variable: Variable, kind: str) -> tf.Variable:
    """Create a variable of the kind ``ref`` or ``resource``."""
    name, resource = variable.name, kind == "resource"
    return tf.Variable(variable.value, name=name, use_resource=resource)


class Training:
    """The variables, the base optimizer and the gradients of a case in one graph.

    Create it inside the graph. Gradients are fed. Every pattern of absent, dense and
    sparse ones is built before the variables are initialized, so that all slots exist.
    """

    def __init__(self, case: Case, kind: str = "ref") -> None:
        self.recorded = case.variables
        variable_kind = case.inputs.get("variable_kind", kind)
        self.variables = [make_variable(v, variable_kind) for v in self.recorded]
        # Not with the function of this name, which would choose another kind.
        zero = np.int64(0)
        self.counter = tf.Variable(zero, trainable=False, name="global_step")
        self.base = make_optimizer(case.inputs["optimizer"])
        self.steps = case.inputs["gradients"]

    def run(
        self, step: Callable[[list[Any]], dict[str, Any]], extra: Any = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the state before the first step, then the results of each step.

        Args:
            step: builds the operations of a step from its gradients.
            extra: more state, a dictionary of tensors and variables to read.
        """
        built = {}
        for gradients in self.steps:
            pattern = tuple(pattern_of(gradient) for gradient in gradients)
            if pattern not in built:
                inputs = [
                    input_like(gradient, variable)
                    for gradient, variable in zip(gradients, self.recorded)
                ]
                built[pattern] = inputs, step([tensor for tensor, _ in inputs])
        with session() as running:
            running.run(tf.global_variables_initializer())
            yield self.read(running, extra)
            for gradients in self.steps:
                inputs, fetched = built[tuple(pattern_of(g) for g in gradients)]
                feeds: dict[Any, Any] = {}
                for gradient, variable, (_, feed) in zip(
                    gradients, self.recorded, inputs
                ):
                    feeds.update(feed(gradient, variable))
                results = running.run(fetched, feeds)
                yield {**results, **self.read(running, extra)}

    def read(self, running: tf.Session, extra: Any) -> dict[str, Any]:
        """Read variables, slots, shared powers and counters."""
        named = dict(zip((v.name for v in self.recorded), self.variables))
        state = {**state_of(self.base, named), "global_step": self.counter}
        values: dict[str, Any] = running.run({**state, **(extra or {})})
        return values


def state_of(optimizer: tf.train.Optimizer, named: dict[str, Any]) -> dict[str, Any]:
    """Return the variables by name, and their state in ``optimizer``."""
    slots = {
        slot: {
            name: optimizer.get_slot(variable, slot)
            for name, variable in named.items()
            if optimizer.get_slot(variable, slot) is not None
        }
        for slot in optimizer.get_slot_names()
    }
    powers = {name: power for (name, _), power in optimizer._non_slot_dict.items()}
    state = {"variables": named}
    present = {slot: variables for slot, variables in slots.items() if variables}
    state.update({"slots": present} if present else {})
    state.update({"non_slots": powers} if powers else {})
    return state


def pattern_of(gradient: Any) -> str:
    """Return the form of a gradient. Each form has its own part of the graph."""
    if gradient is None:
        return "absent"
    if not isinstance(gradient, dict):
        return "dense"
    return f"sparse {gradient.get('dense_shape')}"


def input_like(gradient: Any, variable: Variable) -> tuple[Any, Any]:
    """Return a tensor for gradients of this form, and a function that feeds one."""
    if gradient is None:
        return None, lambda gradient, variable: {}
    if not isinstance(gradient, dict):
        dense = tf.placeholder(variable.dtype, variable.value.shape)
        return dense, lambda gradient, variable: {
            dense: array(gradient, variable.dtype, variable.value.shape)
        }
    rest = list(variable.value.shape[1:])
    values = tf.placeholder(variable.dtype, [None, *rest])
    indices = tf.placeholder(tf.int64, [None])
    shape = gradient.get("dense_shape")
    known = None if shape is None else tf.constant(shape, tf.int64)
    return tf.IndexedSlices(values, indices, known), lambda gradient, variable: {
        values: array(
            gradient["values"], variable.dtype, [len(gradient["indices"]), *rest]
        ),
        indices: np.array(gradient["indices"], np.int64),
    }
