"""A step on the gradients of a scaled loss, and the count of skipped steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep import errors, scalers
from lockstep.interface import StepReport
from lockstep.pipeline import stages_of
from lockstep.tf.shared.clipping import clip_factor, half_square_sums, scale_gradients
from lockstep.tf.shared.gradients import (
    HALF,
    Gradient,
    Values,
    as_gradient,
    as_variable,
    finite_flags,
    is_first_replica,
    require_floats,
    values_of,
    widen,
    with_values,
)

Pairs = list[tuple[Gradient, Any]]

PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""


def listed_gradients(gradients: Any, owner: str) -> list[Gradient]:
    """Return the gradients that are to be unscaled; raise if they are not a list."""
    owner = f"{owner}.unscale_gradients"
    fine = isinstance(gradients, Iterable) and not tf.is_tensor(gradients)
    listed = list(gradients) if fine else []
    if not fine or any(type(gradient) is tuple for gradient in listed):
        raise errors.MalformedPairsError(
            f"{owner}: expected a list of gradients, got {gradients!r:.80}; pass what "
            "the tape returned for a list of variables, without their variables."
        )
    tensors = [as_gradient(g, f"gradient {k}", owner) for k, g in enumerate(listed)]
    require_floats(owner, tensors)
    return tensors


def refuse_scaled(optimizer: Any, owner: str) -> None:
    """Raise for an optimizer that scales the loss itself."""
    if "unscale" in stages_of(optimizer):
        raise errors.UnsupportedError(
            f"{owner}: expected an optimizer whose loss is not scaled yet, got "
            f"{type(optimizer).__name__}; let one of the two scale, and give it the "
            "loss scale."
        )


def narrowed(pairs: Pairs) -> Pairs:
    """Return gradients in their variables' dtypes; some of half precision are wide."""
    narrow: Pairs = []
    for gradient, variable in pairs:
        dtype = as_variable(variable).dtype.base_dtype
        if gradient is not None and gradient.dtype != dtype and dtype in HALF:
            gradient = with_values(gradient, tf.cast(values_of(gradient), dtype))
        narrow.append((gradient, variable))
    return narrow


# -- a step ----------------------------------------------------------------------------


class ScaledStep:
    """One step on gradients that were divided by a loss scale.

    Call :meth:`look`, :meth:`update` unless the step is skipped, and in eager mode
    :meth:`report`.

    Args:
        pairs: (gradient or None, variable) of the step.
        names: the names of all variables, as the user knows them.
        present: the n tensors to check instead of the gradients that are not None.

    Attributes:
        flags: whether each present gradient is finite: bool, [n].
        finite: whether all are, and their norm if it was computed: bool, 0-d.
        norm, clip_factor: float32, 0-d; None if gradients are not clipped.
        largest: the arguments of an automatic scaler's update; None for other scales.
        applied: whether the wrapped optimizer takes its step; eager only.
        scales: the loss scale before and after the step; eager only.
    """

    flags: tf.Tensor
    finite: tf.Tensor
    norm: tf.Tensor | None = None
    clip_factor: tf.Tensor | None = None
    largest: tuple[tf.Tensor, tf.Tensor] | None = None
    applied: bool
    scales: tuple[float, float]

    def __init__(
        self,
        pairs: Pairs,
        names: list[str],
        present: Sequence[Values] | None = None,
    ) -> None:
        self.pairs = pairs
        self.names = names
        if present is None:
            present = [gradient for gradient, _ in pairs if gradient is not None]
        self.present = present

    def look(self, clip_norm: float | None) -> None:
        """Check the gradients; compute the norm only if they are clipped.

        clip_factor = clip_norm min(1 / norm, 1 / clip_norm) above the limit, else 1.
        """
        if clip_norm is None:
            self.flags = finite_flags(self.present)
            self.finite = tf.reduce_all(self.flags)
            return
        sums = half_square_sums(self.present, tf.float32)
        self.norm = norm = tf.sqrt(tf.reduce_sum(sums) * 2.0)
        # If the sum of squares is finite, every element is, so one read suffices.
        self.flags = tf.cond(
            tf.reduce_all(tf.math.is_finite(sums)),
            lambda: tf.ones_like(sums, tf.bool),
            lambda: finite_flags(self.present),
        )
        self.finite = tf.logical_and(tf.reduce_all(self.flags), tf.math.is_finite(norm))
        # At or below the limit nothing is multiplied: c (1/c) is not 1 for every c.
        factor = clip_factor(norm, clip_norm) if clip_norm < math.inf else 1.0
        self.clip_factor = tf.where(norm > clip_norm, factor, 1.0)

    def look_at_largest(self, pairs: Pairs, check_grads: Callable[..., Any]) -> None:
        """Compute the input of an automatic scaler, which learns of every overflow."""
        wide = [(None if g is None else widen(g), v) for g, v in pairs]
        has_nan, largest = check_grads(wide)
        largest = tf.clip_by_value(largest, 0.0, tf.float32.max)
        self.largest = has_nan, tf.where(self.finite, largest, math.inf)

    def update(self, take: Callable[[Pairs], Any]) -> Any:
        """Call ``take`` with the pairs, whose gradients are clipped if requested."""
        if self.clip_factor is None:
            return take(self.pairs)
        gradients, variables = zip(*self.pairs, strict=True)
        clipped = scale_gradients(gradients, self.clip_factor)
        return take(list(zip(clipped, variables, strict=True)))

    def move(self, scale: Any) -> Any:
        """Update a loss scale after the step; return the operation."""
        if self.largest is None:
            return scale.move(self.finite)
        return scale.update_op(*self.largest)

    @property
    def names_present(self) -> list[str]:
        """The names of the variables that have a gradient."""
        return [
            n for (g, _), n in zip(self.pairs, self.names, strict=True) if g is not None
        ]

    def nonfinite(self) -> list[str]:
        """Return the names of variables with a non-finite gradient; eager only."""
        flags = np.asarray(self.flags)
        return [] if flags.all() else list(compress(self.names_present, ~flags))

    def report(self, inner: StepReport | None) -> scalers.ScaledStepReport:
        """Return the report; ``inner``: that of the wrapped optimizer; eager only."""
        finite, nonfinite = bool(self.finite), self.nonfinite()
        norm = factor = None
        if self.norm is not None and self.clip_factor is not None and not nonfinite:
            norm = float(self.norm)
            factor = float(self.clip_factor) if finite else None
        named = zip(self.pairs, self.names, strict=True)
        return scalers.report(
            inner if self.applied else None,
            self.names,
            nonfinite,
            self.scales,
            self.applied,
            norm,
            factor,
            [name for (gradient, _), name in named if gradient is None],
        )


def warn_unless_scaled(owner: str, scale: Any, values: Sequence[Values]) -> bool:
    """Warn if a loss was never scaled; return whether that is settled."""
    if tf.executing_eagerly():
        number = float(scale())
        if not any(np.any(getattr(value, "values", value)) for value in values):
            return False
    else:
        # Without an operation in the graph.
        number = getattr(scale, "loss_scale_value", None)
        number = getattr(scale, "initial_loss_scale", number)
    if number is not None and number != 1:
        errors.warn_user(
            f"{owner}: expected gradients of scale_loss(loss), got a step, but the loss"
            f" scale {number:g} was never asked for; the gradients are taken as "
            "unscaled. Differentiate scale_loss(loss), or choose the loss scale 1."
        )
    return number is not None


# -- skipped steps ---------------------------------------------------------------------

UPPER = 2**32
"""The unit of the upper half; a row of skipped steps is always shorter."""
NORM = "the norm of all gradients"
STALLED = (
    "{}: expected a finite step now and then, got {} skipped in a row at loss scale {}"
    ", not finite: {}; look at these gradients, or lower the floor."
)


class Skips(NamedTuple):
    """The count of skipped steps of a wrapper, in a row and in all.

    Attributes:
        owner: the wrapper's name.
        variable: steps in a row + UPPER * steps before this row: int64, 0-d.
    """

    owner: str
    variable: tf.Variable

    def in_a_row(self) -> tf.Tensor:
        """Return the steps skipped in a row: int64, 0-d."""
        return tf.math.floormod(self.variable.read_value(), UPPER)

    def total(self) -> tf.Tensor:
        """Return all skipped steps: int64, 0-d."""
        return self.in_a_row() + self.variable.read_value() // UPPER

    def count(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation | None:
        """Count a step, report a stall at the floor, and return the operation."""
        if not tf.executing_eagerly():
            return self._count_in_graph(step, scale, at_floor, patience)
        # Nearly always this step and the step before it are applied.
        stored = int(self.variable.read_value())
        before = stored % UPPER
        skips = 0 if bool(step.finite) else before + 1
        if skips or before:
            total = stored - before + (skips or before * UPPER)
            self.variable.assign(total, read_value=False)
        quiet = at_floor == "ignore" or skips < patience
        if quiet or not is_first_replica() or not scale.at_floor():
            return None
        names = ", ".join(step.nonfinite()) or NORM
        text = STALLED.format(self.owner, skips, f"{float(scale()):g}", names)
        if at_floor == "raise":
            raise errors.ScaleStalledError(text)
        if skips == patience:
            errors.warn_user(text)
        return None

    def _count_in_graph(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation:
        """Count; at a stall print once, or fail at each step."""
        zero, before = tf.zeros((), tf.int64), self.in_a_row()
        skips = tf.where(step.finite, zero, before + 1)
        row = tf.where(tf.equal(skips, 0), before * UPPER, skips)
        total = self.variable.read_value() - before + row
        counted = self.variable.assign(total, read_value=False)
        graph = tf.compat.v1.get_default_graph()
        quiet = at_floor == "ignore" or not is_first_replica()
        # XLA has no strings.
        if quiet or GraphOrParentsInXlaContext(graph):
            return counted
        reached = tf.greater_equal if at_floor == "raise" else tf.equal

        def print_or_fail() -> tf.Operation:
            flags = tf.logical_not(step.flags)
            names = tf.boolean_mask(tf.constant(step.names_present), flags)
            joined = tf.strings.reduce_join(names, separator=", ")
            joined = tf.where(tf.size(names) > 0, joined, NORM)
            template = STALLED.replace("{}", self.owner, 1)
            text = tf.strings.format(template, [skips, scale(), joined])
            if at_floor == "raise":
                printed = tf.debugging.Assert(False, [text])
            else:
                printed = tf.print(text, output_stream=sys.stderr)
            with tf.control_dependencies([printed]):
                return tf.no_op()

        with tf.control_dependencies([counted]):
            stalled = reached(skips, tf.constant(patience, tf.int64))
            stalled = tf.logical_and(stalled, scale.at_floor())
            return tf.cond(stalled, print_or_fail, tf.no_op)


# -- regularizers of masters -----------------------------------------------------------


def require_callable(regularizer: Any) -> None:
    """Raise unless ``regularizer`` can be called."""
    if not callable(regularizer):
        raise errors.DtypeError(
            "mp_regularizer_wrapper: regularizer: expected a callable of a weight, got "
            f"{type(regularizer).__name__}; pass a function that returns the penalty."
        )


def penalty_gradient(
    regularizer: Callable[[Any], Any], weight: tf.Tensor
) -> tf.Tensor | None:
    """Return d regularizer(w)/dw, with w's shape; None if there is no penalty."""
    with tf.GradientTape() as tape:
        tape.watch(weight)
        penalty = regularizer(weight)
    if penalty is None:
        return None
    slope = None
    if tf.is_tensor(penalty) and penalty.shape.is_compatible_with([]):
        slope = tape.gradient(penalty, weight)
    if slope is None:
        raise errors.DtypeError(
            "mp_regularizer_wrapper: regularizer: expected a penalty that is a scalar "
            f"tensor with a gradient for the weight, got {penalty!r}; compute it from "
            "the weight in tensors, and sum it, or return None."
        )
    return slope
