"""OpenSeq2Seq's two clipping functions, over NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.base.pairs import as_pairs, refuse_complex, require_shape
from lockstep.messages.clipping import clip_by_global_norm as words
from lockstep.messages.clipping import refusals
from lockstep.quirks import Quirks, quirks_of
from lockstep.reference.base.pairs import Pairs, require_variable
from lockstep.reference.clipping.clip_by_global_norm import (
    clip_scale,
    norm_in_float32,
    scale_in_float32,
)
from lockstep.reference.tensors.variable import Variable

__all__ = [
    "as_variable_pairs",
    "clip_by_global_norm",
    "clip_gradients_by_norm",
    "require_present",
]


@documented
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float,
    use_norm: npt.ArrayLike | None = None,
    name: str | None = None,
    strict: bool = False,
) -> tuple[list[Gradient], Array]:
    """Scale a list of arrays so that their global norm is at most ``clip_norm``.

    s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s.

    Args:
        t_list: arrays of any shape, :class:`~lockstep.interface.Rows` or None.
        use_norm: the norm; None: the norm of ``t_list``, duplicate rows summed.

    Returns:
        The clipped arrays, all in float32, and the norm.
    """
    quirks = quirks_of(strict)
    entries = words.as_list(t_list, quirks.clip_scalar)
    gradients = [as_array(entry, position) for position, entry in enumerate(entries)]
    if not quirks.clip_limit:
        words.check_limit(words.CLIP, "clip_norm", clip_norm)
        words.check_norm(use_norm)
        refuse_complex(words.CLIP, dtype_names(gradients))
    norm = norm_in_float32(gradients) if use_norm is None else as_norm(use_norm)
    scale = clip_scale(norm, clip_norm)
    scale = scale.reshape(1) if quirks.clip_scalar else scale
    return scale_in_float32(gradients, scale), norm


@documented
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    clip_gradients: float,
    strict: bool = False,
) -> Pairs:
    """Clip gradients by their global norm, each in its variable's dtype afterwards.

    ...
    """
    quirks = quirks_of(strict)
    pairs = as_variable_pairs(grads_and_vars, words.BY_NORM, quirks)
    gradients = [gradient for gradient, _ in pairs]
    if quirks.clip_absent:
        require_present(words.BY_NORM, pairs)
    if not quirks.clip_limit:
        words.check_limit(words.BY_NORM, "clip_gradients", clip_gradients)
        refuse_complex(words.BY_NORM, dtype_names(gradients))
    norm = norm_in_float32(gradients, quirks.clip_duplicates)
    clipped, _ = clip_by_global_norm(gradients, clip_gradients, norm, strict=strict)
    variables = [variable for _, variable in pairs]
    return [(cast(g, v), v) for g, v in zip(clipped, variables, strict=True)]


def dtype_names(gradients: Iterable[Any]) -> list[str]:
    """Return the names of the dtypes of gradients that are present."""
    present = [g.values if isinstance(g, Rows) else g for g in gradients]
    return [str(np.asarray(g).dtype) for g in present if g is not None]


def as_variable_pairs(
    grads_and_vars: Iterable[Any], owner: str, quirks: Quirks
) -> Pairs:
    """Return pairs (gradient or None, variable) after checking their shapes."""
    pairs = as_pairs(grads_and_vars, owner)
    for gradient, variable in pairs:
        require_variable(variable, owner)
        if gradient is not None and not quirks.clip_limit:
            is_sparse = isinstance(gradient, Rows)
            shape = gradient.values.shape[1:] if is_sparse else np.shape(gradient)
            expected = variable.shape[1:] if is_sparse else variable.shape
            require_shape(owner, variable.name, shape, expected)
    return pairs


def require_present(owner: str, pairs: Pairs) -> None:
    """Raise if a gradient is None, as the original does."""
    for gradient, variable in pairs:
        if gradient is None:
            raise refusals.ABSENT_GRADIENT.error(owner=owner, name=variable.name)


def as_array(entry: Any, position: int) -> Gradient:
    """Return an entry as an array of numbers; None and rows are returned unchanged."""
    if entry is None or isinstance(entry, Rows):
        return entry
    array = np.asarray(entry)
    if not np.issubdtype(array.dtype, np.number):
        raise refusals.NOT_A_TENSOR.error(position=position, got=type(entry).__name__)
    return array


def as_norm(use_norm: Any) -> Array:
    """Return the argument ``use_norm`` in float32, 0-d."""
    norm = np.asarray(use_norm)
    if norm.shape or not np.issubdtype(norm.dtype, np.number):
        raise refusals.BAD_NORM.error(got=repr(use_norm))
    return norm.astype(np.float32)


def cast(gradient: Gradient, variable: Variable) -> Gradient:
    """Return a gradient in the dtype of its variable."""
    if gradient is None:
        return None
    with np.errstate(over="ignore"):
        if isinstance(gradient, Rows):
            return gradient._replace(values=gradient.values.astype(variable.dtype))
        return gradient.astype(variable.dtype)
