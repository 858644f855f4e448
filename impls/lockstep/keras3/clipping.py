"""OpenSeq2Seq's clipping by the global norm, and LARC, for Keras' gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.keras3.gradients import (
    Pairs,
    as_gradient,
    as_pairs,
    name_of,
    require_variable,
    value_of,
)
from lockstep.tf.shared import clipping as shared
from lockstep.tf.shared.clipping import Entry, Recorder, host_recorder


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
        >>> weight = keras.Variable([0.0, 0.0])
        >>> pairs = clip_gradients_by_norm([(keras.ops.array([3.0, 4.0]), weight)], 2.5)
        >>> pairs[0][0].numpy().tolist()
        [1.5, 2.0]
    """
    shared.check_limit(shared.BY_NORM, "clip_gradients", clip_gradients)
    process = shared.Processing(shared.BY_NORM, (), clip_gradients)
    return processed(process, grads_and_vars, None, None)


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
) -> Pairs:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    LARC multiplies each gradient g of a variable w by a ratio r, norms in float32:

    clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
    scale: r = max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is
    0. Gradients of a scaled loss must be unscaled first, because the weights are not
    scaled.

    Args:
        grads_and_vars: iterable of (gradient or None, variable); for LARC a gradient
            has its variable's shape and dtype.
        summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
        lr: the learning rate of this step, 0-d, >= 0 and finite; tensors are not
            checked.
        clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
        larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
            ``min_update`` and ``epsilon`` (1e-7), all float; None for no LARC.
        recorder: receives the summaries; None: ``tf.summary``, if there is a default
            writer. Tags contain the variable's path.

    Returns:
        The pairs, with processed gradients.

    Raises:
        OutOfRangeError, UnknownNameError: ValueErrors; a parameter or a summary that
            is missing, unknown, of another type or out of range.
        ShapeError: a ValueError; a gradient has another shape than its variable.
        DtypeError: a TypeError; LARC with a gradient of another dtype, or a recorder
            that is none.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.

    Origin: OpenSeq2Seq (8681d381ed40), ``post_process_gradients``; You, Gitman,
    Ginsburg: Large Batch Training of Convolutional Networks, 2017.

    Example:
        >>> weight = keras.Variable([3.0, 4.0])
        >>> pairs = [(keras.ops.array([48.0, 64.0]), weight)]
        >>> parameters = {"larc_eta": 0.0625}
        >>> result = post_process_gradients(pairs, [], 0.125, None, parameters)
        >>> result[0][0].numpy().tolist()  # r = 0.0625 * 5 / (0.125 * 80) = 0.03125
        [1.5, 2.0]
    """
    process = shared.Processing(shared.OWNER, summaries, clip_gradients, larc_params)
    recorder = host_recorder() if recorder is None else recorder
    return processed(process, grads_and_vars, lr, recorder)


def processed(
    process: shared.Processing,
    grads_and_vars: Iterable[Any],
    lr: Any,
    recorder: Recorder | None,
) -> Pairs:
    """Return processed pairs; the recorder gets the requested summaries."""
    entries, variables = as_entries(grads_and_vars, process.owner)
    return list(zip(process(entries, lr, recorder), variables, strict=True))


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
