"""One step on the gradients of a scaled loss: check, update and report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import StepReport
from lockstep.messages.scaling import loss_scaling as words
from lockstep.tf.shared.clipping import (
    clip_factor,
    half_square_sums,
    scale_gradients,
)
from lockstep.tf.shared.gradients import finite_flags, widen

__all__ = ["ScaledStep"]

Present = tf.Tensor | tf.IndexedSlices
Pairs = list[tuple[Present | None, Any]]


class ScaledStep:
    """One step on gradients that were divided by a loss scale.

    Its methods are called in this order: :meth:`look`, :meth:`update` unless the step
    is skipped, and in eager mode :meth:`report`.

    Args:
        pairs: (gradient or None, variable) of the step.
        names: the names of all variables, as the user knows them.
        present: the n tensors to check instead of the n gradients that are not None;
            None: the gradients.
        unclipped: positions of pairs whose gradients are values to assign, such as the
            scales of float8: they are checked, but not clipped.

    Attributes:
        flags: whether each present gradient is finite: bool, [n].
        finite: whether all are, and their norm if it was computed: bool, 0-d.
        norm: the global norm of all, float32, 0-d; None: not computed.
        clip_factor: the factor of clipping, float32, 0-d; None without a norm.
        largest: the input of an automatic scaler: has_nan, bool, and the largest
            element, float32, both 0-d; None for other scales.
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
        present: Sequence[Present] | None = None,
        unclipped: Collection[int] = (),
    ) -> None:
        self.pairs = pairs
        self.names = names
        self.unclipped = unclipped
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
        self.norm = norm = tf.sqrt(tf.reduce_sum(self._clipped(sums)) * 2.0)
        # If the sum of squares is finite, every element is, so one read suffices.
        self.flags = tf.cond(
            tf.reduce_all(tf.math.is_finite(sums)),
            lambda: tf.ones_like(sums, tf.bool),
            lambda: finite_flags(self.present),
        )
        self.finite = tf.logical_and(tf.reduce_all(self.flags), tf.math.is_finite(norm))
        # At or below the limit nothing is multiplied: c (1/c) is not 1 for every c.
        factor = clip_factor(norm, clip_norm)
        self.clip_factor = tf.where(norm > clip_norm, factor, 1.0)

    def _clipped(self, sums: tf.Tensor) -> tf.Tensor:
        """Return the entries of the gradients that are clipped, of one per present."""
        if not self.unclipped:
            return sums
        present = [
            k for k, (gradient, _) in enumerate(self.pairs) if gradient is not None
        ]
        clipped = [place for place, k in enumerate(present) if k not in self.unclipped]
        return tf.gather(sums, tf.constant(clipped, tf.int32))

    def look_at_largest(
        self, pairs: Pairs, check_grads: Callable[..., Any], decides: bool
    ) -> None:
        """Compute the input of an automatic scaler, after :meth:`look`.

        By default the scaler learns of every overflow, even if it occurs only in the
        norm or in the sum of duplicate rows. A step without elements has no overflow.

        Args:
            pairs: the gradients as they are stored, with their variables.
            check_grads: the scaler's method.
            decides: whether the largest element alone decides if the step is finite.
        """
        if decides:
            has_nan, largest = check_grads(pairs)
            overflow = tf.logical_or(has_nan, tf.math.is_inf(largest))
            self.finite = tf.logical_not(overflow)
        else:
            wide = [(None if g is None else widen(g), v) for g, v in pairs]
            has_nan, largest = check_grads(wide)
            largest = tf.clip_by_value(largest, 0.0, tf.float32.max)
            largest = tf.where(self.finite, largest, float("inf"))
        self.largest = has_nan, largest

    def update(self, take: Callable[[Pairs], Any]) -> Any:
        """Call ``take`` with the pairs, whose gradients are clipped if requested."""
        if self.clip_factor is None:
            return take(self.pairs)
        gradients, variables = zip(*self.pairs, strict=True)
        clipped = scale_gradients(gradients, self.clip_factor)
        for position in self.unclipped:
            clipped[position] = gradients[position]
        return take(list(zip(clipped, variables, strict=True)))

    @property
    def names_present(self) -> list[str]:
        """The names of the variables that have a gradient."""
        return self._names(is_absent=False)

    def _names(self, is_absent: bool) -> list[str]:
        """Return the names of variables without, or with, a gradient."""
        pairs = zip(self.pairs, self.names, strict=True)
        return [name for (g, _), name in pairs if (g is None) == is_absent]

    def nonfinite(self) -> list[str]:
        """Return the names of variables with a non-finite gradient; eager only."""
        flags = np.asarray(self.flags)
        return [] if flags.all() else list(compress(self.names_present, ~flags))

    def report(self, inner: StepReport | None) -> words.ScaledStepReport:
        """Return the report; ``inner``: the ``last_step`` of the wrapped optimizer.

        Eager only. The norm is left out if a gradient was not finite.
        """
        finite, nonfinite = bool(self.finite), self.nonfinite()
        norm = factor = None
        if self.norm is not None and self.clip_factor is not None and not nonfinite:
            norm = float(self.norm)
            factor = float(self.clip_factor) if finite else None
        return words.report(
            inner if self.applied else None,
            self.names,
            [] if finite else nonfinite,
            self.scales,
            self.applied,
            norm,
            factor,
            self._names(is_absent=True),
        )
