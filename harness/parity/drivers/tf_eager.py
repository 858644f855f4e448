"""The driver of TensorFlow 2 in the modes ``eager`` and ``function``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parity.drivers.numpy_values import to_numpy, to_tensor
from harness.parity.drivers.protocol import Worker
from harness.parity.drivers.tensors import Step, TensorDriver
from harness.parity.drivers.tf_workers import eager_facts, eager_workers
from lockstep.interface import Array, Gradient, Rows
from lockstep.tf.wrapper import as_variable, base_of

__all__ = ["EagerDriver", "FunctionDriver", "Pattern", "Spec", "spec_of"]

v1 = tf.compat.v1

Spec = tf.TensorSpec | tf.IndexedSlicesSpec | None
Pattern = tuple[Spec, ...]


class EagerDriver(TensorDriver):
    """Operations run when they are called."""

    backend = "tf"
    mode = "eager"

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Create a variable. Only the mode ``v1`` has the kind ``ref``."""
        return tf.Variable(value, name=name)

    def value_of(self, variable: Any) -> Any:
        """Return the TensorFlow variable."""
        return as_variable(variable)

    def key(self, variable: Any) -> Any:
        """Return a reference: variables of TensorFlow 2 cannot be hashed."""
        return variable.ref()

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center."""
        return eager_workers(self, named, count)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create variables with a getter. There are no collections here."""
        return eager_facts(self.names.AGNCustomGetter("/cpu:0"), named)

    def counter(self) -> Any:
        """Create a step counter."""
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")

    def step_object(self, result: Any) -> Any:
        """Return the step. In a graph it is an attribute of the tensor."""
        return getattr(result, "training_step", result)

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the losses to the graph's collection, or return them as an argument."""
        if tf.executing_eagerly():
            return {"losses": losses}
        for name, loss in losses.items():
            if loss is not None:
                key = v1.GraphKeys.REGULARIZATION_LOSSES
                v1.add_to_collection(key, tf.identity(loss, name))
        return {}

    def regularization_functions(self) -> int | None:
        """Return the number of regularizers that a graph has collected."""
        with tf.init_scope():
            eager = tf.executing_eagerly()
            return None if eager else len(v1.get_collection("REGULARIZATION_FUNCTIONS"))

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph, or an empty string in other modes."""
        return "" if tf.executing_eagerly() else str(tensor.op.name)

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        return np.asarray(self.value_of(variable))

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of the shared center."""
        getter = getattr(optimizer, "custom_getter", None)
        slot = None if getter is None else getter.center.slot(variable, name)
        if slot is None:
            slot = base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer, once it has created them."""
        named = base_of(optimizer)._non_slot_dict
        return {name: self.read(scalar) for (name, _), scalar in named.items()}

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's."""
        return (getattr(builtins, error, None) or getattr(tf.errors, error, Exception),)


class FunctionDriver(EagerDriver):
    """Every pattern of gradients is traced into its own function."""

    mode = "function"

    def __init__(self, names: ModuleType) -> None:
        super().__init__(names)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Trace ``function`` once for every pattern."""
        traced: dict[Pattern, Any] = {}

        def trace(*gradients: Any) -> Any:
            result = function(list(gradients))
            return tf.nest.map_structure(unless_operation, result)

        def step(gradients: Sequence[Gradient]) -> Any:
            pattern = tuple(spec_of(gradient) for gradient in gradients)
            if pattern not in traced:
                compiled = tf.function(trace, autograph=False)
                traced[pattern] = compiled.get_concrete_function(*pattern)
            return to_numpy(traced[pattern](*map(to_tensor, gradients)))

        return step


def spec_of(gradient: Gradient) -> Spec:
    """Return the type on which a trace depends. The number of rows is not fixed."""
    if gradient is None:
        return None
    if not isinstance(gradient, Rows):
        return tf.TensorSpec(gradient.shape, gradient.dtype)
    return tf.IndexedSlicesSpec(
        [None, *gradient.values.shape[1:]],
        gradient.values.dtype,
        indices_dtype=tf.int64,
        dense_shape_dtype=None if gradient.dense_shape is None else tf.int64,
        indices_shape=[None],
    )


def unless_operation(value: Any) -> Any:
    """Return None for an operation: a function runs it but cannot return it."""
    return None if isinstance(value, tf.Operation) else value
