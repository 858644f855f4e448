"""Clipping, LARC and summaries, as in OpenSeq2Seq (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.messages.clipping import larc as words
from lockstep.messages.clipping import refusals
from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.step.summaries import (
    CLIPPED_NORM,
    Recorder,
    Summaries,
    check_recorder,
    check_summaries,
)
from lockstep.pytorch.base.gradients import (
    Pairs,
    check_gradient,
    dtype_name,
    is_alike,
    refuse_sharded,
)
from lockstep.pytorch.base.summaries import record_norm, record_pairs, record_ratios
from lockstep.pytorch.clipping import larc
from lockstep.pytorch.clipping.clip_by_norm import (
    as_parameter_pairs,
    clip_pairs,
    require_present,
    require_shapes,
)
from lockstep.pytorch.tensors.devices import moved
from lockstep.pytorch.tensors.foreach import share_elements
from lockstep.quirks import Quirks, quirks_of

__all__ = [
    "OWNER",
    "apply_larc",
    "own_pairs",
    "post_process",
    "post_process_gradients",
]

OWNER = "post_process_gradients"
GLOBAL_NORM = "global_gradient_norm"

Rate = Tensor | float | Sequence[float]


@torch.no_grad()
@documented
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    summaries: Iterable[str] | None,
    lr: Rate,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    names: Iterable[str] | None = None,
    in_place: bool = False,
    strict: bool = False,
) -> Pairs:
    """...

    Args:
        lr: the learning rate of this step: a number or a 0-d tensor, or one rate for
            each pair if groups have different rates. Numbers must be
            finite and >= 0. A tensor is not checked.
        recorder: records the summaries, for example a :class:`TensorBoardRecorder`.
            Without a recorder no summary is computed.
        names: the names of the parameters, for the tags. The default is the position.
        in_place: overwrite the gradients if their dtype allows it. This needs less
            memory and is faster. Gradients that share memory, as
            ``torch.autograd.grad`` may return them, are copied in any case.

    Returns:
        The pairs with processed gradients. There is no host sync unless a gradient is
        sparse.

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
    policy = None if larc_params is None else words.larc_policy(larc_params, strict)
    quirks = quirks_of(strict)
    pairs = own_pairs(grads_and_vars, quirks, in_place)
    # Without a recorder, names are only checked for their number.
    needs_no_names = names is None and recorder is None
    named = [] if needs_no_names else names_of(pairs, names)
    option = "strict=True" if strict else "a recorder"
    if strict or recorder is not None:
        refuse_sharded(OWNER, [gradient for gradient, _ in pairs], option)
    return post_process(
        pairs, asked, named, lr, clip_gradients, policy, quirks, in_place
    )


@torch.no_grad()
def post_process(
    pairs: Pairs,
    asked: Summaries,
    names: list[str],
    lr: Rate,
    clip_gradients: float | None,
    policy: LarcPolicy | None,
    quirks: Quirks,
    in_place: bool,
    total: Tensor | None = None,
) -> Pairs:
    """Process as :func:`post_process_gradients` does, with checked arguments.

    ``in_place`` needs gradients that share no memory. ``total`` is the global norm, if
    it is already known.
    """
    rate = None if policy is None else as_rate(lr, quirks, pairs)
    if quirks.clip_absent and (policy or GLOBAL_NORM in asked.names):
        require_present(OWNER, pairs)
    records, clips = asked.recorder is not None, clip_gradients is not None
    if records:
        record_norm(asked, GLOBAL_NORM, pairs, quirks)
    if clips:
        pairs = clip_pairs(pairs, clip_gradients, quirks, in_place, total)
    if records:
        record_pairs(asked, pairs, names)
    if records and clips:
        record_norm(asked, CLIPPED_NORM, pairs, quirks)
    if policy is None or rate is None:
        return pairs
    recording = (asked, names) if records else None
    if quirks.larc_sparse:
        pairs = as_original(pairs)
    return apply_larc(policy, pairs, rate, in_place, recording)


def own_pairs(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    quirks: Quirks,
    in_place: bool,
) -> Pairs:
    """Check a user's pairs and return them; copy gradients that share memory."""
    pairs = as_parameter_pairs(grads_and_vars, OWNER)
    if not quirks.clip_limit:
        require_shapes(pairs, OWNER)
    if not in_place or not share_elements([g for g, _ in pairs if g is not None]):
        return pairs
    return [(None if g is None else g.clone(), p) for g, p in pairs]


def apply_larc(
    policy: LarcPolicy,
    pairs: Pairs,
    rate: Tensor,
    in_place: bool = False,
    recording: tuple[Summaries, list[str]] | None = None,
) -> Pairs:
    """Multiply each gradient by its ratio; None stays None.

    ``recording``: the summaries that record the ratios, and the parameters' names.
    """
    positions = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
    gradients: list[Any] = [pairs[k][0] for k in positions]
    parameters = [pairs[k][1] for k in positions]
    if not positions:
        return pairs
    require_fitting(gradients, parameters, positions)
    norms_of = larc.tensor_norms if policy.guarded else larc.norms_as_original
    weight, gradient = norms_of([*parameters, *gradients]).tensor_split(2)
    raw = larc.raw_ratio(policy, rate, weight, gradient)
    ratio = larc.larc_ratio(policy, raw)
    if recording is not None:
        asked, names = recording
        present = [names[k] for k in positions]
        record_ratios(asked, policy, present, (raw, ratio, rate))
    if in_place:
        larc.scale_in_place(gradients, ratio)
    scaled = iter(gradients if in_place else larc.scale_by_ratios(gradients, ratio))
    return [(None if g is None else next(scaled), p) for g, p in pairs]


def as_original(pairs: Pairs) -> Pairs:
    """Return pairs with dense gradients."""
    return [(g if g is None or not g.is_sparse else g.to_dense(), p) for g, p in pairs]


def require_fitting(
    gradients: Sequence[Tensor], parameters: Sequence[Tensor], positions: Sequence[int]
) -> None:
    """Raise unless each gradient has the shape, dtype and device of its parameter.

    ``positions``: the positions of the pairs, for messages. All pairs are compared
    before the first mismatch is described.
    """
    fit = list(map(is_alike, gradients, parameters))
    if not all(fit):
        k = fit.index(False)
        check_gradient(gradients[k], parameters[k], f"pair {positions[k]}", words.LARC)


def as_rate(lr: Any, quirks: Quirks, pairs: Pairs) -> Tensor:
    """Return the learning rate in float32, 0-d or one for each gradient: [n]."""
    if not quirks.clip_limit:
        for rate in lr if isinstance(lr, list | tuple) else [lr]:
            words.check_rate(rate)
    if isinstance(lr, Tensor):
        if quirks.clip_limit:
            words.check_rate_dtype(dtype_name(lr))
        rates = lr.detach().float()
    elif isinstance(lr, Real) and not isinstance(lr, bool):
        device = pairs[0][1].device
        return torch.full((), float(lr), dtype=torch.float32, device=device)
    elif isinstance(lr, list | tuple) and all(isinstance(r, Real) for r in lr):
        rates = torch.tensor(lr, dtype=torch.float32)
    else:
        raise words.bad_rate(repr(lr), expected_rate(len(pairs)))
    if rates.shape not in ((), (len(pairs),)):
        got = f"shape {list(rates.shape)}"
        raise words.bad_rate(got, expected_rate(len(pairs)))
    positions = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
    if rates.dim() and len(positions) < len(pairs):
        rates = torch.stack([rates[k] for k in positions]) if positions else rates[:0]
    return moved(rates, pairs[0][1].device)


def expected_rate(count: int) -> str:
    """Return the part of an error sentence that describes valid rates."""
    return f"a number or a 0-d tensor, or {count} of them, one for each pair"


def names_of(pairs: Pairs, names: Iterable[str] | None) -> list[str]:
    """Return the names of the parameters for tags."""
    if names is None:
        return [f"parameter_{k}" for k in range(len(pairs))]
    named = [str(name) for name in names]
    if len(named) != len(pairs):
        raise refusals.BAD_NAMES.error(expected=len(pairs), got=len(named))
    return named
