"""OpenSeq2Seq's clipping by the global norm, on tensors and slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base.pairs import refuse_complex
from lockstep.messages.clipping import clip_by_global_norm as words
from lockstep.messages.clipping import refusals
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.shared.clipping.clip_gradients import (
    Gradient,
    global_norm,
    limited,
    scale_gradients,
)
from lockstep.tf.shared.gradients import as_tensor, widen

__all__ = [
    "as_norm",
    "as_tensors",
    "check_limit",
    "clip_by_global_norm",
    "clip_list",
    "clip_scale",
    "norm_in_float32",
    "scale_in_float32",
]


@tf.autograph.experimental.do_not_convert
@documented
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor | None = None,
    name: str | None = None,
    strict: bool = False,
) -> tuple[list[Gradient], tf.Tensor]:
    """...

    Args:
        t_list: tensors of any shape, ``tf.IndexedSlices`` or None.
        clip_norm: the largest norm that is not clipped, > 0 and finite; not checked if
            it is a tensor.
        name: the name scope of the operations.

    Returns:
        The clipped tensors, all in float32, and the norm: float32, 0-d.

    Example:
        >>> clipped, norm = clip_by_global_norm([tf.constant([3.0, 4.0]), None], 2.5)
        >>> clipped[0].numpy().tolist(), clipped[1], float(norm)
        ([1.5, 2.0], None, 5.0)
    """
    quirks = quirks_of(strict)
    tensors = as_tensors(t_list, quirks)
    if not quirks.clip_limit:
        check_limit(words.CLIP, "clip_norm", clip_norm)
        words.check_norm(use_norm)
    if not quirks.arguments_unchecked:
        refuse_complex(words.CLIP, [t.dtype.name for t in tensors if t is not None])
    with tf.name_scope(name or words.CLIP):
        norm = norm_in_float32(tensors) if use_norm is None else as_norm(use_norm)
        return clip_list(tensors, clip_norm, norm, quirks), norm


def norm_in_float32(
    gradients: Sequence[Gradient], one_by_one: bool = False
) -> tf.Tensor:
    """Return the global norm of all tensors that are not None, in float32.

    ``one_by_one``: duplicate rows are not summed first.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    if one_by_one:
        slices = tf.IndexedSlices
        present = [g.values if isinstance(g, slices) else g for g in present]
    else:
        refuse_complex(words.CLIP, [gradient.dtype.name for gradient in present])
    return global_norm(present, tf.float32)


def clip_scale(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return the factor for ``norm`` as TensorFlow computes it: float32, 0-d."""
    return limited(norm, as_tensor(clip_norm, tf.float32))


def scale_in_float32(gradients: Sequence[Gradient], scale: tf.Tensor) -> list[Gradient]:
    """Return each tensor in float32 times ``scale``; None stays None."""
    wide = [None if gradient is None else widen(gradient) for gradient in gradients]
    return scale_gradients(wide, scale)


def clip_list(
    gradients: Sequence[Gradient],
    clip_norm: float | tf.Tensor,
    norm: tf.Tensor,
    quirks: Quirks,
) -> list[Gradient]:
    """Clip gradients by a known norm; return them in float32.

    Strict: the scale has shape [1], so a scalar gets that shape too.
    """
    scale = clip_scale(norm, clip_norm)
    if quirks.clip_scalar:
        scale = tf.reshape(scale, [1])
    return scale_in_float32(gradients, scale)


def check_limit(owner: str, name: str, limit: float | tf.Tensor) -> None:
    """Raise unless a limit is a positive, finite number; tensors are not checked."""
    if not tf.is_tensor(limit):
        words.check_limit(owner, name, limit)


def as_tensors(t_list: Any, quirks: Quirks) -> list[Gradient]:
    """Return the tensors of a list; raise if it is no list."""
    entries = words.as_list(t_list, quirks.clip_scalar)
    return [to_tensor(entry, position) for position, entry in enumerate(entries)]


def to_tensor(entry: Any, position: int) -> Gradient:
    """Return None, tensors and slices as they are; convert arrays and numbers."""
    if entry is None or isinstance(entry, tf.IndexedSlices):
        return entry
    try:
        tensor = tf.convert_to_tensor(entry)
    except (TypeError, ValueError) as error:
        raise refusals.NOT_A_TENSOR.error(
            position=position, got=type(entry).__name__
        ) from error
    if tensor.dtype == tf.string:
        raise refusals.NOT_A_TENSOR.error(position=position, got=type(entry).__name__)
    return tensor


def as_norm(use_norm: Any) -> tf.Tensor:
    """Return the norm that a caller passed: float32, 0-d."""
    try:
        norm = tf.cast(use_norm, tf.float32)
    except (TypeError, ValueError, tf.errors.UnimplementedError) as error:
        raise refusals.BAD_NORM.error(got=repr(use_norm)) from error
    if not norm.shape.is_compatible_with([]):
        raise refusals.BAD_NORM.error(got=f"shape {norm.shape.as_list()}")
    return norm
