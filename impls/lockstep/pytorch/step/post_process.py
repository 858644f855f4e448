"""Clipping, LARC and summaries, as in OpenSeq2Seq (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.errors import OutOfRangeError
from lockstep.messages.step.summaries import (
    CLIPPED_NORM,
    Recorder,
    Summaries,
    check_recorder,
    check_summaries,
)
from lockstep.pytorch.base.summaries import record_norm, record_pairs, record_ratios
from lockstep.pytorch.clipping import clip_pairs, parameter_pairs
from lockstep.pytorch.foreach import share_elements
from lockstep.pytorch.gradients import Pairs, refuse_sharded
from lockstep.pytorch.larc import (
    LarcPolicy,
    larc_policy,
    larc_rate,
    larc_ratios,
    require_alike,
    scale_by_ratios,
)

OWNER = "post_process_gradients"
GLOBAL_NORM = "global_gradient_norm"

Rate = Tensor | float | Sequence[float]


@torch.no_grad()
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    summaries: Iterable[str] | None,
    lr: Rate,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    names: Iterable[str] | None = None,
    in_place: bool = False,
) -> Pairs:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    LARC multiplies each gradient g of a parameter w by a ratio r, norms in float32:

    clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
    scale: r = max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is
    0. Gradients of a scaled loss must be unscaled first, because the weights are not
    scaled.

    Args:
        grads_and_vars: iterable of (gradient or None, parameter); for LARC a gradient
            has its parameter's shape, dtype and device.
        summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
        lr: the learning rate of this step: a number or a 0-d tensor, or one rate for
            each pair if groups have different rates. Numbers must be finite and >= 0. A
            tensor is not checked.
        clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
        larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
            ``min_update`` and ``epsilon`` (1e-7); None for no LARC.
        recorder: records the summaries, for example a :class:`TensorBoardRecorder`.
            Without a recorder no summary is computed.
        names: the names of the parameters, for the tags. The default is the position.
        in_place: overwrite the gradients if their dtype allows it. This needs less
            memory and is faster. Gradients that share memory, as
            ``torch.autograd.grad`` may return them, are copied in any case.

    Returns:
        The pairs with processed gradients. There is no host sync unless a gradient is
        sparse.

    Raises:
        OutOfRangeError, UnknownNameError: ValueErrors; a parameter or a summary that is
            missing, unknown, of another type or out of range.
        ShapeError: a ValueError; a gradient has another shape than its parameter.
        DtypeError: a TypeError; LARC with a gradient of another dtype, or a recorder
            that is none.
        MalformedPairsError: a TypeError; not pairs of a gradient and a parameter.
        NoGradientsError: a ValueError; the list is empty.

    Origin: OpenSeq2Seq (8681d381ed40), ``post_process_gradients``; You, Gitman,
    Ginsburg: Large Batch Training of Convolutional Networks, 2017.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> pairs = [(torch.tensor([12.0, 16.0]), weight)]
        >>> larc = {"larc_eta": 0.015625}
        >>> processed = post_process_gradients(pairs, [], 0.125, None, larc)
        >>> processed[0][0].tolist()  # r = 0.015625 * 5 / (0.125 * 20) = 0.03125
        [0.375, 0.5]
    """
    asked = Summaries(check_summaries(summaries, OWNER), recorder)
    check_recorder(recorder, OWNER)
    policy = None if larc_params is None else larc_policy(larc_params)
    pairs = own_pairs(grads_and_vars, in_place)
    named: list[str] = []
    if names is not None:
        named = [str(name) for name in names]
        if len(named) != len(pairs):
            raise OutOfRangeError(
                f"{OWNER}: names: expected {len(pairs)}, got {len(named)}; "
                "name every parameter, those without a gradient too."
            )
    elif recorder is not None:
        named = [f"parameter_{k}" for k in range(len(pairs))]
    if recorder is not None:
        refuse_sharded(OWNER, [gradient for gradient, _ in pairs], "a recorder")
    return post_process(pairs, asked, named, lr, clip_gradients, policy, in_place)


@torch.no_grad()
def post_process(
    pairs: Pairs,
    asked: Summaries,
    names: list[str],
    lr: Rate,
    clip_gradients: float | None,
    policy: LarcPolicy | None,
    in_place: bool,
    total: Tensor | None = None,
) -> Pairs:
    """Process as :func:`post_process_gradients` does, with checked arguments.

    ``in_place`` needs gradients that share no memory. ``total`` is the global norm, if
    it is already known.
    """
    rate = None if policy is None else larc_rate(lr, pairs)
    records, clips = asked.recorder is not None, clip_gradients is not None
    if records:
        record_norm(asked, GLOBAL_NORM, pairs)
    if clips:
        pairs = clip_pairs(pairs, clip_gradients, in_place, total)
    if records:
        record_pairs(asked, pairs, names)
    if records and clips:
        record_norm(asked, CLIPPED_NORM, pairs)
    if policy is None or rate is None or all([g is None for g, _ in pairs]):
        return pairs
    require_alike(pairs)
    raw, ratios = larc_ratios(policy, pairs, rate)
    if records:
        both = zip(names, pairs, strict=True)
        present = [name for name, (gradient, _) in both if gradient is not None]
        record_ratios(asked, policy, present, (raw, ratios, rate))
    return scale_by_ratios(pairs, ratios, in_place)


def own_pairs(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]], in_place: bool
) -> Pairs:
    """Check a user's pairs and return them; copy gradients that share memory."""
    pairs = parameter_pairs(grads_and_vars, OWNER)
    if not in_place or not share_elements([g for g, _ in pairs if g is not None]):
        return pairs
    return [(None if g is None else g.clone(), p) for g, p in pairs]
