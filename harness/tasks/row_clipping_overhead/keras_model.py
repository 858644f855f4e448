"""Whole sparse steps of Keras' SGD, each a ``tf.function``."""

from __future__ import annotations

from functools import partial

import keras
import tensorflow as tf

from harness.tasks.overhead.tf_model import traced
from harness.tasks.row_clipping_overhead.tables import (
    LIMIT,
    LONG,
    SHORT,
    WIDTH,
    named_rows,
)
from harness.timing import Makers, Step
from lockstep.keras3 import VariableClippingOptimizer


def makers(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Return the builder of each step: ``ours``, ``bare``, and ``constraint``.

    ``part`` is ``step``. ``constraint`` is SGD on a variable with Keras' ``MaxNorm``.
    """
    rows = int(vocabulary)
    return {
        "ours": partial(our_step, rows, seed),
        "bare": partial(sgd_step, rows, seed, constrained=False),
        "constraint": partial(sgd_step, rows, seed, constrained=True),
    }


def our_step(rows: int, seed: int) -> Step:
    """Return a whole step of our wrapper around SGD."""
    variable, gradient = table(rows, seed)
    sgd = keras.optimizers.SGD(0.1)
    optimizer = VariableClippingOptimizer(sgd, {variable.path: [1]}, LIMIT)
    optimizer.build([variable])
    return traced(lambda: optimizer.apply([gradient], [variable]))


def sgd_step(rows: int, seed: int, constrained: bool) -> Step:
    """Return a whole step of SGD, with ``MaxNorm`` if it is constrained."""
    variable, gradient = table(rows, seed)
    if constrained:
        variable.constraint = keras.constraints.MaxNorm(LIMIT, axis=1)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([variable])
    return traced(lambda: optimizer.apply([gradient], [variable]))


def table(rows: int, seed: int) -> tuple[keras.Variable, tf.IndexedSlices]:
    """Return a table of short rows, and a gradient that makes the step's rows long."""
    start = tf.fill([rows, WIDTH], SHORT)
    variable = keras.Variable(start, name="table")
    named = tf.constant(named_rows(rows, seed))
    long = tf.fill([len(named), WIDTH], -10 * LONG)
    return variable, tf.IndexedSlices(long, named, [rows, WIDTH])
