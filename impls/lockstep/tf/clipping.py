"""OpenSeq2Seq's clipping by the global norm, and LARC, for TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.tf.shared import clipping as shared
from lockstep.tf.shared.clipping import Recorder
from lockstep.tf.shared.gradients import Gradient
from lockstep.tf.wrapper import Pairs


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor | None = None,
    name: str | None = None,
    strict: bool = False,
) -> tuple[list[Gradient], tf.Tensor]:
    """Scale a list of tensors so that their global norm is at most ``clip_norm``.

    s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s. An infinite
    norm makes finite elements 0 and the others NaN; a norm of NaN makes all NaN.

    Args:
        t_list: tensors of any shape, ``tf.IndexedSlices`` or None.
        clip_norm: the largest norm that is not clipped, > 0 and finite; not checked if
            it is a tensor.
        use_norm: the norm, 0-d; None: the norm of ``t_list``, duplicate rows summed.
        name: the name scope of the operations.
        strict: as the original: ``use_norm`` is required, a scalar comes out with
            shape [1], iterators are refused, ``clip_norm`` is not checked.

    Returns:
        The clipped tensors, all in float32, and the norm: float32, 0-d.

    Raises:
        NotASequenceError: a TypeError; ``t_list`` is a tensor, a string or the like.
        MalformedPairsError: a TypeError; an entry is no tensor.
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
            ``use_norm`` a number < 0.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``; that name is exported
    too.

    Example:
        >>> clipped, norm = clip_by_global_norm([tf.constant([3.0, 4.0]), None], 2.5)
        >>> clipped[0].numpy().tolist(), clipped[1], float(norm)
        ([1.5, 2.0], None, 5.0)
    """
    if strict:
        from lockstep.tf import strict as originals

        return originals.clip_by_global_norm(t_list, clip_norm, use_norm, name)
    return shared.clip_by_global_norm(t_list, clip_norm, use_norm, name)


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]],
    clip_gradients: float | tf.Tensor,
    strict: bool = False,
) -> Pairs:
    """Clip gradients by their global norm, each in its variable's dtype afterwards.

    Norm and products are computed in float32, as by :func:`clip_by_global_norm`.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        clip_gradients: the largest global norm that is not clipped, > 0 and finite;
            tensors are not checked.
        strict: as the original: duplicate rows are not summed in the norm, a scalar
            comes out with shape [1], an absent gradient is an error.

    Returns:
        The pairs, with clipped gradients.

    Raises:
        OutOfRangeError: a ValueError; ``clip_gradients`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``; that name is
    exported too.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = clip_gradients_by_norm([(tf.constant([3.0, 4.0]), w)], 2.5)
        >>> pairs[0][0].numpy().tolist()
        [1.5, 2.0]
    """
    if strict:
        from lockstep.tf import strict as originals

        return originals.clip_gradients_by_norm(grads_and_vars, clip_gradients)
    return shared.clip_gradients_by_norm(grads_and_vars, clip_gradients)


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    strict: bool = False,
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
        recorder: receives the summaries. None: in a graph ``tf.compat.v1.summary``;
            otherwise ``tf.summary``, if there is a default writer.
        strict: as the original: the ratio of a zero weight is ``min_update``, or NaN if
            lr is 0 too. Sparse gradients become dense. Absent gradients are an error,
            and so is a rate in a tensor that is not float32.

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
        >>> w = tf.Variable([3.0, 4.0])
        >>> pairs = [(tf.constant([60.0, 80.0]), w)]
        >>> larc = {"larc_eta": 0.01}
        >>> processed = post_process_gradients(pairs, [], 0.1, None, larc)
        >>> processed[0][0].numpy().round(6).tolist()  # r = 0.01 * 5 / (0.1 * 100)
        [0.30000001192092896, 0.4000000059604645]
    """
    arguments = grads_and_vars, summaries, lr, clip_gradients, larc_params, recorder
    if strict:
        from lockstep.tf import strict as originals

        return originals.post_process_gradients(*arguments)
    return shared.post_process_gradients(*arguments)
