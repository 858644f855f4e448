"""Clipping by the global norm, as TensorFlow and OpenSeq2Seq do it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, ValuesView
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.checks import check_norm_limit, require
from lockstep.errors import NotASequenceError, UnsupportedError
from lockstep.interface import Array, Gradient, Rows
from lockstep.reference import arrays
from lockstep.reference.arrays import (
    SINGLE,
    Pairs,
    Variable,
    flush_subnormals,
    map_values,
)

CLIP, BY_NORM = "clip_by_global_norm", "clip_gradients_by_norm"


def global_norm(
    gradients: Iterable[Gradient], dtype: np.dtype[Any] = SINGLE, flush: bool = False
) -> Array:
    """Return sqrt(sum of squares) over all elements of all gradients, in ``dtype``.

    Duplicate rows are summed first, and absent gradients left out. Without gradients
    the norm is 0. As in ``tf.linalg.global_norm``, the sum of halved squares is
    computed per tensor, and the total is doubled. With ``flush``, subnormal halves
    become 0, as in the original's kernels.
    """
    total = np.zeros((), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for gradient in gradients:
            if gradient is not None:
                values = arrays.summed_values(gradient).astype(dtype)
                halves = np.square(values) * dtype.type(0.5)
                halves = flush_subnormals(halves) if flush else halves
                total = total + arrays.lane_sum(halves)
        return np.asarray(np.sqrt(total * dtype.type(2)))


def clip_scale(norm: Array, clip_norm: float, flush: bool = False) -> Array:
    """Return s = clip_norm min(1 / norm, 1 / clip_norm) in the norm's dtype: 0-d.

    A norm of 0 gives 1 or the number next to it. An infinite norm gives 0, and NaN
    gives NaN. With ``flush``, a subnormal limit, reciprocal or s becomes 0.
    """
    one, limit = norm.dtype.type(1), norm.dtype.type(clip_norm)
    with np.errstate(divide="ignore", invalid="ignore"):
        if not flush:
            return np.asarray(limit * np.minimum(one / norm, one / limit))
        limit = flush_subnormals(limit)
        return flush_subnormals(
            limit * flush_subnormals(np.minimum(one / norm, one / limit))
        )


def scale_gradients(gradients: Iterable[Gradient], factor: Array) -> list[Gradient]:
    """Return each gradient times ``factor`` in its own dtype; None stays None."""
    return [map_values(lambda v: v * factor.astype(v.dtype), g) for g in gradients]


def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float,
    use_norm: npt.ArrayLike | None = None,
    name: str | None = None,
    strict: bool = False,
) -> tuple[list[Gradient], Array]:
    """Scale a list of arrays so that their global norm is at most ``clip_norm``.

    s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s. An infinite
    norm makes finite elements 0 and the others NaN; a norm of NaN makes all NaN.

    Args:
        t_list: arrays of any shape, :class:`~lockstep.interface.Rows` or None.
        clip_norm: the largest norm that is not clipped, > 0 and finite.
        use_norm: the norm, 0-d; None: the norm of ``t_list``, duplicate rows summed.
        name: as in TensorFlow; without effect.
        strict: as the original: ``use_norm`` is required, a scalar comes out with shape
            [1], iterators are refused, the norms are not checked.

    Returns:
        The clipped arrays, all in float32, and the norm.

    Raises:
        NotASequenceError: a TypeError; ``t_list`` is an array, a string or the like.
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
            ``use_norm`` a number < 0.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``.

    Example:
        >>> clipped, norm = clip_by_global_norm([np.array([3.0, 4.0]), None], 2.5)
        >>> clipped[0].tolist(), clipped[1], float(norm)
        ([1.5, 2.0], None, 5.0)
    """
    is_list = isinstance(t_list, Sequence) and not isinstance(t_list, str | bytes)
    if not strict:  # clip-scalar
        is_list = is_list or isinstance(t_list, Iterator | ValuesView)
    if not is_list:
        raise NotASequenceError(
            f"{CLIP}: t_list: expected a sequence of tensors, got "
            f"{type(t_list).__name__}; put the tensors into a list."
        )
    gradients = [
        entry if entry is None or isinstance(entry, Rows) else np.asarray(entry)
        for entry in t_list
    ]
    norm = global_norm(gradients) if use_norm is None else np.asarray(use_norm, SINGLE)
    if not strict:  # clip-limit
        check_norm_limit(CLIP, "clip_norm", clip_norm)
        require(CLIP, "use_norm", use_norm, not norm < 0, "a number >= 0, 0-d")
    scale = clip_scale(norm, clip_norm)
    if strict:  # clip-scalar
        scale = scale.reshape(1)
    return [map_values(lambda v: v.astype(SINGLE) * scale, g) for g in gradients], norm


def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    clip_gradients: float,
    strict: bool = False,
) -> Pairs:
    """Clip gradients by their global norm, each in its variable's dtype afterwards.

    Norm and products are computed in float32, as by :func:`clip_by_global_norm`.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        clip_gradients: the largest global norm that is not clipped, > 0 and finite.
        strict: as the original: duplicate rows are not summed in the norm, a scalar
            comes out with shape [1], an absent gradient is an error, nothing else is
            checked.

    Returns:
        The pairs, with clipped gradients.

    Raises:
        ValueError: ``clip_gradients`` is out of range, or the list is empty.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``.

    Example:
        >>> w = Variable("w", np.zeros(2, np.float32))
        >>> pairs = clip_gradients_by_norm([(np.float32([3, 4]), w)], 2.5)
        >>> pairs[0][0].tolist()
        [1.5, 2.0]
    """
    pairs = arrays.as_pairs(grads_and_vars, BY_NORM)
    if strict:  # clip-absent
        require_present(pairs, BY_NORM)
    else:  # clip-limit
        check_norm_limit(BY_NORM, "clip_gradients", clip_gradients)
    norm = norm_of_pairs(pairs, strict)
    gradients = [gradient for gradient, _ in pairs]
    clipped, _ = clip_by_global_norm(gradients, clip_gradients, norm, strict=strict)
    both = zip(clipped, pairs, strict=True)
    return [(arrays.cast(gradient, v.dtype), v) for gradient, (_, v) in both]


def norm_of_pairs(pairs: Pairs, strict: bool) -> Array:
    """Return the global norm in float32."""
    gradients = [gradient for gradient, _ in pairs]
    if strict:  # clip-duplicates: the rows are not summed.
        gradients = [None if g is None else arrays.values_of(g) for g in gradients]
    return global_norm(gradients)


def require_present(pairs: Pairs, owner: str) -> None:
    """Raise if a gradient is None, as the original does."""
    for gradient, variable in pairs:
        if gradient is None:
            raise UnsupportedError(
                f"{owner}: expected a gradient for {variable.name!r}, got None; the "
                "original cannot leave it out; leave strict off."
            )
