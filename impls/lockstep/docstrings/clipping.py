"""Clipping and LARC: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "post_process_gradients": """\
Clip gradients by their global norm if asked to, then scale them by LARC.

LARC multiplies each gradient g of a variable w by a ratio r, norms in float32:

clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
scale: r = max(eta |w| / (|g| + epsilon), min_update)

If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is 0.
Gradients of a scaled loss must be unscaled first, because the weights are not scaled.

Args:
    grads_and_vars: iterable of (gradient or None, {variable}); for LARC a gradient
        has its {variable}'s shape and dtype.
    summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
    lr: the learning rate of this step, 0-d, >= 0 and finite; tensors are not
        checked.
    clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
    larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
        ``min_update`` and ``epsilon`` (1e-7), all float; None for no LARC.
    strict: as the original: the ratio of a zero weight is ``min_update``, or NaN if
        lr is 0 too. Sparse gradients become dense. Absent gradients are an error, and
        so is a rate in a tensor that is not float32.

Returns:
    The pairs, with processed gradients.

Raises:
    OutOfRangeError, UnknownNameError: ValueErrors; a parameter or a summary that
        is missing, unknown, of another type or out of range.
    ShapeError: a ValueError; a gradient has another shape than its {variable}.
    DtypeError: a TypeError; LARC with a gradient of another dtype, or a recorder
        that is none.
    MalformedPairsError: a TypeError; not pairs of a gradient and a {variable}.
    NoGradientsError: a ValueError; the list is empty.

Origin: OpenSeq2Seq (8681d381ed40), ``post_process_gradients``; You, Gitman,
Ginsburg: Large Batch Training of Convolutional Networks, 2017.
""",
    "VariableClippingOptimizer": """\
After each update, hold the norm of a {variable}'s rows to a limit.

For each {variable} w that is listed and has a gradient: after ``opt`` has updated it,
n = sqrt(sum over its axes of w^2), and where n > max_norm, w = w max_norm / n. Rows
with a norm up to max_norm keep their bits. After a sparse gradient, only its rows are
read and written, even if ``opt`` updates others, unless the norm is over axis 0.

Args:
    opt: any optimizer of this backend, a wrapper included.
    vars_to_clip_dims: {variable} -> list or tuple of axes over which the norm is
        computed: [1] for the rows of a matrix, [] for its elements. A {variable} that
        is not listed is never clipped.
    max_norm: the largest norm that is not clipped, > 0 and finite; or a mapping from
        the keys of ``vars_to_clip_dims`` to such norms.
    use_locking: without effect.
    colocate_clip_ops_with_vars: without effect.
    name: the name that ``get_name`` returns.
    strict: reproduce ``tf.contrib.opt.VariableClippingOptimizer`` (1.15) with its
        quirks: rows below the norm change by rounding, a row listed k times is
        corrected k times, a negative axis for dimension 0 covers only the listed
        rows, float16 squares overflow, pairs from a one-shot iterator are not
        clipped, ``max_norm`` is not checked, ``variables()`` is empty.

Raises:
    NotAnOptimizerError: a TypeError; ``opt`` is no optimizer of this backend.
    AxesError: a TypeError; the axes of a {variable} are no list of integers.
    OutOfRangeError: a ValueError; ``max_norm``, an empty name, an axis that a
        {variable} does not have.

Origin: TensorFlow 1.15, ``tf.contrib.opt.VariableClippingOptimizer``.
""",
    "clip_gradients_by_global_norm": """\
Scale all gradients so that their global norm is at most ``clip_norm``.

norm = sqrt(sum g^2) over the gradients that are present and not all zero;
s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
finite makes every gradient NaN.

Args:
    gradients_variables: iterable of (gradient or None, {variable}), dense or sparse.
    clip_norm: the largest global norm that is not clipped, > 0 and finite.
    error_if_nonfinite: raise instead of returning NaN.
    strict: as the original: the norm has the gradients' dtype (in float16 it
        overflows), sparse gradients and mixed dtypes are refused, ``clip_norm`` is
        not checked.

Returns:
    The pairs with clipped gradients, and the norm: 0-d, float32 by default.

Raises:
    OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
    MalformedPairsError: a TypeError; not pairs of a gradient and a {variable}.
    NoGradientsError: a ValueError; the list is empty.
    ShapeError: a ValueError; a gradient has another shape than its {variable}.
    NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.
    UnsupportedError, DtypeError: strict and sparse, strict and mixed dtypes.

Origin: TensorFlow 1.15, ``tf.contrib.opt.clip_gradients_by_global_norm``.
""",
    "clip_gradients_by_norm": """\
Clip gradients by their global norm, each in its {variable}'s dtype afterwards.

Norm and products are computed in float32, as by :func:`clip_by_global_norm`.

Args:
    grads_and_vars: iterable of (gradient or None, {variable}).
    clip_gradients: the largest global norm that is not clipped, > 0 and finite;
        tensors are not checked.
    strict: as the original: duplicate rows are not summed in the norm, a scalar
        comes out with shape [1], an absent gradient is an error.

Returns:
    The pairs, with clipped gradients.

Raises:
    OutOfRangeError: a ValueError; ``clip_gradients`` is not a finite number > 0.
    MalformedPairsError: a TypeError; not pairs of a gradient and a {variable}.
    NoGradientsError: a ValueError; the list is empty.
    ShapeError: a ValueError; a gradient has another shape than its {variable}.

Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``.
""",
    "clip_by_global_norm": """\
Scale a list of tensors so that their global norm is at most ``clip_norm``.

s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s. An infinite
norm makes finite elements 0 and the others NaN; a norm of NaN makes all NaN.

Args:
    clip_norm: the largest norm that is not clipped, > 0 and finite.
    use_norm: the norm, 0-d; None: the norm of ``t_list``, duplicate rows summed.
    name: as in TensorFlow; without effect.
    strict: as the original: ``use_norm`` is required, a scalar comes out with
        shape [1], iterators are refused, ``clip_norm`` is not checked.

Raises:
    NotASequenceError: a TypeError; ``t_list`` is a tensor, a string or the like.
    MalformedPairsError: a TypeError; an entry is no tensor.
    OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
        ``use_norm`` a number < 0.

Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``.
""",
}
"""Name of a class or function -> its shared docstring text."""
