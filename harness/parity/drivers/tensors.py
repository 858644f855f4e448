"""Code shared by the drivers of TensorFlow and Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from harness.errors import no_device
from harness.parity.drivers.protocol import Driver, Regularizers, Step
from lockstep.interface import Array, Gradient, Rows

Spec = tf.TensorSpec | tf.IndexedSlicesSpec | None
Pattern = tuple[Spec, ...]


class TensorDriver(Driver):
    """The part of a driver that only needs tensors. Operations run when called."""

    def value_of(self, variable: Any) -> Any:
        """Return the tensor that TensorFlow computes with. Each driver defines it."""
        raise NotImplementedError

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        return np.asarray(self.value_of(variable))

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Convert gradients and results. There is nothing to compile."""

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(function([to_tensor(gradient) for gradient in gradients]))

        return step

    def linear(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        penalties: Regularizers,
        half: bool,
    ) -> tf.Tensor:
        """Return the sum of variable * g over all gradients, plus the penalties.

        The sum is float32 unless all terms are float64, or it is to be half.
        """
        terms = []
        for variable, gradient in zip(variables, gradients, strict=True):
            value = self.value_of(variable)
            if isinstance(gradient, tf.IndexedSlices):
                taken = tf.gather(value, gradient.indices)
                terms.append(tf.reduce_sum(taken * gradient.values))
            elif gradient is not None:
                terms.append(tf.reduce_sum(value * gradient))
        for position, penalty_of in penalties.items():
            terms.append(penalty_of(variables[position]))
        if {term.dtype for term in terms} != {tf.float64}:
            terms = [tf.cast(term, tf.float32) for term in terms]
        total = tf.add_n(terms or [tf.zeros([])])
        return tf.cast(total, tf.float16) if half else total

    def regularizer(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * tf.nn.l2_loss(self.value_of(weight))

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's."""
        theirs = getattr(tf.errors, error, None)
        return super().expects(error) if theirs is None else (theirs,)


class TracedDriver(TensorDriver):
    """Every pattern of gradients is traced into a ``tf.function`` of its own."""

    mode = "function"

    def __init__(self, names: Any) -> None:
        super().__init__(names)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def returned(self, value: Any) -> Any:
        """Return what a function can return for a value: None for an operation."""
        return None if isinstance(value, tf.Operation) else value

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Trace ``function`` once for every pattern."""
        traced: dict[Pattern, Any] = {}

        def trace(*gradients: Any) -> Any:
            return tf.nest.map_structure(self.returned, function(list(gradients)))

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


def to_tensor(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """Convert a gradient to a TensorFlow gradient."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return tf.IndexedSlices(*map(tf.constant, to_feed(gradient)))
    return tf.constant(gradient)


def to_feed(gradient: Gradient) -> Any:
    """Convert a gradient to a value to feed to a session."""
    if not isinstance(gradient, Rows):
        return gradient
    indices, shape = gradient.indices.astype(np.int64), gradient.dense_shape
    dense_shape = () if shape is None else (np.asarray(shape, np.int64),)
    return (gradient.values, indices, *dense_shape)


def to_numpy(result: Any) -> Any:
    """Convert a nest of eager tensors to a nest of arrays."""
    return tf.nest.map_structure(to_array, result)


def to_array(value: Any) -> Array | Rows | None:
    """Convert one tensor, or its value."""
    if value is None:
        return None
    if hasattr(value, "dense_shape"):
        shape = value.dense_shape
        known = None if shape is None else tuple(np.asarray(shape).tolist())
        return Rows(np.asarray(value.indices), np.asarray(value.values), known)
    return np.asarray(value)


def use_device(device: str) -> None:
    """Make the GPUs visible to TensorFlow for ``cuda``, and none for ``cpu``.

    Raises:
        UnsupportedError: for another device, or if there is no GPU.
    """
    devices = tf.config.list_physical_devices("GPU")
    if device not in ("cpu", "cuda") or (device == "cuda" and not devices):
        raise no_device("tf", device, "only the CPU")
    tf.config.set_visible_devices(devices if device == "cuda" else [], "GPU")
