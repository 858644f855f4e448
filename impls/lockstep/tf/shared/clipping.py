"""Clipping by the global norm, and LARC, on tensors and slices.

``clip`` is the rule of ``clip_gradients_by_global_norm``, ``clip_by_global_norm`` that
of OpenSeq2Seq, whose ``post_process_gradients`` is a :class:`Processing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_norm_limit
from lockstep.tf.shared.gradients import (
    HALF,
    as_tensor,
    check_dtypes,
    check_shapes,
    saturating_cast,
    summed_values,
    widen,
    with_values,
)
from lockstep.tf.shared.summaries import (
    Entry,
    Recorder,
    Summaries,
    check_summaries,
    host_recorder,
    record_entries,
)

Gradient = tf.Tensor | tf.IndexedSlices | None

BY_GLOBAL_NORM = "clip_gradients_by_global_norm"
BY_NORM = "clip_gradients_by_norm"
LARC = "LARC"
OF_LIST = "clip_by_global_norm"
OWNER = "post_process_gradients"

GLOBAL_NORM = "global_gradient_norm"
MODES = ("clip", "scale")
NO_SUMMARIES = Summaries(frozenset(), None)


# The rule of clip_gradients_by_global_norm


def clip(
    gradients: Sequence[Gradient], clip_norm: float, error_if_nonfinite: bool = False
) -> tuple[list[Gradient], tf.Tensor]:
    """Return gradients whose global norm is at most ``clip_norm``, and the norm.

    s = clip_norm min(1 / norm, 1 / clip_norm), in float32; each g becomes g s. A norm
    that is not finite makes every gradient NaN, or is an error.
    """
    remedy = "give the largest global norm that is to be left as it is"
    check_norm_limit(BY_GLOBAL_NORM, "clip_norm", clip_norm, remedy)
    present = [gradient for gradient in gradients if gradient is not None]
    require_floats(BY_GLOBAL_NORM, present)
    with tf.name_scope("global_norm"):
        norm = global_norm(present, tf.float32)
    if error_if_nonfinite:
        norm = require_finite(norm)
    with tf.name_scope("clip_by_global_norm"):
        return scale_gradients(gradients, clip_factor(norm, clip_norm)), norm


def global_norm(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices], dtype: tf.DType
) -> tf.Tensor:
    """Return the global norm, computed in ``dtype``, duplicate rows summed first."""
    total = tf.reduce_sum(half_square_sums(gradients, dtype))
    return tf.sqrt(total * tf.constant(2, dtype), name="global_norm")


def half_square_sums(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices], dtype: tf.DType
) -> tf.Tensor:
    """Return sum(g^2) / 2 of n gradients, duplicate rows summed first: [n]."""
    if not gradients:
        return tf.zeros([0], dtype)
    values = [tf.cast(summed_values(gradient), dtype) for gradient in gradients]
    return tf.stack([tf.nn.l2_loss(value) for value in values])


def require_finite(norm: tf.Tensor) -> tf.Tensor:
    """Return ``norm`` if it is finite; otherwise raise, now or when the graph runs."""
    sentence = f"{BY_GLOBAL_NORM}: expected a finite global norm, got"
    finite = tf.math.is_finite(norm)
    if tf.executing_eagerly():
        if not finite:
            raise errors.NonFiniteNormError(
                f"{sentence} {float(norm)}; look for the gradient that overflowed, or "
                "leave error_if_nonfinite off."
            )
        return norm
    with tf.control_dependencies([tf.Assert(finite, [sentence, norm])]):
        return tf.identity(norm)


def clip_factor(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return the factor for ``norm``; NaN if the norm is not finite."""
    limit = as_tensor(clip_norm, norm.dtype)
    # A constant NaN would stop a program under tf.debugging.enable_check_numerics.
    nan = tf.abs(norm - norm)
    return tf.where(tf.math.is_finite(norm), limited(norm, limit), nan)


def limited(norm: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Return limit min(1 / norm, 1 / limit), without an infinity for a norm of 0."""
    divisor = tf.where(tf.equal(norm, 0), limit, norm)
    return limit * tf.minimum(1 / divisor, 1 / limit)


def scale_gradients(gradients: Sequence[Gradient], factor: tf.Tensor) -> list[Gradient]:
    """Return the gradients times ``factor``, in their own dtypes."""
    return [
        None if g is None else scaled(g, tf.cast(factor, g.dtype)) for g in gradients
    ]


def scaled(
    gradient: tf.Tensor | tf.IndexedSlices, factor: tf.Tensor
) -> tf.Tensor | tf.IndexedSlices:
    """Return a gradient, or the rows of a sparse one, times a factor of its dtype."""
    if isinstance(gradient, tf.IndexedSlices):
        return with_values(gradient, gradient.values * factor)
    return gradient * factor


def require_floats(
    owner: str, gradients: Iterable[Gradient], integers: bool = False
) -> None:
    """Raise for complex gradients and, unless allowed, for integers."""
    for gradient in gradients:
        if gradient is None or gradient.dtype.is_floating:
            continue
        if not (integers and gradient.dtype.is_integer):
            raise errors.DtypeError(
                f"{owner}: expected real floating-point gradients, got "
                f"{gradient.dtype.name}; cast them first."
            )


# OpenSeq2Seq's clipping by the global norm


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor | None,
    name: str | None,
) -> tuple[list[Gradient], tf.Tensor]:
    """Return the clipped tensors, all in float32, and the norm: float32, 0-d."""
    is_lazy = isinstance(t_list, Iterator | ValuesView)
    tensors = as_tensors(list(t_list) if is_lazy else t_list)
    check_limit(OF_LIST, "clip_norm", clip_norm)
    if isinstance(use_norm, int | float) and use_norm < 0:
        raise errors.OutOfRangeError(
            f"{OF_LIST}: use_norm: expected a number >= 0, got {use_norm!r}; pass the "
            "norm of all tensors, or leave it out."
        )
    with tf.name_scope(name or OF_LIST):
        norm = norm_in_float32(tensors) if use_norm is None else as_norm(use_norm)
        return scale_in_float32(tensors, clip_scale(norm, clip_norm)), norm


def norm_in_float32(gradients: Iterable[Gradient]) -> tf.Tensor:
    """Return the global norm of the tensors that are not None, in float32."""
    present = [gradient for gradient in gradients if gradient is not None]
    return global_norm(present, tf.float32)


def clip_scale(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return TensorFlow's factor for ``norm``: 0 if it is infinite, NaN if NaN."""
    return limited(norm, as_tensor(clip_norm, tf.float32))


def scale_in_float32(
    gradients: Iterable[Gradient], factor: tf.Tensor
) -> list[Gradient]:
    """Return each tensor in float32 times ``factor``; None stays None."""
    return [None if g is None else scaled(widen(g), factor) for g in gradients]


def check_limit(owner: str, name: str, limit: float | tf.Tensor) -> None:
    """Raise unless a limit is a positive, finite number; tensors are not checked."""
    if not tf.is_tensor(limit):
        check_norm_limit(owner, name, limit)


def as_tensors(t_list: Any) -> list[Gradient]:
    """Return the tensors of a list; raise if it is no list of real tensors."""
    if not isinstance(t_list, Sequence) or isinstance(t_list, str | bytes):
        raise errors.NotASequenceError(
            f"{OF_LIST}: t_list: expected a sequence of tensors, got "
            f"{errors.with_article(type(t_list).__name__)}; put the tensors into a "
            "list."
        )
    tensors: list[Gradient] = []
    for position, entry in enumerate(t_list):
        is_done = entry is None or isinstance(entry, tf.IndexedSlices)
        try:
            tensors.append(entry if is_done else tf.convert_to_tensor(entry))
        except (TypeError, ValueError):
            raise errors.MalformedPairsError(
                f"{OF_LIST}: t_list: expected a tensor or None at position {position}, "
                f"got {type(entry).__name__}; convert it to a tensor first."
            ) from None
    require_floats(OF_LIST, tensors, integers=True)
    return tensors


def as_norm(use_norm: Any) -> tf.Tensor:
    """Return the norm that a caller passed: float32, 0-d."""
    norm = tf.cast(use_norm, tf.float32)
    if not norm.shape.is_compatible_with([]):
        raise errors.MalformedPairsError(
            f"{OF_LIST}: use_norm: expected a number or a 0-d tensor, got shape "
            f"{norm.shape}; pass the norm of all tensors, or leave it out."
        )
    return norm


# LARC


class LarcPolicy(NamedTuple):
    """LARC's parameters; the numbers are rounded to float32 where they are used.

    Attributes:
        larc_eta: the trust coefficient: the ratio of an update's norm to its weight's
            norm, > 0.
        larc_mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio, >= 0.
        epsilon: added to the gradient's norm, >= 0.
    """

    larc_eta: float
    larc_mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7


def larc_policy(larc_params: Any, check_ranges: bool = True) -> LarcPolicy:
    """Check ``larc_params``, a dict with the names of :class:`LarcPolicy`."""
    if not isinstance(larc_params, Mapping):
        raise errors.OutOfRangeError(
            f"{LARC}: larc_params: expected a dict of parameters, got "
            f"{larc_params!r}; write {{'larc_eta': 0.001}}."
        )
    for name, value in larc_params.items():
        if name not in LarcPolicy._fields:
            raise errors.unknown_name(f"{LARC}: larc_params", name, LarcPolicy._fields)
        if name == "larc_mode":
            if value not in MODES:
                raise errors.unknown_name(f"{LARC}: larc_mode", value, MODES)
            continue
        if not isinstance(value, float):  # As the original.
            remedy = f"write {value}.0" if type(value) is int else "write a float"
            raise errors.OutOfRangeError(
                f"{LARC}: {name}: expected a float, got {value!r}; {remedy}."
            )
        in_range = 0 <= value < math.inf and (value > 0 or name != "larc_eta")
        if check_ranges and not in_range:
            expected = "> 0, finite" if name == "larc_eta" else ">= 0, finite"
            raise errors.OutOfRangeError(
                f"{LARC}: {name}: expected {expected}, got {value!r}; choose such a "
                "number."
            )
    if "larc_eta" not in larc_params:
        raise errors.OutOfRangeError(
            f"{LARC}: larc_params: expected an entry 'larc_eta', got "
            f"{', '.join(larc_params) or 'an empty dict'}; give the ratio of update to "
            "weight, such as 0.001."
        )
    return LarcPolicy(**larc_params)


def tensor_norms(tensors: Iterable[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Return the 2-norms of n tensors, duplicate rows summed first, in float32: [n]."""
    values = [tf.cast(summed_values(tensor), tf.float32) for tensor in tensors]
    return tf.sqrt(tf.stack([tf.reduce_sum(tf.square(value)) for value in values]))


def cast_ratio(ratio: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round a ratio to ``dtype``; saturate in half precision."""
    is_half = dtype in HALF
    return saturating_cast(ratio, dtype) if is_half else tf.cast(ratio, dtype)


# What post_process_gradients does


def clip_gradients_by_norm(
    entries: Sequence[Entry], clip_gradients: float | tf.Tensor
) -> list[Gradient]:
    """Return clipped gradients, each in its variable's dtype."""
    check_limit(BY_NORM, "clip_gradients", clip_gradients)
    process = Processing(limit=clip_gradients)
    process.check(entries, BY_NORM)
    return process.clip(entries)


def plan(
    summaries: Iterable[str] | None,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None,
) -> Processing:
    """Check the arguments of ``post_process_gradients``, except pairs and rate."""
    if clip_gradients is not None:
        check_limit(BY_NORM, "clip_gradients", clip_gradients)
    policy = None if larc_params is None else larc_policy(larc_params)
    return Processing(requested(summaries, recorder), clip_gradients, policy)


def requested(summaries: Iterable[str] | None, recorder: Recorder | None) -> Summaries:
    """Return the requested summaries; without a recorder, the framework's own."""
    recorder = host_recorder() if recorder is None else recorder
    return Summaries(check_summaries(summaries, OWNER), recorder)


@dataclass(frozen=True)
class Processing:
    """Clip gradients by their global norm, then scale them by LARC; record summaries.

    Attributes:
        asked: the summaries to record, and their recorder.
        limit: the largest global norm; None: no clipping.
        policy: the parameters of LARC; None: no LARC.
    """

    asked: Summaries = NO_SUMMARIES
    limit: float | tf.Tensor | None = None
    policy: LarcPolicy | None = None

    def __call__(self, entries: Sequence[Entry], lr: Any) -> list[Gradient]:
        """Return the processed gradients; None stays None."""
        self.check(entries)
        rate = None if self.policy is None else self.rate(lr)
        norm = None
        if self.asked.wants(GLOBAL_NORM):
            norm = self.norm(entries)
            self.asked.scalar(GLOBAL_NORM, GLOBAL_NORM, norm)
        if self.limit is not None:
            clipped = self.clip(entries, norm)
            pairs = zip(clipped, entries, strict=True)
            entries = [entry._replace(gradient=gradient) for gradient, entry in pairs]
        if self.asked.recorder is not None:
            record_entries(self.asked, entries)
        if self.limit is not None and self.asked.wants(GLOBAL_NORM):
            norm = self.norm(entries)
            self.asked.scalar(GLOBAL_NORM, "global_clipped_gradient_norm", norm)
        if self.policy is None:
            return [entry.gradient for entry in entries]
        return self.scale(self.policy, entries, rate)

    def check(self, entries: Sequence[Entry], owner: str = OWNER) -> None:
        """Raise unless gradients have their variables' shapes."""
        check_shapes(owner, pairs_of(entries), lambda k: entries[k].name)

    def norm(self, entries: Sequence[Entry]) -> tf.Tensor:
        """Return the global norm of all gradients that are present: float32, 0-d."""
        gradients = [entry.gradient for entry in entries]
        require_floats(OWNER, gradients)
        return norm_in_float32(gradients)

    def clip(
        self, entries: Sequence[Entry], norm: tf.Tensor | None = None
    ) -> list[Gradient]:
        """Clip by the norm, known or not; cast gradients to their variables' dtypes."""
        norm = self.norm(entries) if norm is None else norm
        factor = clip_scale(norm, self.limit)
        clipped = scale_in_float32([entry.gradient for entry in entries], factor)
        dtypes = [entry.variable.dtype.base_dtype for entry in entries]
        pairs = zip(clipped, dtypes, strict=True)
        return [None if g is None else tf.cast(g, dtype) for g, dtype in pairs]

    def rate(self, lr: Any) -> tf.Tensor:
        """Return the learning rate in float32: 0-d."""
        rate = tf.cast(lr, tf.float32)
        in_range = not isinstance(lr, int | float) or 0 <= lr < math.inf
        if not in_range or not rate.shape.is_compatible_with([]):
            raise errors.OutOfRangeError(
                f"{LARC}: lr: expected a finite number >= 0 or a 0-d tensor, got "
                f"{lr!r}; pass the learning rate of this step."
            )
        return rate

    def scale(
        self, policy: LarcPolicy, entries: Sequence[Entry], rate: tf.Tensor
    ) -> list[Gradient]:
        """Return the gradients times their ratios; None stays None."""
        present = [entry for entry in entries if entry.gradient is not None]
        if not present:
            return [None for _ in entries]
        pairs = pairs_of(present)
        check_dtypes(LARC, pairs, lambda k: present[k].name)
        gradients = [gradient for gradient, _ in pairs]
        require_floats(LARC, gradients)
        weights = [tf.convert_to_tensor(variable) for _, variable in pairs]
        norms = tensor_norms(weights), tensor_norms(gradients)
        raw = self.raw_ratio(policy, rate, *norms)
        ratios = tf.minimum(raw, 1.0) if policy.larc_mode == "clip" else raw
        names = [entry.name for entry in present]
        record_ratios(self.asked, policy, names, raw, ratios, rate)
        rated = zip(gradients, tf.unstack(ratios), strict=True)
        results = iter([scaled(g, cast_ratio(r, g.dtype)) for g, r in rated])
        return [None if e.gradient is None else next(results) for e in entries]

    def raw_ratio(
        self,
        policy: LarcPolicy,
        rate: tf.Tensor,
        weight: tf.Tensor,
        gradient: tf.Tensor,
    ) -> tf.Tensor:
        """Return the ratios before mode "clip" limits them to 1: float32, [n].

        clip:  max(eta |w| / (lr (|g| + epsilon)), min_update)
        scale: max(eta |w| / (|g| + epsilon), min_update)

        If both norms are finite, the ratio is 1 where a norm is 0, and in mode "clip"
        where lr is 0. The norms have shape [n], the rate is 0-d.
        """
        divisor = gradient + policy.epsilon
        still = tf.logical_or(tf.equal(weight, 0.0), tf.equal(gradient, 0.0))
        if policy.larc_mode == "clip":
            divisor = rate * divisor
            still = tf.logical_or(still, tf.equal(rate, 0.0))
        alone = tf.logical_and(still, tf.math.is_finite(weight + gradient))
        # Division by 0 would stop a program under tf.debugging.enable_check_numerics.
        one = tf.constant(1.0)
        divisor = tf.where(alone, one, divisor)
        ratio = tf.maximum(policy.larc_eta * weight / divisor, policy.min_update)
        return tf.where(alone, one, ratio)


def record_ratios(
    asked: Summaries,
    policy: LarcPolicy,
    names: Sequence[str],
    raw: tf.Tensor,
    ratios: tf.Tensor,
    rate: tf.Tensor,
) -> None:
    """Record where LARC lowers the rate, the ratios [n], and rate times ratio."""
    if not asked.wants("larc_summaries"):
        return
    kinds = {"larc_grad_update": ratios, "larc_final_lr": rate * ratios}
    if policy.larc_mode == "clip":
        kinds = {"larc_clip_on": tf.cast(raw < 1.0, tf.int32), **kinds}
    for kind, values in kinds.items():
        for position, name in enumerate(names):
            asked.scalar("larc_summaries", kind, values[position], name)


def pairs_of(entries: Sequence[Entry]) -> list[tuple[Gradient, Any]]:
    """Return entries as (gradient, variable)."""
    return [(entry.gradient, entry.variable) for entry in entries]
