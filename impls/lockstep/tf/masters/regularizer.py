"""Regularizers whose gradient is computed at the float32 master of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.masters.copies import MasterCopies
from lockstep.tf.replicas import Pairs, name_of
from lockstep.tf.shared.gradients import Gradient, times, widen
from lockstep.tf.wrapper import as_variable, builds_graph

__all__ = ["mp_regularizer_wrapper", "regularizers", "with_regularizers"]

Regularizer = Callable[[Any], Any]


@documented
def mp_regularizer_wrapper(
    regularizer: Regularizer, strict: bool = False
) -> Regularizer:
    """...

    float32 weight w: returns regularizer(w). float16 or bfloat16 variable: returns
    None, so the loss has no such term.

    The pair (w, regularizer) is added to the collection REGULARIZATION_FUNCTIONS of the
    graph. In eager mode that is TensorFlow's default graph, which
    ``tf.compat.v1.reset_default_graph`` clears.

    Args:
        strict: as in the original: bfloat16 weights are regularized directly, float16
            tensors that are not variables are registered too, every call adds a pair.

    Origin: OpenSeq2Seq, ``mp_regularizer_wrapper``.

    Example:
        >>> half = tf.Variable([1.0, 2.0], dtype=tf.float16)
        >>> regularizer = mp_regularizer_wrapper(tf.nn.l2_loss)
        >>> regularizer(half) is None, float(regularizer(tf.constant([1.0, 2.0])))
        (True, 2.5)
    """
    words.check_regularizer(regularizer)
    quirks = quirks_of(strict)
    registers_all = quirks.masters_regularizer

    @tf.autograph.experimental.do_not_convert
    def regularize(weights: Any) -> Any:
        variable = as_variable(weights)
        is_variable = isinstance(variable, tf.Variable)
        dtype = tf.as_dtype(variable.dtype).base_dtype.name
        has_master = words.has_master(dtype, quirks.half_precision_scalars)
        if has_master and (is_variable or registers_all):
            register(variable, regularizer, again=registers_all)
            return None
        return regularizer(weights)

    return regularize


def register(variable: Any, regularizer: Regularizer, again: bool) -> None:
    """Register the regularizer of a variable; a second time only if ``again``."""
    with tf.init_scope():
        entries = tf.compat.v1.get_collection_ref(words.REGULARIZERS)
        known = any(v is variable and r is regularizer for v, r in entries)
        if again or not known:
            entries.append((variable, regularizer))


def regularizers() -> dict[Any, Regularizer]:
    """Return ``variable.ref()`` -> its last registered regularizer."""
    with tf.init_scope():
        entries = tf.compat.v1.get_collection(words.REGULARIZERS)
    return {v.ref(): regularizer for v, regularizer in entries}


def with_regularizers(
    pairs: Pairs, copies: MasterCopies, factor: float | tf.Tensor
) -> Pairs:
    """Return (float32 gradient, master), with the scaled gradients of regularizers.

    Masters are first updated from their variables.
    """
    quirks, known = copies.quirks, regularizers()
    of_masters: Pairs = []
    for gradient, variable in pairs:
        master = copies.of(variable)
        if master is not variable:
            if gradient is None and quirks.masters_absent:
                raise refusals.ABSENT_HALF.error(name=name_of(variable))
            with tf.control_dependencies(copies.follow(variable, master)):
                wide = None if gradient is None else widen(gradient)
                regularizer = known.get(variable.ref())
                gradient = regularized(wide, master, regularizer, factor, quirks)
        of_masters.append((gradient, master))
    return of_masters


def regularized(
    gradient: Gradient,
    master: tf.Variable,
    regularizer: Regularizer | None,
    factor: float | tf.Tensor,
    quirks: Quirks,
) -> Gradient:
    """Return gradient + factor d regularizer(m)/dm, m the master; absent: 0.

    A sparse gradient becomes dense if there is a penalty.
    """
    if regularizer is None:
        return gradient
    slope = penalty_gradient(regularizer, master.read_value(), quirks)
    if slope is None:
        return gradient
    slope = times(slope, factor)
    return slope if gradient is None else tf.convert_to_tensor(gradient) + slope


def penalty_gradient(
    regularizer: Regularizer, weight: tf.Tensor, quirks: Quirks
) -> tf.Tensor | None:
    """Return d regularizer(w)/dw, with w's shape; None if the regularizer returns None.

    Strict: in a graph, add the penalty to REGULARIZATION_LOSSES.
    """
    with tf.GradientTape() as tape:
        tape.watch(weight)
        penalty = regularizer(weight)
    if penalty is None:
        return None
    if not tf.is_tensor(penalty):
        raise refusals.PENALTY.error(got=repr(penalty))
    if quirks.masters_regularizer and builds_graph():
        losses = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
        tf.compat.v1.add_to_collection(losses, penalty)
    return tape.gradient(penalty, weight)
