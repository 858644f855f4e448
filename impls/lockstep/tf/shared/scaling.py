"""What wrappers with a loss scale have on both backends, and their step."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep import errors, scalers
from lockstep.pipeline import has_layer, stages_of
from lockstep.tf.shared.clipping import clip_factor, half_square_sums, scale_gradients
from lockstep.tf.shared.gradients import (
    HALF,
    Gradient,
    Values,
    as_variable,
    finite_flags,
    is_first_replica,
    name_of,
    require_floats,
    values_of,
    widen,
    with_values,
)
from lockstep.tf.shared.loss_scales import state_variable

Pairs = list[tuple[Gradient, Any]]

PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""
NORM = "the norm of all gradients"
STALLED = (
    "{}: expected a finite step now and then, got {} skipped in a row at loss scale {}"
    ", not finite: {}; look at these gradients, or lower the floor."
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
        present: the n tensors to check instead of the gradients that are not None.

    Attributes:
        flags: whether each present gradient is finite: bool, [n].
        finite: whether all are, and their norm if it was computed: bool, 0-d.
        norm, clip_factor: float32, 0-d; None if gradients are not clipped.
        largest: the arguments of an automatic scaler's update; None for other scales.
    """

    flags: tf.Tensor
    finite: tf.Tensor
    norm: tf.Tensor | None = None
    clip_factor: tf.Tensor | None = None
    largest: tuple[tf.Tensor, tf.Tensor] | None = None

    def __init__(self, pairs: Pairs, present: Sequence[Values] | None = None) -> None:
        self.pairs = pairs
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

    def names(self, present: bool) -> list[str]:
        """Return the names of the variables that have a gradient, or that have none."""
        return [name_of(v) for g, v in self.pairs if (g is not None) == present]

    def nonfinite(self) -> list[str]:
        """Return the names of variables with a non-finite gradient; eager only."""
        flags = np.asarray(self.flags)
        return [] if flags.all() else list(compress(self.names(True), ~flags))

    def report(
        self, inner: Any, applied: bool, before: float, after: float
    ) -> scalers.ScaledStepReport:
        """Return the report; eager only.

        ``inner``: the wrapped optimizer. ``before``, ``after``: the loss scale.
        """
        finite, nonfinite = bool(self.finite), self.nonfinite()
        norm = factor = None
        if self.norm is not None and self.clip_factor is not None and not nonfinite:
            norm = float(self.norm)
            factor = float(self.clip_factor) if finite else None
        return scalers.report(
            getattr(inner, "last_step", None) if applied else None,
            [name_of(variable) for _, variable in self.pairs],
            nonfinite,
            (before, after),
            applied,
            norm,
            factor,
            self.names(False),
        )


# -- wrappers --------------------------------------------------------------------------


class Scaling:
    """What wrappers with a loss scale have on both backends.

    What Keras must not track and save is set in ``vars(self)``.

    Attributes:
        scale_object: the scale that users know, a number or an object.
        _scale: the same as a loss scale.
    """

    scale_object: Any
    inner_optimizer: Any
    clip_norm: float | None = None
    at_floor = "ignore"
    floor_patience = PATIENCE
    _scale: Any
    _counts: Sequence[tf.Variable]
    _never_scaled = True

    def __getattr__(self, name: str) -> Any:
        """Read an attribute of the wrapped optimizer, or name Keras 2's successor."""
        if name in ("get_scaled_loss", "get_unscaled_gradients"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; call "
                "scale_loss and unscale_gradients instead."
            )
        return super().__getattr__(name)  # type: ignore[misc]

    def _set_options(
        self, clip_norm: float | None, at_floor: str, floor_patience: int
    ) -> None:
        """Check and set the options, and count skipped steps from now on."""
        owner, inner = type(self).__name__, self.inner_optimizer
        scalers.check_options(owner, clip_norm, at_floor, floor_patience)
        if "unscale" in stages_of(inner):
            raise errors.UnsupportedError(
                f"{owner}: expected an optimizer whose loss is not scaled yet, got "
                f"{type(inner).__name__}; let one of the two scale, and give it the "
                "loss scale."
            )
        if hasattr(type(self), "trains_master") and has_layer(inner, "AGNOptimizer"):
            raise errors.UnsupportedError(
                f"{owner}: expected an optimizer of variables that nothing shares, got "
                "AGNOptimizer, which shares the variables themselves; train float32 "
                "variables with AGN."
            )
        self.clip_norm = clip_norm
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        names = "skipped_in_a_row", "skipped_steps"
        counts = [state_variable(name, 0, "int64") for name in names]
        for name, variable in zip(names, counts, strict=True):
            self._track_trackable(variable, name)
        vars(self)["_counts"] = counts

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        vars(self)["_never_scaled"] = False
        return self._scale()

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The number of skipped steps since the last applied one: int64, 0-d."""
        return self._counts[0].read_value()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """The number of all skipped steps: int64, 0-d."""
        return self._counts[1].read_value()

    def _look(self, step: ScaledStep) -> None:
        """Check the gradients of a step; warn once if no loss was ever scaled."""
        require_floats("loss scaling", step.present)
        step.look(self.clip_norm)
        if not self._never_scaled:
            return
        if tf.executing_eagerly():
            scale = float(self._scale())
            if not any(np.any(values_of(value)) for value in step.present):
                return
        else:
            # Without an operation in the graph.
            scale = getattr(self._scale, "loss_scale_value", None)
            scale = getattr(self._scale, "initial_loss_scale", scale)
        vars(self)["_never_scaled"] = scale is None
        if scale is not None and scale != 1:
            errors.warn_user(
                f"{type(self).__name__}: expected gradients of scale_loss(loss), got a "
                f"step, but the loss scale {scale:g} was never asked for; the gradients"
                " are taken as unscaled. Differentiate scale_loss(loss), or choose the "
                "loss scale 1."
            )

    def _count(self, step: ScaledStep) -> tf.Operation | None:
        """Count a step, report a stall at the floor, and return the operation."""
        if not tf.executing_eagerly():
            return self._count_in_graph(step)
        # Nearly always this step and the step before it are applied.
        in_a_row, total = self._counts
        before = int(in_a_row.read_value())
        skips = 0 if bool(step.finite) else before + 1
        if skips != before:
            in_a_row.assign(skips, read_value=False)
        if skips:
            total.assign_add(1, read_value=False)
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or not is_first_replica() or not self._scale.at_floor():
            return None
        names = ", ".join(step.nonfinite()) or NORM
        scale = f"{float(self._scale()):g}"
        text = STALLED.format(type(self).__name__, skips, scale, names)
        if self.at_floor == "raise":
            raise errors.ScaleStalledError(text)
        if skips == self.floor_patience:
            errors.warn_user(text)
        return None

    def _count_in_graph(self, step: ScaledStep) -> tf.Operation:
        """Count; at a stall print once, or fail at each step."""
        in_a_row, total = self._counts
        zero = tf.zeros((), tf.int64)
        skips = tf.where(step.finite, zero, in_a_row.read_value() + 1)
        skipped = tf.cast(tf.logical_not(step.finite), tf.int64)
        with tf.control_dependencies([total.assign_add(skipped, read_value=False)]):
            counted = in_a_row.assign(skips, read_value=False)
        graph = tf.compat.v1.get_default_graph()
        quiet = self.at_floor == "ignore" or not is_first_replica()
        # XLA has no strings.
        if quiet or GraphOrParentsInXlaContext(graph):
            return counted
        fails = self.at_floor == "raise"

        def print_or_fail() -> tf.Operation:
            names = tf.constant(step.names(True))
            names = tf.boolean_mask(names, tf.logical_not(step.flags))
            joined = tf.strings.reduce_join(names, separator=", ")
            joined = tf.where(tf.size(names) > 0, joined, NORM)
            template = STALLED.replace("{}", type(self).__name__, 1)
            text = tf.strings.format(template, [skips, self._scale(), joined])
            if fails:
                printed = tf.debugging.Assert(False, [text])
            else:
                printed = tf.print(text, output_stream=sys.stderr)
            with tf.control_dependencies([printed]):
                return tf.no_op()

        with tf.control_dependencies([counted]):
            patience = tf.constant(self.floor_patience, tf.int64)
            stalled = skips >= patience if fails else tf.equal(skips, patience)
            stalled = tf.logical_and(stalled, self._scale.at_floor())
            return tf.cond(stalled, print_or_fail, tf.no_op)


# -- regularizers of masters -----------------------------------------------------------


def penalty_gradient(
    regularizer: Callable[[Any], Any], weight: tf.Tensor
) -> tf.Tensor | None:
    """Return d regularizer(w)/dw, with w's shape; None if there is no penalty."""
    with tf.GradientTape() as tape:
        tape.watch(weight)
        penalty = regularizer(weight)
    if penalty is None:
        return None
    return tape.gradient(tf.convert_to_tensor(penalty), weight)
