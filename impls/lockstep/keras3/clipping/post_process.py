"""OpenSeq2Seq's post-processing of gradients (Keras 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import (
    Gradient,
    as_gradient,
    name_of,
    require_variable,
    value_of,
)
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.step.summaries import Recorder
from lockstep.tf.shared.clipping.post_process import (
    OWNER,
    Processing,
    plan,
    process,
)
from lockstep.tf.shared.step.summaries import Entry

__all__ = ["as_entries", "post_process", "post_process_gradients"]


@tf.autograph.experimental.do_not_convert
@documented
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    strict: bool = False,
) -> list[tuple[Gradient, Any]]:
    """...

    Args:
        recorder: receives the summaries; None: ``tf.summary``, if there is a default
            writer. Tags contain the variable's path.

    Example:
        >>> weight = keras.Variable([3.0, 4.0])
        >>> pairs = [(keras.ops.array([48.0, 64.0]), weight)]
        >>> parameters = {"larc_eta": 0.0625}
        >>> result = post_process_gradients(pairs, [], 0.125, None, parameters)
        >>> result[0][0].numpy().tolist()  # r = 0.0625 * 5 / (0.125 * 80) = 0.03125
        [1.5, 2.0]
    """
    to_do = plan(summaries, clip_gradients, larc_params, recorder, strict)
    return post_process(to_do, grads_and_vars, lr)


def post_process(
    to_do: Processing, grads_and_vars: Iterable[tuple[Any, Any]], lr: float | tf.Tensor
) -> list[tuple[Gradient, Any]]:
    """Implement :func:`post_process_gradients`; ``to_do`` is already checked."""
    entries, variables = as_entries(grads_and_vars, OWNER)
    return list(zip(process(to_do, entries, lr), variables, strict=True))


def as_entries(
    grads_and_vars: Iterable[Any], owner: str
) -> tuple[list[Entry], list[Any]]:
    """Return the pairs as entries for the shared functions, and their variables."""
    pairs = as_pairs(grads_and_vars, owner)
    entries = []
    for gradient, entry in pairs:
        variable = require_variable(entry, owner)
        gradient = as_gradient(gradient, variable, owner)
        entries.append(Entry(gradient, value_of(variable), name_of(variable)))
    return entries, [variable for _, variable in pairs]
