"""Clipping, LARC and summaries of OpenSeq2Seq, on checked pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages.base.pairs import refuse_complex
from lockstep.messages.clipping import clip_by_global_norm as clipping
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
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.shared.clipping import larc
from lockstep.tf.shared.clipping.clip_by_global_norm import (
    check_limit,
    clip_list,
    norm_in_float32,
)
from lockstep.tf.shared.gradients import check_dtypes, check_shapes
from lockstep.tf.shared.step.summaries import (
    Entry,
    host_recorder,
    record_entries,
    record_ratios,
)

__all__ = [
    "OWNER",
    "Processing",
    "apply_larc",
    "check_entries",
    "clip_entries",
    "plan",
    "process",
]

OWNER = "post_process_gradients"
GLOBAL_NORM = "global_gradient_norm"

Gradient = tf.Tensor | tf.IndexedSlices | None


class Processing(NamedTuple):
    """The checked arguments of ``post_process_gradients``.

    Attributes:
        asked: the summaries to record, and their recorder.
        limit: the largest global norm; None: no clipping.
        policy: the parameters of LARC; None: no LARC.
        quirks: the quirks of the original that are on.
    """

    asked: Summaries
    limit: float | tf.Tensor | None
    policy: LarcPolicy | None
    quirks: Quirks


def plan(
    summaries: Iterable[str] | None,
    limit: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None,
    strict: bool,
) -> Processing:
    """Check the arguments of ``post_process_gradients``."""
    check_recorder(recorder, OWNER)
    recorder = host_recorder() if recorder is None else recorder
    asked = Summaries(check_summaries(summaries, OWNER), recorder)
    policy = None if larc_params is None else words.larc_policy(larc_params, strict)
    quirks = quirks_of(strict)
    if limit is not None and not quirks.clip_limit:
        check_limit(clipping.BY_NORM, "clip_gradients", limit)
    return Processing(asked, limit, policy, quirks)


def process(to_do: Processing, entries: Sequence[Entry], lr: Any) -> list[Gradient]:
    """Clip, then scale by LARC, and record the summaries."""
    asked, limit, policy, quirks = to_do
    if not quirks.clip_limit:
        check_entries(OWNER, entries, check_shapes)
        dtypes = [e.gradient.dtype.name for e in entries if e.gradient is not None]
        refuse_complex(words.LARC, [] if policy is None else dtypes)
    rate = None if policy is None else as_rate(lr, quirks)
    if quirks.clip_absent and (policy or GLOBAL_NORM in asked.names):
        require_present(OWNER, entries)
    norm = None
    if asked.wants(GLOBAL_NORM):
        norm = norm_of(entries, quirks)
        asked.scalar(GLOBAL_NORM, GLOBAL_NORM, norm)
    if limit is not None:
        clipped = clip_entries(entries, limit, quirks, norm)
        pairs = zip(clipped, entries, strict=True)
        entries = [entry._replace(gradient=gradient) for gradient, entry in pairs]
    if asked.recorder is not None:
        record_entries(asked, entries)
    if limit is not None and asked.wants(GLOBAL_NORM):
        asked.scalar(GLOBAL_NORM, CLIPPED_NORM, norm_of(entries, quirks))
    if policy is None or rate is None:
        return [entry.gradient for entry in entries]
    return apply_larc(policy, entries, rate, asked, quirks.larc_sparse)


def norm_of(entries: Sequence[Entry], quirks: Quirks) -> tf.Tensor:
    """Return the global norm of all gradients that are present: float32, 0-d."""
    gradients = [entry.gradient for entry in entries]
    return norm_in_float32(gradients, quirks.clip_duplicates)


def clip_entries(
    entries: Sequence[Entry],
    limit: float | tf.Tensor,
    quirks: Quirks,
    norm: tf.Tensor | None = None,
) -> list[Gradient]:
    """Clip gradients by their global norm, then cast each to its variable's dtype.

    ``norm``: the norm, if it is already known; None: it is computed here.
    """
    if quirks.clip_absent:
        require_present(clipping.BY_NORM, entries)
    norm = norm_of(entries, quirks) if norm is None else norm
    gradients = [entry.gradient for entry in entries]
    clipped = clip_list(gradients, limit, norm, quirks)
    dtypes = [entry.variable.dtype.base_dtype for entry in entries]
    pairs = zip(clipped, dtypes, strict=True)
    return [None if g is None else tf.cast(g, dtype) for g, dtype in pairs]


def apply_larc(
    policy: LarcPolicy,
    pairs: Sequence[Entry],
    rate: tf.Tensor,
    asked: Summaries,
    makes_dense: bool,
) -> list[Gradient]:
    """Return the gradients times their ratios; None stays None."""
    present = [entry for entry in pairs if entry.gradient is not None]
    check_entries(words.LARC, present, check_shapes, check_dtypes)
    if not present:
        return [None for _ in pairs]
    gradients = [entry.gradient for entry in present]
    if makes_dense:
        gradients = [larc.as_original(g, v.shape) for g, v, _ in present]
    weights = [tf.convert_to_tensor(entry.variable) for entry in present]
    norms = larc.tensor_norms(weights), larc.tensor_norms(gradients)
    raw = larc.raw_ratio(policy, rate, *norms)
    ratios = larc.larc_ratio(policy, raw)
    names = [entry.name for entry in present]
    record_ratios(asked, policy, names, (raw, ratios, rate))
    rated = zip(gradients, tf.unstack(ratios), strict=True)
    scaled = iter([larc.scale_by_ratio(*pair) for pair in rated])
    return [None if entry.gradient is None else next(scaled) for entry in pairs]


def require_present(owner: str, entries: Sequence[Entry]) -> None:
    """Strict: raise if a gradient is None."""
    for entry in entries:
        if entry.gradient is None:
            raise refusals.ABSENT_GRADIENT.error(owner=owner, name=entry.name)


def check_entries(
    owner: str, entries: Sequence[Entry], *checks: Callable[..., None]
) -> None:
    """Call ``checks`` with the gradients, the variables and their names."""
    pairs = [(entry.gradient, entry.variable) for entry in entries]
    for check in checks:
        check(owner, pairs, lambda k: entries[k].name)


def as_rate(lr: Any, quirks: Quirks) -> tf.Tensor:
    """Return ``lr`` in float32: 0-d."""
    if not quirks.clip_limit:
        words.check_rate(lr)
    try:
        rate = tf.convert_to_tensor(lr)
    except (TypeError, ValueError) as error:
        raise words.bad_rate(repr(lr)) from error
    number = rate.dtype.is_floating or rate.dtype.is_integer
    if not number or not rate.shape.is_compatible_with([]):
        raise words.bad_rate(repr(lr))
    if quirks.clip_limit and not isinstance(lr, int | float):
        words.check_rate_dtype(rate.dtype.name)
    return tf.cast(rate, tf.float32)
