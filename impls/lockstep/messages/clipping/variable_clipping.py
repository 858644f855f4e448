"""Checks and messages of row clipping on all backends."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.checks import is_positive, number_of, require
from lockstep.errors import (
    sentence,
)
from lockstep.interface import StepReport
from lockstep.messages.clipping import refusals

__all__ = [
    "MARGINS",
    "Axes",
    "check_max_norm",
    "check_max_norms",
    "check_name",
    "check_norm_kind",
    "limits_of",
    "listed_axes",
    "refuse_mapping",
    "report",
    "require_mapping",
    "resolved_axes",
    "whole_variable",
]

WRAPPER = "VariableClippingOptimizer"
DIMS = f"{WRAPPER}: vars_to_clip_dims"

NORM_ERROR = 2.0**-50
MARGINS = {
    "float16": 2.0**-11 + 2.0**-23 + NORM_ERROR,
    "bfloat16": 2.0**-8 + 2.0**-23 + NORM_ERROR,
    "float32": 2.0**-23 + NORM_ERROR,
    "float64": 2.0**-52 + NORM_ERROR,
}
"""Dtype -> margin below the limit, relative to it, for rows that rounding would leave
above the limit. With this margin, rounding cannot exceed the limit.

The margin is a sum of rounding errors. The factor and the product are rounded to
``wide``, which is float32 for half precision and otherwise the dtype itself; together
this is its machine epsilon. Half precision is rounded once more, by half its machine
epsilon. The norm in float64 has an error, too.
"""


class Axes(tuple[int, ...]):
    """The axes of one variable, with its limit ``max_norm`` for the norm over them."""

    max_norm: Any

    @classmethod
    def of(cls, axes: Iterable[int], max_norm: Any) -> Axes:
        """Return axes with the limit ``max_norm``."""
        limited = cls(axes)
        limited.max_norm = max_norm
        return limited


def check_norm_kind(max_norm: Any, dtype: str | None, wanted: str) -> None:
    """Strict: raise for text, and for a tensor whose dtype is not the variable's.

    Args:
        max_norm: the norm.
        dtype: the dtype of the norm; None if it is a number.
        wanted: the dtype of the variable to be clipped.
    """
    text = repr(max_norm) if isinstance(max_norm, str | bytes) else None
    if dtype is not None and dtype != wanted:
        text = f"a tensor of {dtype}"
    if text is not None:
        raise refusals.NORM_DTYPE.error(wanted=wanted, got=text)


def check_max_norm(max_norm: Any) -> None:
    """Raise unless ``max_norm`` is a finite number > 0 (not called under strict).

    Quirk ``row_clip_range``.
    """
    fine = is_positive(number_of(max_norm))
    remedy = "give the largest norm that a row may keep"
    require(WRAPPER, "max_norm", max_norm, fine, "a finite number > 0", remedy)


def check_max_norms(norms: Mapping[str, Any], listed: Sequence[str]) -> None:
    """Raise unless exactly the listed names have a finite norm > 0."""
    for name in [*norms, *listed]:
        if (name in norms) != (name in listed):
            raise refusals.OTHER_KEYS.error(
                got="none" if name in listed else "one", name=name
            )
    for norm in norms.values():
        check_max_norm(norm)


def refuse_mapping(max_norm: Any) -> None:
    """Strict: raise for a mapping, which the original does not accept."""
    if isinstance(max_norm, Mapping):
        raise refusals.MAPPING_UNDER_STRICT.error()


def limits_of(
    max_norm: Any, names: Mapping[Any, str], row_clip_range: bool
) -> dict[Any, Any]:
    """Return the largest norm of each key of ``vars_to_clip_dims``.

    Args:
        max_norm: one norm for all or, without the quirk, a mapping from the same keys.
        names: key -> its name in messages.
        row_clip_range: whether the quirk is on: norms are not checked.

    Raises:
        OutOfRangeError: a norm is out of range.
        UnknownNameError: a mapping has other keys.
        DtypeError: strict: ``max_norm`` is a mapping.
    """
    if row_clip_range:
        refuse_mapping(max_norm)
        return dict.fromkeys(names, max_norm)
    if not isinstance(max_norm, Mapping):
        check_max_norm(max_norm)
        return dict.fromkeys(names, max_norm)
    norms = {
        names.get(key, key if isinstance(key, str) else type(key).__name__): norm
        for key, norm in max_norm.items()
    }
    check_max_norms(norms, list(names.values()))
    return dict(max_norm)


def check_name(name: Any) -> None:
    """Raise unless ``name`` is a nonempty string."""
    if not isinstance(name, str) or not name:
        raise refusals.EMPTY_NAME.error(got=name)


def require_mapping(vars_to_clip_dims: Any) -> None:
    """Raise unless ``vars_to_clip_dims`` maps variables to axes."""
    if not isinstance(vars_to_clip_dims, Mapping):
        got = type(vars_to_clip_dims).__name__
        raise refusals.AXES_NOT_IN_A_DICT.error(got=got)


def listed_axes(name: str, dims: Any) -> tuple[int, ...]:
    """Return the axes of one variable as a tuple, unresolved.

    Raises:
        AxesError: ``dims`` is no list or tuple of integers; also for a single integer,
            None or a string.
    """
    axes: list[int] = []
    fine = isinstance(dims, Iterable) and not isinstance(dims, str | bytes | Mapping)
    for axis in dims if fine else ():
        try:
            axes.append(operator.index(axis))
        except TypeError:
            fine = False
        fine = fine and not isinstance(axis, bool)
    if not fine:
        raise refusals.AXES_NOT_LISTED.error(name=name, got=dims)
    return tuple(axes)


def resolved_axes(name: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return ``axes`` as nonnegative numbers, ascending.

    By default this is called at construction. Under strict an invalid axis is an error
    of ``apply_gradients``, raised before anything is applied.

    Raises:
        OutOfRangeError: a variable of this rank does not have an axis, or an axis is
            listed twice.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise refusals.AXIS_OUT_OF_RANGE.error(name=name, rank=rank, got=axis)
    resolved = sorted(axis % rank for axis in axes)
    if len(set(resolved)) < len(resolved):
        raise refusals.REPEATED_AXIS.error(name=name, got=list(axes))
    return tuple(resolved)


def whole_variable(name: str, axes: Sequence[int]) -> str:
    """Return the warning for a sparse gradient and axes that include dimension 0."""
    got = f"a sparse gradient for {name!r}, clipped over {list(axes)}"
    remedy = "the norm runs over all rows, so the whole variable is read and clipped"
    return sentence(WRAPPER, "axes without dimension 0", got, remedy)


def report(
    inner: StepReport | None,
    names: Sequence[str],
    absent: Sequence[bool],
    rows: int,
    clipped: int,
) -> StepReport:
    """Return the report of a step: what was updated, and how many rows were clipped.

    ``inner`` is the ``last_step`` of the wrapped optimizer, which is more precise about
    updates; None if there is none. ``rows``: the number of norms; each row of a sparse
    gradient counts once.
    """
    ending = f"{clipped} of {rows} rows clipped"
    if inner is not None:
        return inner._replace(reason=f"{inner.reason}; {ending}")
    pairs = zip(names, absent, strict=True)
    skipped = tuple(name for name, is_absent in pairs if is_absent)
    updated = f"of {len(names)} gradients {len(skipped)} absent"
    if not skipped:
        updated = "every gradient was present"
    return StepReport(len(skipped) < len(names), f"{updated}; {ending}", skipped)
