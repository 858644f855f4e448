"""The wrappers inside ``AGNOptimizer``, for a center in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages import ray as refusals
from lockstep.messages.clipping.variable_clipping import Axes
from lockstep.tf.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.tf.multitask import MultitaskOptimizerWrapper
from lockstep.tf.shared.tensors.zero_test import all_zero_flags

__all__ = ["Layer", "innermost", "layers_of", "takes_step", "wrapped"]

Optimizer = tf.compat.v1.train.Optimizer
Rows = dict[str, tuple[tuple[int, ...], float]]
KINDS = (MultitaskOptimizerWrapper, VariableClippingOptimizer)


class Layer(NamedTuple):
    """A description of a wrapper, from which another process creates it.

    Attributes:
        name: the name of its class.
        strict: whether it has the quirks of the original.
        rows: name of a weight -> axes and limit of its rows; row clipping only.
    """

    name: str
    strict: bool
    rows: Rows


def is_known(optimizer: Any) -> bool:
    """Whether another process can create a wrapper: one of ours, but no subclass.

    For a class of ``strict``, the class here with ``strict=True`` is used.
    """
    ours = type(optimizer).__module__.startswith("lockstep.tf.")
    return ours and isinstance(optimizer, KINDS)


def innermost(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer inside all wrappers that another process can create."""
    while is_known(optimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def layers_of(
    optimizer: Optimizer, shared: Mapping[str, tf.Variable]
) -> tuple[Layer, ...]:
    """Return the wrappers of an optimizer, outermost first.

    Args:
        optimizer: the optimizer that ``AGNOptimizer`` wraps.
        shared: name -> shared variable; row clipping has their limits.

    Raises:
        UnsupportedError: a ValueError; a limit is a tensor, so it could change.
    """
    layers = []
    while is_known(optimizer):
        rows = rows_of(optimizer, shared)
        (name,) = (kind.__name__ for kind in KINDS if isinstance(optimizer, kind))
        layers.append(Layer(name, optimizer.strict, rows))
        optimizer = optimizer.inner_optimizer
    return tuple(layers)


def rows_of(optimizer: Optimizer, shared: Mapping[str, tf.Variable]) -> Rows:
    """Return the shared rows that a wrapper clips; empty if it clips no rows."""
    rows: Rows = {}
    if not isinstance(optimizer, VariableClippingOptimizer):
        return rows
    for name, variable in shared.items():
        axes = optimizer.axes_by_variable.get(variable.ref())
        if axes is None:
            continue
        if isinstance(axes.max_norm, tf.Tensor | tf.Variable):
            raise refusals.NOT_NUMBERS.error(
                name="max_norm",
                got=type(axes.max_norm).__name__,
                opt=type(optimizer).__name__,
            )
        rows[name] = tuple(axes), axes.max_norm
    return rows


def wrapped(
    optimizer: Optimizer, layers: Sequence[Layer], shared: Mapping[str, tf.Variable]
) -> Optimizer:
    """Return an optimizer with these wrappers around it."""
    for name, strict, rows in reversed(layers):
        if name == MultitaskOptimizerWrapper.__name__:
            optimizer = MultitaskOptimizerWrapper(optimizer, strict)
            continue
        # Each variable has its own limit, so this one has no effect.
        optimizer = VariableClippingOptimizer(optimizer, {}, 1.0, strict=strict)
        for weight, (axes, limit) in rows.items():
            key = shared[weight].ref()
            optimizer.axes_by_variable[key] = Axes.of(axes, limit)
    return optimizer


def takes_step(optimizer: Optimizer, gradients: Sequence[tf.Tensor]) -> bool:
    """Whether the innermost optimizer takes a step on these gradients.

    It does not if all are zero and a multitask wrapper is around it.
    """
    while is_known(optimizer):
        if isinstance(optimizer, MultitaskOptimizerWrapper):
            return not bool(tf.reduce_all(all_zero_flags(gradients)))
        optimizer = optimizer.inner_optimizer
    return True
