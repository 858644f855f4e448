"""OpenSeq2Seq's post-processing of gradients: clip, then LARC, and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.keras3.base.gradients import Gradient
from lockstep.keras3.clipping.clip_by_norm import as_entries
from lockstep.messages.step.summaries import Recorder
from lockstep.tf.shared.clipping.post_process import OWNER, plan, process

__all__ = ["post_process_gradients"]


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    strict: bool = False,
) -> list[tuple[Gradient, Any]]:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    LARC multiplies each gradient g of a variable w by a ratio r, norms in float32:

    clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
    scale: r = max(eta |w| / (|g| + epsilon), min_update)

    r is 1 where a norm is 0, or lr in mode "clip", as long as both norms are finite.
    Scaled gradients have to be unscaled first: the weights have no such scale.

    Args:
        grads_and_vars: iterable of (gradient or None, variable); for LARC a gradient
            has its variable's shape and dtype.
        summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
        lr: the learning rate of this step, 0-d, >= 0 and finite; a tensor is not
            checked.
        clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
        larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
            ``min_update`` and ``epsilon`` (1e-7), all float; None for no LARC.
        recorder: is told the summaries; None: ``tf.summary``, if there is a default
            writer. Tags hold the variable's path.
        strict: as the original: a zero weight gets ``min_update``, lr = 0 with it NaN,
            sparse gradients become dense, an absent one is an error, and so is a rate
            in a tensor that is not float32.

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
        >>> w = keras.Variable([3.0, 4.0])
        >>> pairs = [(keras.ops.array([60.0, 80.0]), w)]
        >>> larc = {"larc_eta": 0.01}
        >>> processed = post_process_gradients(pairs, [], 0.1, None, larc)
        >>> processed[0][0].numpy().round(6).tolist()  # r = 0.01 * 5 / (0.1 * 100)
        [0.30000001192092896, 0.4000000059604645]
    """
    to_do = plan(summaries, clip_gradients, larc_params, recorder, strict)
    entries, variables = as_entries(grads_and_vars, OWNER)
    return list(zip(process(to_do, entries, lr), variables, strict=True))
