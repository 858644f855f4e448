"""The training step: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "optimize_loss": """\
Return an object that takes one step of training each time it is called.

rate = learning_rate_decay_fn(steps applied so far); g = gradients of the loss,
times 1 / scale; with ``iter_size`` > 1, g = sum of g / iter_size over the
micro-batches. g is averaged over the ranks. With "mixed", the step is skipped if g is
not finite. g is clipped or scaled by LARC. Then the optimizer updates the
{variable}s, and the step is counted.

Args:
    optimizer: a name of ``OPTIMIZER_CLS_NAMES``; or a class or a function that
        returns an optimizer, called with ``learning_rate=`` and ``optimizer_params``;
        or an optimizer, without ``optimizer_params``.
    optimizer_params: the optimizer's arguments by name. "AdamW" by name decays by
        rate x ``weight_decay``.
    learning_rate_decay_fn: a function that returns the rate. Each step calls it with
        the number of steps applied so far, int64 and 0-d; see ``lr_policies``.
    dtype: float32, float16 or "mixed": half-precision {variable}s with float32
        masters, and the loss scaled.
    clip_gradients: the largest global norm, > 0. Not together with LARC.
    summaries: names of ``OPTIMIZER_SUMMARIES``. None stands for ``learning_rate``,
        ``global_gradient_norm`` and ``loss_scale``.
    larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
    loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
    loss_scaling_params: parameters of the named scaler; refused without one.
    on_horovod: average over the ranks of ``reduction``.
    iter_size: micro-batches in a step. A gradient is present in all of them or in
        none, and either sparse or dense.
    skip_update_ph: whether to accumulate without an update: a bool, a 0-d tensor, or
        a function that is called in each step. None: each ``iter_size``-th call
        updates.
    strict: as in OpenSeq2Seq, quirks included: ``optimizer_params`` of "AdamW" are
        changed in place; ``iter_size`` is ignored without ``on_horovod`` and needs
        ``skip_update_ph`` with it, then absent and sparse gradients are refused;
        clipping comes before the finite check; an absent gradient is refused with the
        default summaries; a named scaler is created even without "mixed".

Raises:
    ValueError: an unknown name (the nearest is given), a value out of its range,
        nothing to train.
    TypeError: an argument that the optimizer needs or does not have; a
        ``learning_rate_decay_fn`` that cannot be called with the steps.
    KeyError: "AdamW" without ``weight_decay``.
    RuntimeError: ``loss`` is no function.
    AttributeError and ValueError in one: clipping and LARC together.

Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.
""",
    "reduce_gradients": """\
Return each gradient's mean over the ranks.

g = sum over ranks of (g / ranks). A gradient that is absent on some ranks counts as
zeros there. A gradient that is absent on all ranks stays absent. A sparse gradient
becomes dense.

Args:
    grads_and_vars: iterable of (gradient or None, {variable}), the same {variable}s in
        the same order on every rank.
    on_horovod: must be True; the original raises otherwise.
    model: as in OpenSeq2Seq; without effect.
    reduction: an object with ``size``, ``any`` and ``all_reduce``, as in
        :class:`lockstep.messages.step.reduction.Reduction`. None: this rank is the
        only one.

Returns:
    The pairs, with averaged gradients; unchanged for a single rank.

Raises:
    NotReducedError: a NotImplementedError; ``on_horovod`` is False.
    OutOfRangeError: a ValueError; ``on_horovod`` is no bool, or ``reduction`` lacks a
        method.
    MalformedPairsError, NoGradientsError: not pairs, or an empty list.
""",
    "get_regularization_loss": """\
Return the sum of the losses in float32, each cast first: 0-d.

Args:
    scope: a regular expression that must match at the start of a loss's name.
    name: as in TensorFlow; without effect.

Raises:
    UnsupportedError: a ValueError; no ``losses``, or a scope without names.
    MalformedPairsError: a TypeError; ``losses`` is no collection of losses.
    OutOfRangeError: a ValueError; ``scope`` is no regular expression, or a loss is
        not 0-d.

Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``.
""",
}
"""Name of a class or function -> its shared docstring text."""
