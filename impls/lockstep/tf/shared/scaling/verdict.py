"""What a step finds in its gradients: whether they are finite, and their norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lockstep.tf.shared.clipping.clip_gradients import (
    clip_factor,
    half_square_sums,
    scale_gradients,
)
from lockstep.tf.shared.tensors.finite import finite_flags

__all__ = ["Verdict", "judge"]

Present = tf.Tensor | tf.IndexedSlices
Pairs = list[tuple[Present | None, Any]]


class Verdict(NamedTuple):
    """What was found in the n gradients that are present.

    Attributes:
        names: of their variables.
        flags: whether each is finite: bool, [n].
        finite: whether all are, and their norm if it was taken: bool, 0-d.
        norm: the global norm of all, float32, 0-d; None if nothing is to be clipped.
        factor: what clipping multiplies by, like the norm.
        shown: what an automatic scaler is to see: has_nan, bool, and the largest
            element, float32, both 0-d; None for other scales.
    """

    names: list[str]
    flags: tf.Tensor
    finite: tf.Tensor
    norm: tf.Tensor | None = None
    factor: tf.Tensor | None = None
    shown: tuple[tf.Tensor, tf.Tensor] | None = None

    def clipped(self, pairs: Pairs) -> Pairs:
        """Return the pairs with gradients times the factor, if there is one."""
        if self.factor is None:
            return pairs
        gradients = scale_gradients([gradient for gradient, _ in pairs], self.factor)
        return [(g, v) for g, (_, v) in zip(gradients, pairs, strict=True)]

    def nonfinite(self) -> list[str]:
        """Return the names of what is not finite; eager only."""
        flags = np.asarray(self.flags)
        return [n for n, fine in zip(self.names, flags, strict=True) if not fine]

    def norm_and_factor(self) -> tuple[float | None, float | None]:
        """Return the norm unless a gradient was not finite, and the factor; eager."""
        if self.norm is None or self.factor is None or self.nonfinite():
            return None, None
        return float(self.norm), float(self.factor) if bool(self.finite) else None


def judge(
    present: Sequence[Present], names: list[str], clip_norm: float | None
) -> Verdict:
    """Look at the gradients of a step; the norm is taken only to be clipped.

    ``names`` are those of the variables of the gradients that are ``present``.
    """
    if clip_norm is None:
        flags = finite_flags(present)
        return Verdict(names, flags, tf.reduce_all(flags))
    sums = half_square_sums(present, tf.float32)
    norm = tf.sqrt(tf.reduce_sum(sums) * 2.0)
    # One read gives both: a finite sum of squares has no element that is not finite.
    flags = tf.cond(
        tf.reduce_all(tf.math.is_finite(sums)),
        lambda: tf.ones_like(sums, tf.bool),
        lambda: finite_flags(present),
    )
    finite = tf.logical_and(tf.reduce_all(flags), tf.math.is_finite(norm))
    # Below the limit nothing is multiplied: c (1/c) is not 1 for every c.
    factor = tf.where(norm > clip_norm, clip_factor(norm, clip_norm), 1.0)
    return Verdict(names, flags, finite, norm, factor)
