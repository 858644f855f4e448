"""Clipping by the global norm, on tensors and slices.

``clip_gradients_by_global_norm`` is that of ``tf.contrib.opt``. The other functions are
OpenSeq2Seq's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, ValuesView
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_norm_limit, require
from lockstep.tf.shared.gradients import (
    Gradient,
    as_gradient,
    as_pairs,
    as_tensor,
    as_variable,
    check_shapes,
    require_floats,
    require_variable,
    summed_values,
    times,
    widen,
)

Pairs = list[tuple[Gradient, Any]]

BY_GLOBAL_NORM = "clip_gradients_by_global_norm"
BY_NORM = "clip_gradients_by_norm"
OF_LIST = "clip_by_global_norm"


# -- tf.contrib.opt's clipping by the global norm --------------------------------------


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
) -> tuple[Pairs, tf.Tensor]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present and not all zero;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient or None, variable), dense or sparse.
        clip_norm: the largest global norm that is not clipped, > 0 and finite.
        error_if_nonfinite: raise instead of returning NaN; in a graph an assertion,
            which raises ``tf.errors.InvalidArgumentError`` when it runs.

    Returns:
        The pairs with clipped gradients, and the norm: float32, 0-d.

    Raises:
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.
        NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. In
    ``fit`` the argument ``global_clipnorm`` of Keras' optimizers does the same.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = [(tf.constant([3.0, 4.0]), w)]
        >>> clipped, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> clipped[0][0].numpy().tolist(), float(norm)
        ([1.5, 2.0], 5.0)
    """
    owner, remedy = BY_GLOBAL_NORM, "give the largest global norm that is not clipped"
    check_norm_limit(owner, "clip_norm", clip_norm, remedy)
    pairs = as_pairs(gradients_variables, owner)
    gradients = [as_gradient(g, v, owner) for g, v in pairs]
    variables = [as_variable(variable) for _, variable in pairs]
    both = zip(gradients, variables, strict=True)
    fitting = [(g, v) for g, v in both if isinstance(v, tf.Variable)]
    check_shapes(owner, fitting)
    with tf.name_scope("global_norm"):
        norm = global_norm(require_floats(owner, gradients))
    if error_if_nonfinite:
        norm = require_finite(norm)
    with tf.name_scope("clip_by_global_norm"):
        clipped = scale_gradients(gradients, clip_factor(norm, clip_norm))
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm


def global_norm(gradients: Iterable[Gradient], dtype: Any = tf.float32) -> tf.Tensor:
    """Return the global norm, computed in ``dtype``, duplicate rows summed first."""
    total = tf.reduce_sum(half_square_sums(gradients, dtype))
    return tf.sqrt(total * tf.constant(2, dtype), name="global_norm")


def half_square_sums(gradients: Iterable[Gradient], dtype: Any) -> tf.Tensor:
    """Return sum(g^2) / 2 of n gradients, duplicate rows summed first: [n]."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return tf.zeros([0], dtype)
    values = [tf.cast(summed_values(gradient), dtype) for gradient in present]
    return tf.stack([tf.nn.l2_loss(value) for value in values])


def require_finite(norm: tf.Tensor) -> tf.Tensor:
    """Return ``norm`` if it is finite; otherwise raise, now or when the graph runs."""
    sentence = f"{BY_GLOBAL_NORM}: expected a finite global norm, got"
    finite = tf.math.is_finite(norm)
    if tf.executing_eagerly():
        if not finite:
            raise errors.NonFiniteNormError(
                f"{sentence} {float(norm)}; look for the gradient that overflowed, or "
                "leave error_if_nonfinite off."
            )
        return norm
    with tf.control_dependencies([tf.Assert(finite, [sentence, norm])]):
        return tf.identity(norm)


def clip_factor(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return the factor for ``norm``; NaN if the norm is not finite."""
    # A constant NaN would stop a program under tf.debugging.enable_check_numerics.
    nan = tf.abs(norm - norm)
    return tf.where(tf.math.is_finite(norm), limited(norm, clip_norm), nan)


def limited(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return TensorFlow's factor for ``norm``: 0 if it is infinite, NaN if NaN.

    limit min(1 / norm, 1 / limit), without an infinity for a norm of 0.
    """
    limit = as_tensor(clip_norm, norm.dtype)
    divisor = tf.where(tf.equal(norm, 0), limit, norm)
    return limit * tf.minimum(1 / divisor, 1 / limit)


def scale_gradients(gradients: Iterable[Gradient], factor: tf.Tensor) -> list[Gradient]:
    """Return the gradients times ``factor``, in their own dtypes."""
    return [None if g is None else times(g, factor) for g in gradients]


# -- OpenSeq2Seq's clipping by the global norm -----------------------------------------


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor | None = None,
    name: str | None = None,
) -> tuple[list[Gradient], tf.Tensor]:
    """Scale a list of tensors so that their global norm is at most ``clip_norm``.

    s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s. An infinite
    norm makes finite elements 0 and the others NaN; a norm of NaN makes all NaN.

    Args:
        t_list: tensors of any shape, ``tf.IndexedSlices`` or None.
        clip_norm: the largest norm that is not clipped, > 0 and finite; not checked if
            it is a tensor.
        use_norm: the norm, 0-d; None: the norm of ``t_list``, duplicate rows summed.
        name: the name scope of the operations.

    Returns:
        The clipped tensors, all in float32, and the norm: float32, 0-d.

    Raises:
        NotASequenceError: a TypeError; ``t_list`` is a tensor, a string or the like.
        MalformedPairsError: a TypeError; an entry is no tensor.
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
            ``use_norm`` a number < 0.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``.

    Example:
        >>> clipped, norm = clip_by_global_norm([tf.constant([3.0, 4.0]), None], 2.5)
        >>> clipped[0].numpy().tolist(), clipped[1], float(norm)
        ([1.5, 2.0], None, 5.0)
    """
    is_lazy = isinstance(t_list, Iterator | ValuesView)
    tensors = as_tensors(list(t_list) if is_lazy else t_list)
    check_limit(OF_LIST, "clip_norm", clip_norm)
    if isinstance(use_norm, int | float):
        require(OF_LIST, "use_norm", use_norm, not use_norm < 0, "a number >= 0")
    with tf.name_scope(name or OF_LIST):
        norm = global_norm(tensors) if use_norm is None else use_norm
        norm = tf.cast(norm, tf.float32)
        return scale_in_float32(tensors, limited(norm, clip_norm)), norm


def scale_in_float32(
    gradients: Iterable[Gradient], factor: tf.Tensor
) -> list[Gradient]:
    """Return each tensor in float32 times ``factor``; None stays None."""
    return [None if g is None else times(widen(g), factor) for g in gradients]


def check_limit(owner: str, name: str, limit: float | tf.Tensor) -> None:
    """Raise unless a limit is a positive, finite number; tensors are not checked."""
    if not tf.is_tensor(limit):
        check_norm_limit(owner, name, limit)


def as_tensors(t_list: Any) -> list[Gradient]:
    """Return the tensors of a list; raise if it is no list of real tensors."""
    if not isinstance(t_list, Sequence) or isinstance(t_list, str | bytes):
        raise errors.NotASequenceError(
            f"{OF_LIST}: t_list: expected a sequence of tensors, got "
            f"{errors.with_article(type(t_list).__name__)}; put the tensors into a "
            "list."
        )
    tensors: list[Gradient] = []
    for position, entry in enumerate(t_list):
        is_done = entry is None or isinstance(entry, tf.IndexedSlices)
        try:
            tensors.append(entry if is_done else tf.convert_to_tensor(entry))
        except (TypeError, ValueError):
            raise errors.MalformedPairsError(
                f"{OF_LIST}: t_list: expected a tensor or None at position {position}, "
                f"got {type(entry).__name__}; convert it to a tensor first."
            ) from None
    require_floats(OF_LIST, tensors, integers=True)
    return tensors


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_gradients: float | tf.Tensor
) -> Pairs:
    """Clip gradients by their global norm, each in its variable's dtype afterwards.

    Norm and products are computed in float32, as by :func:`clip_by_global_norm`.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        clip_gradients: the largest global norm that is not clipped, > 0 and finite;
            tensors are not checked.

    Returns:
        The pairs, with clipped gradients.

    Raises:
        OutOfRangeError: a ValueError; ``clip_gradients`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``. In ``fit`` the
    argument ``global_clipnorm`` of Keras' optimizers does nearly the same.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = clip_gradients_by_norm([(tf.constant([3.0, 4.0]), w)], 2.5)
        >>> pairs[0][0].numpy().tolist()
        [1.5, 2.0]
    """
    check_limit(BY_NORM, "clip_gradients", clip_gradients)
    pairs = checked_pairs(BY_NORM, grads_and_vars)
    check_shapes(BY_NORM, pairs)
    return clip_pairs(pairs, norm_of(BY_NORM, pairs), clip_gradients)


def checked_pairs(owner: str, grads_and_vars: Iterable[Any]) -> Pairs:
    """Return (gradient or None, variable as given) pairs; raise for other objects."""
    pairs: Pairs = []
    for gradient, key in as_pairs(grads_and_vars, owner):
        require_variable(owner, key, "variable")
        pairs.append((as_gradient(gradient, key, owner), key))
    return pairs


def norm_of(owner: str, pairs: Pairs) -> tf.Tensor:
    """Return the global norm of the gradients that are present: float32, 0-d."""
    return global_norm(require_floats(owner, [gradient for gradient, _ in pairs]))


def clip_pairs(pairs: Pairs, norm: tf.Tensor, limit: float | tf.Tensor) -> Pairs:
    """Clip gradients, whose norm is known; return them in their variables' dtypes."""
    scaled = scale_in_float32([g for g, _ in pairs], limited(norm, limit))
    dtypes = [as_variable(variable).dtype.base_dtype for _, variable in pairs]
    clipped = [
        None if gradient is None else tf.cast(gradient, dtype)
        for gradient, dtype in zip(scaled, dtypes, strict=True)
    ]
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)]
