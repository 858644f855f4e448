"""The variables that a row-clipping wrapper clips, and their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import as_variable, key_of, name_of
from lockstep.messages.clipping import refusals
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.nouns import KERAS3
from lockstep.quirks import Quirks

__all__ = [
    "Axes",
    "Listed",
    "axes_by_variable",
    "by_path",
    "by_variable",
    "limits_of",
    "listed_variables",
    "positions_of",
    "resolved",
]

Axes = tuple[int, ...]
Listed = list[tuple[Any, Axes]]
"""(path or variable, axes); the variable of a path is found by ``build``."""


def listed_variables(
    vars_to_clip_dims: Mapping[Any, Sequence[int]], resolve: bool
) -> Listed:
    """Return (path or variable, axes), copied and checked as far as possible now.

    Args:
        vars_to_clip_dims: the argument of the wrapper.
        resolve: check the axes of the keys that are variables.
    """
    words.require_mapping(vars_to_clip_dims)
    entries: Listed = []
    keys = set()
    for key, dims in vars_to_clip_dims.items():
        variable = as_variable(key)
        if not isinstance(variable, str | keras.Variable | tf.Variable):
            raise refusals.NOT_A_KEY.error(nouns=KERAS3, got=type(key).__name__)
        axes = words.listed_axes(name_of(variable), dims)
        if not isinstance(variable, str):
            if key_of(variable) in keys:
                raise refusals.LISTED_TWICE.error(name=name_of(variable))
            keys.add(key_of(variable))
            if resolve:
                resolved(variable, axes)
        entries.append((variable, axes))
    return entries


def limits_of(
    max_norm: Any, listed: Listed, quirks: Quirks
) -> float | dict[str, float]:
    """Return the norm of all listed variables, or by path; by default checked."""
    if quirks.row_clip_range:
        words.refuse_mapping(max_norm)
        return float(max_norm)
    if not isinstance(max_norm, Mapping):
        words.check_max_norm(max_norm)
        return float(max_norm)
    norms = {name_of(as_variable(key)): norm for key, norm in max_norm.items()}
    words.check_max_norms(norms, [name_of(key) for key, _ in listed])
    return {name: float(norm) for name, norm in norms.items()}


def by_variable(
    max_norm: float | Mapping[str, float],
    listed: Listed,
    variables: Sequence[Any],
    positions: Mapping[str, int],
) -> dict[Any, float]:
    """Return ``key_of(variable)`` -> norm for the listed ones of ``variables``."""
    norms: dict[Any, float] = {}
    for key, _ in listed:
        norm = max_norm if isinstance(max_norm, float) else max_norm[name_of(key)]
        for variable in matching(key, variables, positions):
            norms[key_of(variable)] = norm
    return norms


def resolved(variable: Any, axes: Axes) -> Axes:
    """Return the axes with negative ones converted."""
    return words.resolved_axes(name_of(variable), axes, len(variable.shape))


def axes_by_variable(
    listed: Listed,
    variables: Sequence[Any],
    quirks: Quirks,
    positions: Mapping[str, int],
) -> dict[Any, Axes]:
    """Return ``key_of(variable)`` -> axes for the listed ones of ``variables``.

    Strict: a listed variable that is not in ``variables`` has no effect, and axes are
    not converted. ``positions``: see :func:`with_path`.
    """
    axes_of: dict[Any, Axes] = {}
    for key, axes in listed:
        matches = matching(key, variables, positions)
        if not matches and not quirks.arguments_unchecked:
            raise words.unknown_variable(name_of(key), map(name_of, variables))
        for variable in matches:
            if key_of(variable) in axes_of:
                raise refusals.LISTED_TWICE.error(name=name_of(variable))
            written = quirks.row_clip_axes
            axes_of[key_of(variable)] = axes if written else resolved(variable, axes)
    return axes_of


def matching(
    key: Any, variables: Sequence[Any], positions: Mapping[str, int]
) -> list[Any]:
    """Return the variable for a path or a variable in a list; empty if unknown."""
    if isinstance(key, str):
        matches = with_path(key, variables, positions.get(key))
    else:
        matches = [
            variable for variable in variables if key_of(variable) == key_of(key)
        ]
    if len(matches) > 1:
        raise refusals.SEVERAL_VARIABLES.error(
            name=name_of(key), keys="use variable.value.ref() as keys"
        )
    if not matches and isinstance(key, str):
        raise words.unknown_variable(name_of(key), map(name_of, variables))
    return matches


def with_path(path: str, variables: Sequence[Any], position: int | None) -> list[Any]:
    """Return the variables that ``path`` may refer to.

    While Keras loads a file it creates layers outside of the model, so
    ``model/layer/kernel`` becomes ``layer/kernel``, which may occur several times. The
    order is kept: if several variables match equally, ``position`` decides.
    """
    names = [name_of(variable) for variable in variables]
    alike = [k for k, name in enumerate(names) if same_ending(name, path)]
    places = [k for k in alike if names[k] == path] or alike
    if position in places:
        places = [position]
    return [variables[k] for k in places]


def same_ending(one: str, other: str) -> bool:
    """Whether one path ends with the other, by whole components."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")


def positions_of(
    listed: Listed, variables: Sequence[Any], before: Mapping[str, int]
) -> dict[str, int]:
    """Return path -> position of its variable, for the listed ``variables``."""
    places = {key_of(variable): k for k, variable in enumerate(variables)}
    positions = {}
    for key, _ in listed:
        for variable in matching(key, variables, before):
            positions[name_of(key)] = places[key_of(variable)]
    return positions


def by_path(listed: Listed) -> dict[str, list[int]]:
    """Return path -> axes, as in a configuration; each path must be unique.

    Raises:
        UnsupportedError: two listed variables have the same path.
    """
    axes_of: dict[str, list[int]] = {}
    for key, axes in listed:
        if name_of(key) in axes_of:
            raise refusals.SEVERAL_VARIABLES.error(
                name=name_of(key), keys="use variable.value.ref() as keys"
            )
        axes_of[name_of(key)] = list(axes)
    return axes_of
