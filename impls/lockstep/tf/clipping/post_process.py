"""OpenSeq2Seq's post-processing of gradients (TensorFlow)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.nouns import TF
from lockstep.messages.step.summaries import Recorder
from lockstep.tf.replicas import Pairs
from lockstep.tf.shared.clipping.post_process import (
    OWNER,
    Processing,
    plan,
    process,
)
from lockstep.tf.shared.step.summaries import Entry
from lockstep.tf.wrapper import as_gradient, as_variable

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
) -> Pairs:
    """...

    Args:
        recorder: receives the summaries. None: in a graph ``tf.compat.v1.summary``;
            otherwise ``tf.summary``, if there is a default writer.

    Example:
        >>> w = tf.Variable([3.0, 4.0])
        >>> pairs = [(tf.constant([60.0, 80.0]), w)]
        >>> larc = {"larc_eta": 0.01}
        >>> processed = post_process_gradients(pairs, [], 0.1, None, larc)
        >>> processed[0][0].numpy().round(6).tolist()  # r = 0.01 * 5 / (0.1 * 100)
        [0.30000001192092896, 0.4000000059604645]
    """
    to_do = plan(summaries, clip_gradients, larc_params, recorder, strict)
    return post_process(to_do, grads_and_vars, lr)


def post_process(
    to_do: Processing, grads_and_vars: Iterable[tuple[Any, Any]], lr: float | tf.Tensor
) -> Pairs:
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
        variable = as_variable(entry)
        if not isinstance(variable, tf.Variable):
            raise base_refusals.NOT_A_VARIABLE.error(
                owner=owner, nouns=TF, got=type(entry).__name__
            )
        name = str(variable.name)
        entries.append(Entry(as_gradient(gradient, name, owner), variable, name))
    return entries, [variable for _, variable in pairs]
