"""OpenSeq2Seq's post-processing of gradients: clip, then LARC, and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.base.pairs import require_like
from lockstep.messages.clipping import larc as words
from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.step.summaries import (
    CLIPPED_NORM,
    LARC_CLIP_ON,
    LARC_RATE,
    LARC_UPDATE,
    Recorder,
    Summaries,
    check_recorder,
    check_summaries,
)
from lockstep.quirks import Quirks, quirks_of
from lockstep.reference.base.pairs import Pairs
from lockstep.reference.clipping import larc
from lockstep.reference.clipping.clip_by_global_norm import norm_in_float32
from lockstep.reference.clipping.clip_by_norm import (
    as_variable_pairs,
    clip_gradients_by_norm,
    require_present,
)
from lockstep.reference.tensors.variable import Variable

__all__ = ["apply_larc", "post_process_gradients"]

OWNER = "post_process_gradients"
GLOBAL_NORM = "global_gradient_norm"


@documented
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    summaries: Iterable[str] | None,
    lr: npt.ArrayLike,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
    strict: bool = False,
) -> Pairs:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    ...

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        lr: the learning rate of this step.
        recorder: receives the summaries; without one, none is computed.
        strict: as the original: a zero weight gets ``min_update``, sparse gradients
            become dense, an absent one is an error.
    """
    asked = Summaries(check_summaries(summaries, OWNER), recorder)
    check_recorder(recorder, OWNER)
    policy = None if larc_params is None else words.larc_policy(larc_params, strict)
    quirks = quirks_of(strict)
    pairs = as_variable_pairs(grads_and_vars, OWNER, quirks)
    rate = None if policy is None else as_rate(lr, quirks)
    if quirks.clip_absent and (policy or GLOBAL_NORM in asked.names):
        require_present(OWNER, pairs)
    record_norm(asked, GLOBAL_NORM, pairs, quirks)
    if clip_gradients is not None:
        pairs = clip_gradients_by_norm(pairs, clip_gradients, strict)
    record_pairs(asked, pairs)
    if clip_gradients is not None:
        record_norm(asked, CLIPPED_NORM, pairs, quirks)
    if policy is None or rate is None:
        return pairs
    return apply_larc(policy, pairs, rate, asked, quirks.larc_sparse)


def apply_larc(
    policy: LarcPolicy, pairs: Pairs, rate: Array, asked: Summaries, makes_dense: bool
) -> Pairs:
    """Multiply each gradient that is not None by its ratio."""
    present = [pair for pair in pairs if pair[0] is not None]
    gradients = [check_like(gradient, variable) for gradient, variable in present]
    if makes_dense:
        shapes = [variable.shape for _, variable in present]
        gradients = [*map(larc.as_original, gradients, shapes)]
    weights = larc.tensor_norms([variable.value for _, variable in present])
    norms = zip(weights, larc.tensor_norms(gradients), strict=True)
    raws = [larc.raw_ratio(policy, rate, *pair) for pair in norms]
    ratios = [larc.larc_ratio(policy, raw) for raw in raws]
    for (_, variable), raw, ratio in zip(present, raws, ratios, strict=True):
        record_ratio(asked, policy, variable.name, (raw, ratio, rate))
    scaled = iter(larc.scale_by_ratios(gradients, ratios))
    return [(None if g is None else next(scaled), v) for g, v in pairs]


def check_like(gradient: Gradient, variable: Variable) -> Array | Rows:
    """Return the gradient; raise unless its shape and dtype match the variable."""
    assert gradient is not None
    if isinstance(gradient, Rows):
        like = (gradient.values.shape[1:], str(gradient.values.dtype))
        expected = (variable.shape[1:], str(variable.dtype))
    else:
        like = (gradient.shape, str(gradient.dtype))
        expected = (variable.shape, str(variable.dtype))
    require_like(words.LARC, variable.name, like, expected)
    return gradient


def as_rate(lr: Any, quirks: Quirks) -> Array:
    """Return the learning rate in float32, 0-d."""
    if not quirks.clip_limit:
        words.check_rate(lr)
    rate = np.asarray(lr)
    if rate.shape or not np.issubdtype(rate.dtype, np.number):
        raise words.bad_rate(repr(lr))
    if quirks.clip_limit and isinstance(lr, np.ndarray | np.generic):
        words.check_rate_dtype(str(rate.dtype))
    return rate.astype(np.float32)


def record_norm(asked: Summaries, kind: str, pairs: Pairs, quirks: Quirks) -> None:
    """Record the global norm if it was requested."""
    if asked.wants(GLOBAL_NORM):
        gradients = [gradient for gradient, _ in pairs]
        norm = norm_in_float32(gradients, quirks.clip_duplicates)
        asked.scalar(GLOBAL_NORM, kind, norm)


def record_pairs(asked: Summaries, pairs: Pairs) -> None:
    """Record the requested summaries of each variable that has a gradient."""
    for gradient, variable in pairs:
        if gradient is None:
            continue
        for name, values in (
            ("gradient", larc.values_of(gradient)),
            ("variable", variable.value),
        ):
            if asked.wants(f"{name}s"):
                finite = np.where(np.isfinite(values), values, 0)
                asked.histogram(f"{name}s", finite, variable.name)
            kind = f"{name}_norm"
            if asked.wants(kind):
                (norm,) = larc.tensor_norms([values])
                asked.scalar(kind, kind, norm, variable.name)


def record_ratio(
    asked: Summaries,
    policy: LarcPolicy,
    name: str,
    numbers: tuple[Array, Array, Array],
) -> None:
    """Record whether LARC lowers the rate, the ratio, and the rate times the ratio."""
    raw, ratio, rate = numbers
    if not asked.wants("larc_summaries"):
        return
    if policy.mode == "clip":
        asked.scalar("larc_summaries", LARC_CLIP_ON, np.int32(raw < 1), name)
    asked.scalar("larc_summaries", LARC_UPDATE, ratio, name)
    asked.scalar("larc_summaries", LARC_RATE, rate * ratio, name)
