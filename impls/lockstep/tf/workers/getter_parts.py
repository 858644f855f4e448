"""The arguments of AGN's getter, and the variables of TensorFlow's getters."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.messages import tf as tf_host
from lockstep.messages.workers import getter as agn_getter
from lockstep.messages.workers import refusals
from lockstep.tf.base.hooks import is_reference
from lockstep.tf.base.pairs import as_variable, name_of

__all__ = ["entries_of", "options_beside", "parts_of", "refuse_race", "zeros_like"]

TAKEN = "a model, variables or pairs (name, variable)"


def entries_of(given: Any) -> list[tuple[str | None, Any]]:
    """Return pairs of a name, or None without one, and a variable.

    Raises:
        GetterError: a TypeError; no variables, or a model that is not built.
    """
    if getattr(given, "built", True) is False:
        raise refusals.NOT_BUILT.error(got=type(given).__name__)
    entries = getattr(given, "trainable_variables", given)
    return agn_getter.read_entries(entries, is_variable, TAKEN)


def is_variable(found: Any) -> bool:
    """Whether this is a variable, also of Keras, or the ``ref()`` of one."""
    return isinstance(as_variable(found), tf.Variable)


def parts_of(variable: Any) -> list[Any]:
    """Return the parts of a partitioned variable, or the variable alone."""
    return [variable] if isinstance(variable, tf.Variable) else list(variable)


def options_beside(
    kwargs: dict[str, Any], collection: str, regularized: bool
) -> dict[str, Any]:
    """Return the options of ``get_variable`` for an additional variable.

    ``regularized``: whether the regularizer applies to it too.
    """
    regularizer = kwargs.get("regularizer") if regularized else None
    own = {"trainable": False, "collections": [collection]}
    return {**kwargs, **own, "regularizer": regularizer}


def zeros_like(variable: Any) -> dict[str, Any]:
    """Return the options of ``get_variable`` for zeros like a variable."""
    return {
        "initializer": tf.zeros_initializer(),
        "shape": variable.get_shape(),
        "dtype": variable.dtype.base_dtype,
    }


def refuse_race(own: tf.Variable, shared: tf.Variable) -> None:
    """Raise for a reference variable whose shared variable is in another process.

    An update there may read values while another worker writes them.
    """
    if not is_reference(shared) or not shared.device:
        return
    places = [tf.DeviceSpec.from_string(v.device) for v in (own, shared)]
    processes = [(place.job, place.task) for place in places]
    if processes[1][0] is not None and processes[0] != processes[1]:
        raise tf_host.RACING_REFERENCE.error(name=name_of(own), device=shared.device)
