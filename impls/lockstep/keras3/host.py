"""Keras 3 on TensorFlow as the harness drives it, in two faces.

======== =========================================================
eager    one operation at a time
function inside ``tf.function``
======== =========================================================

Implements :class:`lockstep.interface.Host`. TensorFlow's rewriting of graphs
(grappler's meta optimizer) reorders arithmetic, so ``function`` switches it off, for
the whole process: give each face a process of its own, and each case a host. XLA is no
face: it fuses multiplications and additions, which no recording did.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep.interface import Array, Gradient, Rows, Worker
from lockstep.keras3.gradients import value_of
from lockstep.keras3.slots import base_of
from lockstep.spec.errors import OutOfRangeError
from lockstep.spec.optimizers import RULES
from lockstep.tf.core.device import use_device

__all__ = ["EagerHost", "FunctionHost", "make_host"]

Step = Callable[[Sequence[Gradient]], Any]
Regularizers = Mapping[int, Callable[[Any], tf.Tensor]]


class EagerHost:
    """Operations run as they are called."""

    backend = "keras3"
    face = "eager"

    def __init__(self, names: ModuleType) -> None:
        self.names = names

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Make a variable; there is one kind."""
        name = name.replace("/", "_")
        return keras.Variable(value, dtype=str(value.dtype), name=name)

    def key(self, variable: Any) -> Any:
        """Return a reference."""
        return variable.value.ref()

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Make workers that share one center."""
        made: list[Worker] = []
        for _ in range(count):
            center = made[0].getter.center if made else None
            getter = self.names.AGNCustomGetter("/cpu:0", center=center)
            own = [self.variable(name, value) for name, value in named.items()]
            keys = [variable.value.ref() for variable in getter(own)]
            centers = [getter._global_map[key] for key in keys]
            accumulators = [getter._grad_map[key] for key in keys]
            scope = contextlib.nullcontext
            made.append(Worker(own, centers, accumulators, getter, scope))
        return made

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Make variables through a getter; there are no collections here."""
        getter = self.names.AGNCustomGetter("/cpu:0")
        variables = [
            keras.Variable([0.0], trainable=trainable, name=name.replace("/", "_"))
            for name, trainable in named.items()
        ]
        first, shared = getter(variables), dict(getter._global_map)
        again = all(a is b for a, b in zip(first, getter(variables), strict=True))
        return {
            "reuse_gives_same": again and getter._global_map == shared,
            "mapped_variables": len(getter._global_map),
        }

    def counter(self) -> Any:
        """Make a step counter."""
        return keras.Variable(0, dtype="int64", trainable=False, name="global_step")

    def optimizer(
        self, name: str, args: dict[str, Any], variables: Sequence[Any]
    ) -> keras.optimizers.Optimizer:
        """Make an optimizer by name."""
        return getattr(self.names, RULES[name].class_name)(**args)

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Convert gradients and results; there is nothing to compile."""

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(function([to_tensor(gradient) for gradient in gradients]))

        return step

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> Any:
        """Return a callable loss whose gradients are these."""
        return lambda: linear(variables, gradients, regularizers)

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16."""
        return lambda: tf.cast(linear(variables, gradients), tf.float16)

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Make the step now; its loss has the gradients of the call."""
        given: list[Any] = []
        step = optimize(lambda: loss_of(given[0])(), lambda: given[1])

        def train(*arguments: Any) -> Any:
            given[:] = arguments
            return step()

        return train

    def step_object(self, made: Any) -> Any:
        """Return the step itself."""
        return made

    def regularizer(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * tf.nn.l2_loss(value_of(weight))

    def penalty(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return the same function."""
        return self.regularizer(strength)

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Hand the losses themselves over."""
        return {"losses": losses}

    def regularization_functions(self) -> None:
        """Return None: there are no collections."""

    def tensor_name(self, tensor: Any) -> str:
        """Return an empty string: Keras has no names for tensors."""
        return ""

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        return np.asarray(value_of(variable))

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of what workers share."""
        getter = getattr(optimizer, "custom_getter", None)
        shared = None if getter is None else getter.center.slot(variable, name)
        if shared is not None:
            return self.read(shared)
        slot = base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return nothing: Keras takes its powers from ``iterations``."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's.

        What a kernel refused when it ran, the optimizers here refuse before they begin.
        """
        found = getattr(builtins, error, None) or getattr(tf.errors, error, Exception)
        checked = (OutOfRangeError,) if error == "InvalidArgumentError" else ()
        return (found, *checked)


class FunctionHost(EagerHost):
    """Every pattern of gradients is traced into a function of its own."""

    face = "function"

    def __init__(self, names: ModuleType) -> None:
        super().__init__(names)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Trace ``function`` once a pattern."""

        def unless_variable(*gradients: Any) -> Any:
            return tf.nest.map_structure(as_tensor, function(list(gradients)))

        traced = tf.function(unless_variable, autograph=False)

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(traced(*map(to_tensor, gradients)))

        return step


def to_tensor(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """Convert a gradient of the harness to one of TensorFlow."""
    if gradient is None:
        return None
    if not isinstance(gradient, Rows):
        return tf.constant(gradient)
    shape = gradient.dense_shape
    return tf.IndexedSlices(
        tf.constant(gradient.values),
        tf.constant(gradient.indices, tf.int64),
        None if shape is None else tf.constant(shape, tf.int64),
    )


def to_numpy(result: Any) -> Any:
    """Convert a nest of tensors to one of arrays."""
    return tf.nest.map_structure(to_array, result)


def to_array(value: Any) -> Array | Rows | None:
    """Convert one tensor; None stays None."""
    if isinstance(value, tf.IndexedSlices):
        shape = value.dense_shape
        known = None if shape is None else tuple(np.asarray(shape).tolist())
        return Rows(np.asarray(value.indices), np.asarray(value.values), known)
    return None if value is None else np.asarray(value)


def as_tensor(value: Any) -> Any:
    """Return what a function can return: the value of a variable."""
    return value.value + 0 if isinstance(value, keras.Variable) else value


def linear(
    variables: Sequence[Any],
    gradients: Sequence[Any],
    regularizers: Regularizers | None = None,
) -> tf.Tensor:
    """Return the sum of variable * g over those present, and of the penalties.

    It is float32 if dtypes differ or are half precision.
    """
    terms = []
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            taken = tf.gather(variable.value, gradient.indices)
            terms.append(tf.reduce_sum(taken * gradient.values))
        elif gradient is not None:
            terms.append(tf.reduce_sum(variable.value * gradient))
    terms += [of(variables[position]) for position, of in (regularizers or {}).items()]
    if {term.dtype for term in terms} != {tf.float64}:
        terms = [tf.cast(term, tf.float32) for term in terms]
    return tf.add_n(terms) if terms else tf.constant(0.0)


def make_host(face: str, names: ModuleType, device: str = "cpu") -> EagerHost:
    """Return the host for ``face`` and the names under test."""
    use_device(device)
    hosts = (EagerHost, FunctionHost)
    return {host.face: host for host in hosts}[face](names)
