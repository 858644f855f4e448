"""Variables that hold the sums of micro-batches until they are applied.

The state is here, and not in the two modes, because both hold it alike.
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
    """The rows of a sparse sum, in the order in which they came.

    Attributes:
        indices: which rows: int64, [n].
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
        """Leave no row."""
        inner = self.values.shape[1:]
        values = tf.zeros([0, *inner], self.values.dtype)
        return self.write(tf.IndexedSlices(values, tf.zeros([0], tf.int64)))


class DenseSum(tf.Module):
    """A dense sum, in the dtype of its gradient; zeros are no sum."""

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
        """Begin at zero again."""
        return self.write(tf.zeros_like(self.total))


class Accumulators(tf.Module):
    """A sum for each variable, of the kind that its first gradient has.

    Args:
        iter_size: the micro-batches in a step.
        micro_step: counts those in the sums: int64, 0-d.
        name_of: variable -> its name in sentences.

    Attributes:
        sums: one for each variable; None where there was no gradient; empty before the
            first micro-batch.
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
        """The sums so far, one for each variable; None where there is none."""
        return [None if total is None else total.read() for total in self.sums]

    def add(self, pairs: Pairs, quirks: Quirks) -> Pairs:
        """Return the sums with a micro-batch, paired as its gradients are.

        Nothing is kept yet: a step that fails changes nothing.

        Raises:
            UnsupportedError: a gradient is of another kind than that of the first call;
                strict: it is sparse.
            AbsentAccumulatedError: strict, it is absent.
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
        """Make the sums of gradients like these, unless there are any."""
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
        """Write the sums of ``count`` micro-batches into their variables."""
        present = [s for s in zip(self.sums, pairs, strict=True) if s[0] is not None]
        done = [op for total, (value, _) in present for op in total.write(value)]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))

    def clear(self) -> tf.Operation | None:
        """Empty the sums."""
        present = [total for total in self.sums if total is not None]
        done = [operation for total in present for operation in total.clear()]
        zero = tf.zeros((), tf.int64)
        return tf.group(*done, self.micro_step.assign(zero, read_value=False))


def kind_of(gradient: Gradient) -> type[Any]:
    """Return the class of the sum of such gradients."""
    if gradient is None:
        return type(None)
    return RowSum if isinstance(gradient, tf.IndexedSlices) else DenseSum


def make_sum(gradient: Gradient, variable: Any) -> RowSum | DenseSum | None:
    """Make the sum of such gradients, empty."""
    shape = tuple(int(size) for size in variable.shape)
    return None if gradient is None else kind_of(gradient)(gradient, shape)


def growing(name: str, inner: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """Make a variable of rows of shape ``inner``, as many as are assigned."""
    return make_variable(name, tf.zeros([0, *inner], dtype), [None, *inner])


def make_variable(
    name: str, value: tf.Tensor, shape: Sequence[int | None] | None
) -> tf.Variable:
    """Make a variable that conditions can change under any behaviour of TensorFlow."""
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        name=f"{name}_accum",
        shape=shape,
        validate_shape=shape is None,
        use_resource=True,
    )
