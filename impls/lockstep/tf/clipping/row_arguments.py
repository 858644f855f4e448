"""Checks of row clipping's arguments: axes of variables, and the largest norms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages.clipping import refusals
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.nouns import TF
from lockstep.tf.replicas import name_of
from lockstep.tf.wrapper import as_variable

__all__ = [
    "axes_by_variable",
    "check_max_norm",
    "limits_by_variable",
    "refuse_masters",
    "resolved",
]

Optimizer = tf.compat.v1.train.Optimizer


def check_max_norm(max_norm: Any) -> None:
    """Raise unless ``max_norm``, if its value is known, is a finite number > 0.

    The values of eager tensors and variables are known, those in a graph are not.
    """
    known = max_norm
    if tf.is_tensor(max_norm):
        is_variable = isinstance(max_norm, tf.Variable) and tf.executing_eagerly()
        known = max_norm.numpy() if is_variable else tf.get_static_value(max_norm)
        if known is None:
            return
    words.check_max_norm(known)


def refuse_masters(opt: Optimizer, keys: Iterable[Any]) -> None:
    """Raise for variables that have masters in a wrapper inside ``opt``."""
    trains_master = getattr(opt, "trains_master", None)
    for variable in map(as_variable, keys):
        if trains_master is not None and trains_master(variable):
            raise masters_refusals.CLIPS_OUTSIDE.error(name=name_of(variable))


def axes_by_variable(
    vars_to_clip_dims: Mapping[Any, Sequence[int]], resolve: bool
) -> dict[Any, tuple[int, ...]]:
    """Return ``variable.ref()`` -> axes, copied and checked.

    Args:
        vars_to_clip_dims: the argument of the constructor.
        resolve: convert negative axes; otherwise they remain as they are.
    """
    words.require_mapping(vars_to_clip_dims)
    axes_of: dict[Any, tuple[int, ...]] = {}
    for key, dims in vars_to_clip_dims.items():
        variable = as_variable(key)
        if not isinstance(variable, tf.Variable):
            raise refusals.NOT_A_KEY.error(nouns=TF, got=type(key).__name__)
        axes = words.listed_axes(name_of(variable), dims)
        if variable.ref() in axes_of:
            raise refusals.LISTED_TWICE.error(name=name_of(variable))
        axes_of[variable.ref()] = resolved(variable, axes) if resolve else axes
    return axes_of


def limits_by_variable(
    max_norm: Any, listed: Iterable[Any], unchecked: bool
) -> dict[Any, Any]:
    """Return ``variable.ref()`` -> the largest norm, for the listed variables."""
    names = {reference: name_of(reference.deref()) for reference in listed}
    if not isinstance(max_norm, Mapping):
        if not unchecked:
            check_max_norm(max_norm)
        return dict.fromkeys(names, max_norm)
    norms = {key_among(names, key): norm for key, norm in max_norm.items()}
    limits = words.limits_of(norms, names, unchecked)
    for norm in limits.values():
        check_max_norm(norm)
    return limits


def key_among(listed: Mapping[Any, str], key: Any) -> Any:
    """Return the ``ref()`` of a listed variable, or the name of another variable."""
    variable = as_variable(key)
    if not isinstance(variable, tf.Variable):
        return key
    return variable.ref() if variable.ref() in listed else name_of(variable)


def resolved(variable: tf.Variable, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of a variable with negative ones converted."""
    rank = variable.shape.rank
    if rank is None:
        return axes
    return words.resolved_axes(name_of(variable), axes, rank)
