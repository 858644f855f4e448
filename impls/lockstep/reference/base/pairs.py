"""Checks of the reference's inputs: variables, pairs with gradients, step counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.errors import MalformedPairsError, sentence, with_article
from lockstep.interface import Gradient, Rows
from lockstep.messages.base import refusals
from lockstep.messages.base.differentiation import not_listed
from lockstep.messages.base.pairs import (
    as_pairs,
    require_gradients,
    require_like,
)
from lockstep.messages.nouns import REFERENCE
from lockstep.reference.tensors.variable import Variable

__all__ = [
    "Pairs",
    "advance",
    "check_counter",
    "check_gradient",
    "check_pairs",
    "listed",
    "require_variable",
    "upstream",
]

Pairs = list[tuple[Gradient, Variable]]


def listed(var_list: Any, owner: str) -> list[Variable]:
    """Return ``var_list`` as a list; raise unless every entry is a variable."""
    if var_list is None:
        raise refusals.NO_VAR_LIST.error(owner=owner)
    if isinstance(var_list, str | Variable) or not isinstance(var_list, Iterable):
        raise not_listed(owner, var_list)
    variables = list(var_list)
    for variable in variables:
        if not isinstance(variable, Variable):
            raise not_listed(owner, variable)
    return variables


def upstream(gradient: Any, factor: Any) -> Gradient:
    """Return a gradient times ``factor`` in its own dtype; unchanged without a factor.

    ``factor`` is the upstream gradient, d loss. A gradient may also be a function of
    it, which is called with 1 if there is no factor.
    """
    if callable(gradient):
        product: Gradient = gradient(np.float32(1 if factor is None else factor))
        return product
    if gradient is None or factor is None:
        return gradient  # type: ignore[no-any-return]
    if isinstance(gradient, Rows):
        values = gradient.values
        return gradient._replace(values=values * np.asarray(factor, values.dtype))
    return np.asarray(gradient * np.asarray(factor, gradient.dtype))


def check_pairs(
    grads_and_vars: Iterable[Any], owner: str, takes_wide: bool = False
) -> Pairs:
    """Return the pairs after checking them; this changes no state.

    ``takes_wide``: whether a float16 variable may have a float32 gradient.
    """
    pairs = as_pairs(grads_and_vars, owner)
    for gradient, variable in pairs:
        require_variable(variable, owner)
        check_gradient(gradient, variable, owner, takes_wide)
    require_gradients(pairs, owner, [variable.name for _, variable in pairs])
    return pairs


def require_variable(variable: Any, owner: str) -> None:
    """Raise unless the second entry of a pair is a variable."""
    if not isinstance(variable, Variable):
        got = type(variable).__name__
        raise refusals.NOT_A_VARIABLE.error(owner=owner, nouns=REFERENCE, got=got)


def check_gradient(
    gradient: Any, variable: Variable, owner: str, takes_wide: bool = False
) -> None:
    """Raise unless ``gradient`` is None, an array or rows that fit ``variable``."""
    if gradient is None:
        return
    if isinstance(gradient, Rows):
        dtype, shape = gradient.values.dtype, tuple(gradient.values.shape[1:])
        expected = variable.shape[1:]
    elif isinstance(gradient, np.ndarray | np.generic):
        dtype, shape, expected = gradient.dtype, gradient.shape, variable.shape
    else:
        got = f"{type(gradient).__name__} for {variable.name!r}"
        text = sentence(owner, "an array, Rows or None", got, "convert it to NumPy")
        raise MalformedPairsError(text)
    if shape == expected and dtype is variable.dtype:
        return  # The names of dtypes take NumPy longer than a small update.
    found = str(dtype)
    wide = wide_dtype(str(variable.dtype), found, takes_wide)
    require_like(owner, variable.name, (shape, found), (expected, wide))


def wide_dtype(dtype: str, found: str, takes_wide: bool) -> str:
    """Return the dtype that a gradient must have.

    It is the variable's, or float32 if ``takes_wide`` allows that for float16.
    """
    is_wide = (dtype, found) == ("float16", "float32")
    return found if takes_wide and is_wide else dtype


def check_counter(global_step: Any, owner: str) -> None:
    """Raise unless ``global_step`` is None or a 0-d integer variable."""
    if global_step is None:
        return
    if not isinstance(global_step, Variable):
        raise refusals.NOT_A_COUNTER.error(owner=owner, got=type(global_step).__name__)
    if global_step.shape or not np.issubdtype(global_step.dtype, np.integer):
        shape, dtype = list(global_step.shape), global_step.dtype
        raise refusals.NOT_A_COUNTER.error(
            owner=owner, got=f"{with_article(str(dtype))} variable of shape {shape}"
        )


def advance(global_step: Variable | None) -> None:
    """Add one to the step counter, if there is one."""
    if global_step is not None:
        global_step.value = global_step.value + global_step.dtype.type(1)
