"""Mutants of OpenSeq2Seq's clipping, LARC and sum of penalties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Mutant,
    after,
    before,
    constant,
    instead,
    of_class,
    one_percent_more,
    replaced,
)
from lockstep.interface import Array, Rows
from lockstep.messages.clipping.larc import LarcPolicy

__all__ = ["mutants"]

CLIP, LARC = ("clip_by_global_norm",), ("larc",)
TOTAL = ("regularization_loss",)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of clipping, LARC and the sum of penalties."""
    return (*_of_the_clipping(), *_of_larc(), *_of_the_total())


# Mistakes in the clipping.


def scaled_up_too(norm: Array, clip_norm: float) -> Array:
    """Return ``clip_norm / norm``, which also scales small gradients up."""
    with np.errstate(all="ignore"):
        return np.asarray(np.float32(clip_norm) / norm)


def exactly_one_below(norm: Array, clip_norm: float) -> Array:
    """Return ``min(clip_norm / norm, 1)``, so exactly 1 below the limit."""
    limit = np.float32(clip_norm)
    with np.errstate(all="ignore"):
        return np.asarray(np.minimum(limit / norm, np.float32(1)))


def nan_unless_finite(right: Any) -> Any:
    """Make the scale NaN for a norm that is not finite."""

    def scale(norm: Array, clip_norm: float) -> Array:
        fine = np.isfinite(norm)
        return right(norm, clip_norm) if fine else np.full((), np.nan, np.float32)

    return scale


def nan_is_ignored(right: Any) -> Any:
    """Make the scale 1 where it is NaN."""
    return lambda norm, clip_norm: np.nan_to_num(right(norm, clip_norm), nan=1.0)


def in_its_own_dtype(gradient: Any, scale: Array) -> Any:
    """Return a gradient times the scale, in the dtype of the gradient."""
    if isinstance(gradient, Rows):
        values = in_its_own_dtype(gradient.values, scale)
        return gradient._replace(values=values)
    return np.asarray(gradient * scale.astype(gradient.dtype))


def zeros_for_absent(right: Any) -> Any:
    """Make the scaling put a zero in place of each absent gradient."""
    zeros = np.zeros(1, np.float32)
    return lambda gradients, scale: right(
        [zeros if g is None else g for g in gradients], scale
    )


def rows_forgotten(right: Any) -> Any:
    """Make the scaling return sparse gradients as they are."""
    return lambda g, scale: g if isinstance(g, Rows) else right(g, scale)


def _of_the_clipping() -> Iterator[Mutant]:
    from lockstep import reference

    scale, norm = (
        "clipping.clip_by_norm.clip_scale",
        "clipping.clip_by_norm.norm_in_float32",
    )
    times, one = (
        "clipping.clip_by_norm.scale_in_float32",
        "clipping.clip_by_global_norm.scale_one",
    )
    reported = "clipping.post_process.norm_in_float32"
    unchecked = instead(lambda t_list, strict: list(t_list))
    summed = before(lambda gradients, strict: (gradients,))
    larger = after(one_percent_more)
    yield Mutant(scale, "scaled up too", instead(scaled_up_too), CLIP)
    yield Mutant(scale, "exactly 1 below", instead(exactly_one_below), CLIP)
    yield Mutant(scale, "NaN unless finite", nan_unless_finite, CLIP)
    yield Mutant(scale, "NaN is 1", nan_is_ignored, CLIP)
    yield Mutant(scale, "1 % too large", larger, CLIP)
    yield Mutant(norm, "1 % too large", larger, CLIP)
    yield Mutant(reported, "1 % too large", larger, CLIP)
    yield Mutant(norm, "duplicates summed", summed, CLIP)
    yield Mutant(times, "forgotten", instead(lambda tensors, _: tensors), CLIP)
    yield Mutant(times, "zeros for absent", zeros_for_absent, CLIP)
    yield Mutant(one, "in its own dtype", instead(in_its_own_dtype), CLIP)
    yield Mutant(one, "rows forgotten", rows_forgotten, CLIP)
    yield Mutant(
        "clipping.clip_by_norm.cast", "forgotten", instead(lambda g, _: g), CLIP
    )
    yield Mutant("clipping.clip_by_norm.words.as_list", "unchecked", unchecked, CLIP)
    refused = "clipping.clip_by_norm.words.refusals.NOT_A_SEQUENCE"
    yield Mutant(refused, "no error", of_class(Warning), CLIP)
    absent = "clipping.clip_by_norm.refusals.ABSENT_GRADIENT"
    yield Mutant(absent, "no error", of_class(Warning), CLIP)
    default = instead(reference.clip_gradients_by_norm)
    yield Mutant("strict.clip_gradients_by_norm", "not strict", default, CLIP)
    default = instead(reference.clip_by_global_norm)
    yield Mutant("strict.clip_by_global_norm", "not strict", default, CLIP)


# Mistakes in LARC.


def rate_forgotten(policy: Any, rate: Array, *norms: Any) -> tuple[Any, ...]:
    """Return the arguments of ``raw_ratio`` with a learning rate of 1."""
    return policy, np.float32(1), *norms


def rate_in_both_modes(right: Any) -> Any:
    """Make ``raw_ratio`` divide by the learning rate in mode "scale", too."""

    def ratio(policy: Any, rate: Array, weight: Array, gradient: Array) -> Array:
        if policy.mode == "scale":
            with np.errstate(divide="ignore"):
                weight = weight / rate
        return np.asarray(right(policy, rate, weight, gradient))

    return ratio


def other_mode(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with mode "scale" in place of "clip", or the reverse."""
    mode = "scale" if policy.mode == "clip" else "clip"
    return policy._replace(mode=mode), *rest


def eta_larger(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with ``eta`` 1 % too large."""
    return policy._replace(eta=policy.eta * 1.01), *rest


def zero_unless_finite(right: Any) -> Any:
    """Make the ratio 0 unless both norms are finite."""

    def ratio(policy: Any, rate: Array, weight: Array, gradient: Array) -> Array:
        fine = np.isfinite(weight) and np.isfinite(gradient)
        value: Array = right(policy, rate, weight, gradient)
        return value if fine else np.zeros((), np.float32)

    return ratio


def one_for_nan(ratio: Array) -> Array:
    """Return the ratio, or 1 where it is NaN."""
    return np.where(np.isnan(ratio), np.float32(1), ratio)


def norm_in_its_own_dtype(values: Array) -> Array:
    """Return the 2-norm, with the squares summed in the dtype of ``values``."""
    with np.errstate(all="ignore"):
        norm = np.sqrt(np.square(values).sum(dtype=values.dtype))
        return np.asarray(norm, np.float32)


def direction_only(right: Any) -> Any:
    """Make the scaling divide the gradient by its norm, as the ratio does already."""

    def scale(gradient: Any, ratio: Array) -> Any:
        with np.errstate(all="ignore"):
            return right(gradient / np.linalg.norm(gradient).astype("f4"), ratio)

    return scale


def plain_cast(ratio: Array, dtype: Any) -> Array:
    """Cast the ratio without clamping it to the largest magnitude."""
    with np.errstate(all="ignore"):
        return ratio.astype(dtype)


def last_row_wins(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a dense gradient in which the last row of each index wins."""
    if not isinstance(gradient, Rows):
        return gradient
    dense = np.zeros(shape, gradient.values.dtype)
    dense[gradient.indices] = gradient.values
    return dense


def unchecked_policy(larc_params: Any, strict: bool) -> LarcPolicy:
    """Return a policy in mode "clip" that takes only ``larc_eta``, unchecked."""
    eta = larc_params.get("larc_eta", 0.001)
    return LarcPolicy(float(eta), "clip", guarded=not strict)


def _of_larc() -> Iterator[Mutant]:
    from lockstep import reference

    raw, ratio, norm = (
        "clipping.larc.raw_ratio",
        "clipping.larc.larc_ratio",
        "clipping.larc.tensor_norm",
    )
    scale, cast, dense = (
        "clipping.larc.scale_by_ratio",
        "clipping.larc.cast_ratio",
        "clipping.larc.as_original",
    )
    yield Mutant(raw, "eta 1 % too large", before(eta_larger), LARC)
    yield Mutant(raw, "no epsilon", replaced(epsilon=0.0), LARC)
    yield Mutant(raw, "epsilon as by default", replaced(epsilon=1e-7), LARC)
    yield Mutant(raw, "no least update", replaced(min_update=0.0), LARC)
    yield Mutant(raw, "least update as by default", replaced(min_update=1e-7), LARC)
    yield Mutant(raw, "guarded", replaced(guarded=True), LARC)
    yield Mutant(raw, "without the rate", before(rate_forgotten), LARC)
    yield Mutant(raw, "with the rate in both modes", rate_in_both_modes, LARC)
    yield Mutant(raw, "NaN is 1", after(one_for_nan), LARC)
    yield Mutant(raw, "0 unless finite", zero_unless_finite, LARC)
    yield Mutant(raw, "the other mode", before(other_mode), LARC)
    yield Mutant(ratio, "not held below 1", instead(lambda _, raw: raw), LARC)
    yield Mutant(norm, "1 % too large", after(one_percent_more), LARC)
    yield Mutant(norm, "in its own dtype", instead(norm_in_its_own_dtype), LARC)
    yield Mutant(scale, "forgotten", instead(lambda g, _: g), LARC)
    yield Mutant(scale, "of the direction", direction_only, LARC)
    yield Mutant(cast, "not clamped", instead(plain_cast), LARC)
    yield Mutant(dense, "stays sparse", instead(lambda g, _: g), LARC)
    yield Mutant(dense, "last row wins", instead(last_row_wins), LARC)
    yield Mutant(
        "clipping.post_process.require_present", "unchecked", constant(None), LARC
    )
    policy = "clipping.post_process.words.larc_policy"
    yield Mutant(policy, "unchecked", instead(unchecked_policy), LARC)
    clip = "clipping.post_process.clip_gradients_by_norm"
    yield Mutant(clip, "forgotten", instead(lambda pairs, *_: pairs), LARC)
    default = instead(reference.post_process_gradients)
    yield Mutant("strict.post_process_gradients", "not strict", default, LARC)


# Mistakes in the sum of penalties.


def found_anywhere(losses: Any, scope: str | None) -> list[Any]:
    """Return the losses whose names contain a match of ``scope`` anywhere."""
    matches = [v for n, v in losses.items() if re.search(scope or "", n)]
    return [v for v in matches if v is not None]


def whole_name(losses: Any, scope: str | None) -> list[Any]:
    """Return the losses whose whole name is ``scope``; all of them for None."""
    return [v for n, v in losses.items() if v is not None and scope in (None, n)]


def scope_ignored(losses: Any, scope: str | None) -> list[Any]:
    """Return all losses that are present."""
    return [value for value in losses.values() if value is not None]


def in_the_dtype_of_the_first(losses: list[Any]) -> Array:
    """Return the sum of the losses, taken in the dtype of the first."""
    with np.errstate(over="ignore"):
        total = np.sum(np.array(losses, losses[0].dtype if losses else np.float32))
    return np.asarray(total, np.float32)


def _of_the_total() -> Iterator[Mutant]:
    chosen = "step.regularization.words.chosen_losses"
    total = "step.regularization.sum_losses"
    deferred = "masters.regularizer.words.has_master"
    first = before(lambda losses: (losses[:1],))
    one_more = after(lambda total: np.asarray(total + np.float32(1)))
    half = instead(in_the_dtype_of_the_first)
    yield Mutant(chosen, "anywhere in the name", instead(found_anywhere), TOTAL)
    yield Mutant(chosen, "the whole name", instead(whole_name), TOTAL)
    yield Mutant(chosen, "scope ignored", instead(scope_ignored), TOTAL)
    yield Mutant(total, "the first only", first, TOTAL)
    yield Mutant(total, "starts at one", one_more, TOTAL)
    yield Mutant(total, "in their own dtype", half, TOTAL)
    yield Mutant(deferred, "nothing is deferred", constant(False), TOTAL)
    yield Mutant(deferred, "all is deferred", constant(True), TOTAL)
