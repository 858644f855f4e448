"""Variables that hold the sums of micro-batches until they are applied.

The eager and the graph mode share this state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages.step import refusals as step_refusals
from lockstep.quirks import Quirks
from lockstep.tf.shared.step.micro_batches import add_share

__all__ = ["Accumulators"]

Gradient = tf.Tensor | tf.IndexedSlices | None
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
        self.indices = growing("indices", (), tf.int64)
        self.values = growing("values", shape[1:], like.values.dtype)

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

    def add(self, pairs: Pairs, quirks: Quirks) -> Pairs:
        """Return the sums plus a micro-batch, paired with the variables.

        The result is not stored yet, so a failed step changes nothing.

        Raises:
            UnsupportedError: the kind of a gradient has changed since the first call;
                strict: a gradient is sparse.
            AbsentAccumulatedError: strict: a gradient is absent.
        """
        if quirks.optimize_loss_accumulated:
            self.require_dense(pairs)
        self.begin(pairs)
        for total, (gradient, variable) in zip(self.sums, pairs, strict=True):
            if type(total) is not kind_of(gradient):
                raise step_refusals.VARYING.error(name=self.name_of(variable))
        everything = zip(self.values, pairs, strict=True)
        return [
            (add_share(total, gradient, self.iter_size), variable)
            for total, (gradient, variable) in everything
        ]

    def begin(self, pairs: Pairs) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            with tf.init_scope():
                self.sums = tuple(make_sum(gradient, v) for gradient, v in pairs)

    def require_dense(self, pairs: Pairs) -> None:
        """Strict: raise for sparse and for absent gradients."""
        for gradient, variable in pairs:
            if gradient is None:
                raise step_refusals.ABSENT_ACCUMULATED.error(
                    name=self.name_of(variable)
                )
            if isinstance(gradient, tf.IndexedSlices):
                raise step_refusals.SPARSE_ACCUMULATED.error(
                    name=self.name_of(variable)
                )

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


def make_sum(gradient: Gradient, variable: Any) -> RowSum | DenseSum | None:
    """Create an empty sum for a gradient."""
    shape = tuple(int(size) for size in variable.shape)
    return None if gradient is None else kind_of(gradient)(gradient, shape)


def growing(name: str, inner: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """Create a variable with any number of rows of shape ``inner``."""
    return make_variable(name, tf.zeros([0, *inner], dtype), [None, *inner])


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
