"""Sums of the gradients of micro-batches, for ``optimize_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep.tf.shared.gradients import Gradient, Values, name_of

Pairs = list[tuple[Gradient, Any]]


class Accumulators(tf.Module):
    """One sum per variable, sparse or dense like its first gradient.

    ``sums`` has, for each variable of the first micro-batch, the variables of its sum:
    the dense sum, or rows and their indices in the order of their arrival, or none.
    """

    def __init__(self, iter_size: int, micro_step: tf.Variable) -> None:
        super().__init__()
        self.iter_size = iter_size
        self.micro_step = micro_step
        self.sums: tuple[tuple[tf.Variable, ...], ...] = ()
        self.shapes: list[tuple[int, ...]] = []

    @property
    def values(self) -> list[Gradient]:
        """The sums so far, one per variable; None if there is none."""
        return [
            gradient_of([part.read_value() for part in parts], shape)
            for parts, shape in zip(self.sums, self.shapes, strict=True)
        ]

    def begin(self, pairs: Pairs) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            self.shapes = [tuple(map(int, variable.shape)) for _, variable in pairs]
            gradients = [gradient for gradient, _ in pairs]
            with tf.init_scope():
                self.sums = tuple(map(make_sum, gradients, self.shapes))

    def add(self, pairs: Pairs) -> Pairs:
        """Return the sums plus a micro-batch, paired with the variables.

        The result is not stored yet, so a failed step changes nothing.

        Raises:
            UnsupportedError: the kind of a gradient has changed since the first call.
        """
        self.begin(pairs)
        for parts, (gradient, variable) in zip(self.sums, pairs, strict=True):
            if len(parts) != len(parts_of(gradient)):
                raise errors.UnsupportedError(
                    "optimize_loss: iter_size: expected the same kinds of gradients"
                    " in each micro-batch, got another kind than before for "
                    f"{name_of(variable)!r}; fill in zeros where the loss does not "
                    "depend on it."
                )
        everything = zip(self.values, pairs, strict=True)
        return [
            (None if gradient is None else self.added(total, gradient), variable)
            for total, (gradient, variable) in everything
        ]

    def added(self, total: Gradient, gradient: Values) -> Values:
        """Return total + gradient / iter_size, of which both are sparse or dense."""
        if not isinstance(gradient, tf.IndexedSlices):
            return total + gradient / tf.cast(self.iter_size, gradient.dtype)
        share = gradient.values / tf.cast(self.iter_size, gradient.dtype)
        indices = tf.concat([total.indices, tf.cast(gradient.indices, tf.int64)], 0)
        values = tf.concat([total.values, share], 0)
        return tf.IndexedSlices(values, indices, total.dense_shape)

    def keep(self, pairs: Pairs, count: tf.Tensor) -> tf.Operation | None:
        """Store the sums of ``count`` micro-batches in their variables."""
        return self._write(
            [part for gradient, _ in pairs for part in parts_of(gradient)], count
        )

    def clear(self) -> tf.Operation | None:
        """Clear the sums: zeros, or no rows."""
        variables = [part for parts in self.sums for part in parts]
        empty = [tf.zeros([n or 0 for n in v.shape], v.dtype) for v in variables]
        return self._write(empty, tf.zeros((), tf.int64))

    def _write(self, values: Sequence[tf.Tensor], count: tf.Tensor) -> Any:
        variables = [part for parts in self.sums for part in parts]
        done = [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, values, strict=True)
        ]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))


def parts_of(gradient: Gradient) -> list[tf.Tensor]:
    """Return the tensors of a gradient: none, one, or rows and their indices."""
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [] if gradient is None else [gradient]


def gradient_of(parts: Sequence[tf.Tensor], shape: tuple[int, ...]) -> Gradient:
    """Return the gradient of a shape that has these tensors."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return tf.IndexedSlices(*parts, tf.constant(shape, tf.int64))


def make_sum(gradient: Gradient, shape: tuple[int, ...]) -> tuple[tf.Variable, ...]:
    """Create the variables of an empty sum like a gradient."""
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return (make_variable("total", tf.zeros(shape, gradient.dtype), None),)
    no_rows = tf.zeros([0, *shape[1:]], gradient.dtype)
    return (
        make_variable("values", no_rows, [None, *shape[1:]]),
        make_variable("indices", tf.zeros([0], tf.int64), [None]),
    )


def make_variable(
    name: str, value: tf.Tensor, shape: Sequence[int | None] | None
) -> tf.Variable:
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        name=f"{name}_accum",
        shape=shape,
        validate_shape=shape is None,
        use_resource=True,
    )
