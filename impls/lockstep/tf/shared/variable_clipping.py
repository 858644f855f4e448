"""Clipping of rows: the rule, and checks of axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from lockstep import errors
from lockstep.checks import CHOOSE, is_positive, number_of, require
from lockstep.pipeline import has_layer
from lockstep.tf.shared.gradients import HALF, as_tensor, name_of

OWNER = "VariableClippingOptimizer"
DIMS = f"{OWNER}: vars_to_clip_dims"

# Rows that rounding leaves above the limit are made smaller by this share. It is a sum
# of rounding errors: the factor and the product are rounded to float32 or to the dtype
# itself, half precision is rounded once more, and the norm in float64 has an error.
MARGINS = {
    tf.float16: 2.0**-11 + 2.0**-23 + 2.0**-50,
    tf.bfloat16: 2.0**-8 + 2.0**-23 + 2.0**-50,
    tf.float32: 2.0**-23 + 2.0**-50,
    tf.float64: 2.0**-52 + 2.0**-50,
}


def clip_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the clipped ``values``, and a mask of the norms above ``max_norm``.

    Where n = sqrt(sum over axes of w^2) > max_norm, w becomes w max_norm / n, computed
    in at least float32 with norms in float64. Clipped again, a row moves by at most one
    ULP of its largest element. Rows with smaller norms keep their bits.

    Args:
        values: real tensor of any shape.
        axes: distinct axes, all >= 0; without axes each element is its own norm.
        max_norm: the largest norm that is not clipped, > 0.
    """
    wide = tf.float32 if values.dtype in HALF else values.dtype
    limit = tf.cast(as_tensor(max_norm, wide), tf.float64)
    norms = row_norms(values, axes)
    fits = norms <= limit
    # A row of zeros, which fits, must not give an infinity, even an unused one:
    # tf.debugging.enable_check_numerics would stop the program.
    factors = tf.math.divide_no_nan(limit, norms)
    above = row_norms(in_wide(values, factors, wide), axes) > limit
    lower = factors * (1 - MARGINS[values.dtype])
    clipped = in_wide(values, tf.where(above, lower, factors), wide)
    return tf.where(fits, values, clipped), tf.logical_not(fits)


def row_norms(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the norms over ``axes`` in float64; the axes keep length 1."""
    squares = tf.square(tf.cast(values, tf.float64))
    return tf.sqrt(tf.reduce_sum(squares, list(axes), keepdims=True))


def in_wide(values: tf.Tensor, factors: tf.Tensor, wide: tf.DType) -> tf.Tensor:
    """Return w times f, computed in ``wide``."""
    return tf.cast(tf.cast(values, wide) * tf.cast(factors, wide), values.dtype)


def checked_axes(name: str, dims: Any) -> tuple[int, ...]:
    """Return the axes of a variable; raise unless they are integers."""
    try:
        if any(isinstance(axis, bool) for axis in dims):
            raise TypeError("a bool is no axis")
        return tuple(map(operator.index, dims))
    except TypeError as error:
        raise errors.AxesError(
            f"{DIMS}: expected a list of integers for {name!r}, got {dims!r}; write "
            "[1] for the rows of a matrix."
        ) from error


def resolved_axes(name: str, rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return ``axes`` as nonnegative numbers, ascending; raise if it has no such."""
    resolved = sorted({axis % rank for axis in axes if -rank <= axis < rank})
    if len(resolved) < len(axes):
        raise errors.OutOfRangeError(
            f"{DIMS}: expected different axes of {name!r}, which has {rank} dimensions,"
            f" got {list(axes)}; list each axis once."
        )
    return tuple(resolved)


def check_arguments(opt: Any, vars_to_clip_dims: Any, name: Any) -> None:
    """Raise unless the arguments of the wrapper have the right kinds."""
    if not isinstance(name, str) or not name:
        raise errors.OutOfRangeError(
            f"{OWNER}: name: expected a nonempty string, got {name!r}; leave it out "
            "for 'VariableClipping'."
        )
    if not isinstance(vars_to_clip_dims, Mapping):
        raise errors.AxesError(
            f"{DIMS}: expected a dict {{variable: [axes]}}, got "
            f"{type(vars_to_clip_dims).__name__}; map each variable to its axes."
        )
    if has_layer(opt, "AGNOptimizer"):
        raise errors.UnsupportedError(
            f"{OWNER}: expected an optimizer of variables that nothing shares, got "
            "AGNOptimizer, whose shared rows it would not clip; put row clipping "
            "inside: AGNOptimizer(VariableClippingOptimizer(opt, ...), ...)."
        )


def limits_of(
    max_norm: Any, listed: Iterable[Any], key_of: Callable[[Any], Any], tensors: bool
) -> dict[Any, Any]:
    """Return key -> the largest norm for ``listed`` keys; raise unless all are > 0."""
    limits = dict.fromkeys(listed, max_norm)
    if isinstance(max_norm, Mapping):
        keys, limits = set(limits), {key_of(k): norm for k, norm in max_norm.items()}
        if limits.keys() != keys:
            raise errors.UnknownNameError(
                f"{OWNER}: max_norm: expected the keys of vars_to_clip_dims, got "
                f"{', '.join(map(name_of, max_norm))}; give each variable a norm."
            )
    for norm in limits.values() if isinstance(max_norm, Mapping) else [max_norm]:
        fine = (tensors and tf.is_tensor(norm)) or is_positive(number_of(norm))
        require(OWNER, "max_norm", norm, fine, "a finite number > 0", CHOOSE)
    return limits


def refuse_master(variable: Any) -> NoReturn:
    """Raise for a listed variable that is trained through a master."""
    raise errors.UnsupportedError(
        f"{OWNER}: expected an optimizer that updates {name_of(variable)!r} itself, "
        "got one that trains its float32 master; put row clipping inside of "
        "MixedPrecisionOptimizerWrapper."
    )


def warn_of_whole(variable: Any, axes: Sequence[int]) -> None:
    """Warn of a norm over all rows of a variable that has a sparse gradient."""
    errors.warn_user(
        f"{OWNER}: expected axes without dimension 0, got a sparse gradient for "
        f"{name_of(variable)!r}, clipped over {list(axes)}; the norm runs over all "
        "rows, so the whole variable is read and clipped."
    )
