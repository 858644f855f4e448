"""Variables that hold the sums of micro-batches until they are applied.

The eager and the graph mode share this state. Sparse gradients stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lockstep.errors import UnsupportedError

Values = tf.Tensor | tf.IndexedSlices
Gradient = Values | None
Pairs = list[tuple[Gradient, Any]]


class RowSum(tf.Module):
    """The rows of a sparse sum, in the order of their arrival.

    Attributes:
        indices: the indices of the rows: int64, [n].
        values: the rows: [n, d1, ...].
    """

    def __init__(self, like: tf.IndexedSlices, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        no_rows = tf.zeros([0, *shape[1:]], like.values.dtype)
        self.indices = make_variable("indices", tf.zeros([0], tf.int64), [None])
        self.values = make_variable("values", no_rows, [None, *shape[1:]])

    def read(self) -> tf.IndexedSlices:
        """Return the sum."""
        shape = tf.constant(self.shape, tf.int64)
        return tf.IndexedSlices(
            self.values.read_value(), self.indices.read_value(), shape
        )

    def write(self, total: tf.IndexedSlices) -> list[tf.Operation | None]:
        """Replace the sum."""
        return [
            self.indices.assign(total.indices, read_value=False),
            self.values.assign(total.values, read_value=False),
        ]

    def clear(self) -> list[tf.Operation | None]:
        """Remove all rows."""
        inner = self.values.shape[1:]
        values = tf.zeros([0, *inner], self.values.dtype)
        return self.write(tf.IndexedSlices(values, tf.zeros([0], tf.int64)))


class DenseSum(tf.Module):
    """A dense sum, in the dtype of its gradient; zeros if empty."""

    def __init__(self, like: tf.Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.total = make_variable("total", tf.zeros(shape, like.dtype), None)

    def read(self) -> tf.Tensor:
        """Return the sum."""
        return self.total.read_value()

    def write(self, total: tf.Tensor) -> list[tf.Operation | None]:
        """Replace the sum."""
        return [self.total.assign(total, read_value=False)]

    def clear(self) -> list[tf.Operation | None]:
        """Reset the sum to zero."""
        return self.write(tf.zeros_like(self.total))


class Accumulators(tf.Module):
    """One sum per variable, sparse or dense like its first gradient.

    Args:
        iter_size: the number of micro-batches per step.
        micro_step: the number of micro-batches in the sums: int64, 0-d.
        name_of: variable -> its name in messages.

    Attributes:
        sums: one per variable; None if it had no gradient; empty before the first
            micro-batch.
    """

    def __init__(
        self, iter_size: int, micro_step: tf.Variable, name_of: Callable[[Any], str]
    ) -> None:
        super().__init__()
        self.iter_size = iter_size
        self.micro_step = micro_step
        self.name_of = name_of
        self.sums: tuple[RowSum | DenseSum | None, ...] = ()

    @property
    def values(self) -> list[Gradient]:
        """The sums so far, one per variable; None if there is none."""
        return [None if total is None else total.read() for total in self.sums]

    def begin(self, pairs: Pairs) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            with tf.init_scope():
                self.sums = tuple(
                    None if g is None else kind_of(g)(g, tuple(map(int, v.shape)))
                    for g, v in pairs
                )

    def add(self, pairs: Pairs) -> Pairs:
        """Return the sums plus a micro-batch, paired with the variables.

        The result is not stored yet, so a failed step changes nothing.

        Raises:
            UnsupportedError: the kind of a gradient has changed since the first call.
        """
        self.begin(pairs)
        for total, (gradient, variable) in zip(self.sums, pairs, strict=True):
            if type(total) is not kind_of(gradient):
                raise UnsupportedError(
                    "optimize_loss: iter_size: expected the same gradients, dense or "
                    "sparse, in each micro-batch, got another kind for "
                    f"{self.name_of(variable)!r} than before; fill in zeros where the "
                    "loss does not depend on it."
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
        present = [s for s in zip(self.sums, pairs, strict=True) if s[0] is not None]
        done = [op for total, (value, _) in present for op in total.write(value)]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))

    def clear(self) -> tf.Operation | None:
        """Clear the sums."""
        present = [total for total in self.sums if total is not None]
        done = [operation for total in present for operation in total.clear()]
        zero = tf.zeros((), tf.int64)
        return tf.group(*done, self.micro_step.assign(zero, read_value=False))


def kind_of(gradient: Gradient) -> type[Any]:
    """Return the class of the sum for a gradient."""
    if gradient is None:
        return type(None)
    return RowSum if isinstance(gradient, tf.IndexedSlices) else DenseSum


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
