"""Clipping by the global norm and of rows, and LARC, on tensors and slices.

``clip`` is the rule of ``clip_gradients_by_global_norm``, ``clip_by_global_norm`` that
of OpenSeq2Seq, whose ``post_process_gradients`` is a :class:`Processing`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_norm_limit
from lockstep.larc import LARC, LarcPolicy, larc_policy
from lockstep.tf.shared.gradients import (
    HALF,
    Gradient,
    as_tensor,
    check_dtypes,
    check_shapes,
    require_floats,
    saturating_cast,
    summed_values,
    times,
    widen,
)

BY_GLOBAL_NORM = "clip_gradients_by_global_norm"
BY_NORM = "clip_gradients_by_norm"
OF_LIST = "clip_by_global_norm"
OWNER = "post_process_gradients"

DIMS = "VariableClippingOptimizer: vars_to_clip_dims"
GLOBAL_NORM = "global_gradient_norm"
OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
    "variables",
    "variable_norm",
    "larc_summaries",
    "loss_scale",
]
"""The names of all summaries."""

DEFAULT_SUMMARIES = ["learning_rate", "global_gradient_norm", "loss_scale"]
"""The summaries for ``summaries=None``."""

# Rows that rounding leaves above the limit are made smaller by this share. It is a sum
# of rounding errors: the factor and the product are rounded to float32 or to the dtype
# itself, half precision is rounded once more, and the norm in float64 has an error.
MARGINS = {
    tf.float16: 2.0**-11 + 2.0**-23 + 2.0**-50,
    tf.bfloat16: 2.0**-8 + 2.0**-23 + 2.0**-50,
    tf.float32: 2.0**-23 + 2.0**-50,
    tf.float64: 2.0**-52 + 2.0**-50,
}


# -- the rule of clip_gradients_by_global_norm -----------------------------------------


def clip(
    gradients: Sequence[Gradient], clip_norm: float, error_if_nonfinite: bool = False
) -> tuple[list[Gradient], tf.Tensor]:
    """Return gradients whose global norm is at most ``clip_norm``, and the norm.

    s = clip_norm min(1 / norm, 1 / clip_norm), in float32; each g becomes g s. A norm
    that is not finite makes every gradient NaN, or is an error.
    """
    remedy = "give the largest global norm that is to be left as it is"
    check_norm_limit(BY_GLOBAL_NORM, "clip_norm", clip_norm, remedy)
    with tf.name_scope("global_norm"):
        norm = global_norm(require_floats(BY_GLOBAL_NORM, gradients))
    if error_if_nonfinite:
        norm = require_finite(norm)
    with tf.name_scope("clip_by_global_norm"):
        return scale_gradients(gradients, clip_factor(norm, clip_norm)), norm


def global_norm(gradients: Iterable[Gradient], dtype: Any = tf.float32) -> tf.Tensor:
    """Return the global norm, computed in ``dtype``, duplicate rows summed first."""
    total = tf.reduce_sum(half_square_sums(gradients, dtype))
    return tf.sqrt(total * tf.constant(2, dtype), name="global_norm")


def half_square_sums(gradients: Iterable[Gradient], dtype: Any) -> tf.Tensor:
    """Return sum(g^2) / 2 of n gradients, duplicate rows summed first: [n]."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return tf.zeros([0], dtype)
    values = [tf.cast(summed_values(gradient), dtype) for gradient in present]
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
    # A constant NaN would stop a program under tf.debugging.enable_check_numerics.
    nan = tf.abs(norm - norm)
    return tf.where(tf.math.is_finite(norm), limited(norm, clip_norm), nan)


def limited(norm: tf.Tensor, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return TensorFlow's factor for ``norm``: 0 if it is infinite, NaN if NaN.

    limit min(1 / norm, 1 / limit), without an infinity for a norm of 0.
    """
    limit = as_tensor(clip_norm, norm.dtype)
    divisor = tf.where(tf.equal(norm, 0), limit, norm)
    return limit * tf.minimum(1 / divisor, 1 / limit)


def scale_gradients(gradients: Iterable[Gradient], factor: tf.Tensor) -> list[Gradient]:
    """Return the gradients times ``factor``, in their own dtypes."""
    return [None if g is None else times(g, factor) for g in gradients]


# -- OpenSeq2Seq's clipping by the global norm -----------------------------------------


@tf.autograph.experimental.do_not_convert
def clip_by_global_norm(
    t_list: Iterable[Any],
    clip_norm: float | tf.Tensor,
    use_norm: float | tf.Tensor | None = None,
    name: str | None = None,
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

    Returns:
        The clipped tensors, all in float32, and the norm: float32, 0-d.

    Raises:
        NotASequenceError: a TypeError; ``t_list`` is a tensor, a string or the like.
        MalformedPairsError: a TypeError; an entry is no tensor.
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
            ``use_norm`` a number < 0.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``.

    Example:
        >>> clipped, norm = clip_by_global_norm([tf.constant([3.0, 4.0]), None], 2.5)
        >>> clipped[0].numpy().tolist(), clipped[1], float(norm)
        ([1.5, 2.0], None, 5.0)
    """
    is_lazy = isinstance(t_list, Iterator | ValuesView)
    tensors = as_tensors(list(t_list) if is_lazy else t_list)
    check_limit(OF_LIST, "clip_norm", clip_norm)
    if isinstance(use_norm, int | float) and use_norm < 0:
        raise errors.OutOfRangeError(
            f"{OF_LIST}: use_norm: expected a number >= 0, got {use_norm!r}; pass the "
            "norm of all tensors, or leave it out."
        )
    with tf.name_scope(name or OF_LIST):
        norm = global_norm(tensors) if use_norm is None else as_norm(use_norm)
        return scale_in_float32(tensors, limited(norm, clip_norm)), norm


def scale_in_float32(
    gradients: Iterable[Gradient], factor: tf.Tensor
) -> list[Gradient]:
    """Return each tensor in float32 times ``factor``; None stays None."""
    return [None if g is None else times(widen(g), factor) for g in gradients]


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


# -- LARC ------------------------------------------------------------------------------


def tensor_norms(tensors: Iterable[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Return the 2-norms of n tensors, duplicate rows summed first, in float32: [n]."""
    values = [tf.cast(summed_values(tensor), tf.float32) for tensor in tensors]
    return tf.sqrt(tf.stack([tf.reduce_sum(tf.square(value)) for value in values]))


# -- summaries -------------------------------------------------------------------------


class Recorder(Protocol):
    """Interface of a recorder of summaries, such as the module ``tf.summary``."""

    def scalar(self, tag: str, value: Any) -> None:
        """Record a 0-d value."""
        ...

    def histogram(self, tag: str, values: Any) -> None:
        """Record values of any shape; all are finite."""
        ...


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is computed."""

    names: frozenset[str]
    recorder: Recorder | None

    def wants(self, *names: str) -> bool:
        """Return whether any of these summaries is to be recorded."""
        return self.recorder is not None and not self.names.isdisjoint(names)

    def scalar(self, name: str, kind: str, value: Any, variable: str = "") -> None:
        """Record ``value`` under the tag of ``kind`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.scalar(tag_of(kind, variable), value)

    def histogram(self, name: str, values: Any, variable: str) -> None:
        """Record the finite ``values`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.histogram(tag_of(name, variable), values)


class Entry(NamedTuple):
    """A gradient or None, its variable, and the variable's name for tags."""

    gradient: Any
    variable: tf.Variable
    name: str


def tag_of(kind: str, variable: str = "") -> str:
    """Return the tag KIND, or KIND/VARIABLE with ":" replaced by "_"."""
    return f"{kind}/{variable.replace(':', '_')}" if variable else kind


def check_summaries(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the requested names; None means the default summaries."""
    if isinstance(summaries, str):
        raise errors.DtypeError(
            f"{owner}: summaries: expected a list of names or None, got {summaries!r}; "
            f"write [{summaries!r}]."
        )
    names = DEFAULT_SUMMARIES if summaries is None else list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            raise errors.unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return frozenset(names)


def host_recorder() -> Recorder | None:
    """Return TensorFlow's own recorder; None if nothing is recorded.

    In a graph its operations are in the collection SUMMARIES. In other modes it writes
    to the default writer, at its current step.
    """
    with tf.init_scope():
        eager = tf.executing_eagerly()
    if not eager:
        return tf.compat.v1.summary
    listens = tf.get_static_value(tf.summary.should_record_summaries())
    return tf.summary if listens is None or listens else None


def record_entries(asked: Summaries, entries: Sequence[Entry]) -> None:
    """Record the summaries of each present gradient and its variable."""
    if not asked.wants("gradients", "gradient_norm", "variables", "variable_norm"):
        return
    for gradient, variable, name in entries:
        if gradient is not None:
            record_values(asked, "gradient", summed_values(gradient), name)
            record_values(asked, "variable", tf.convert_to_tensor(variable), name)


def record_values(asked: Summaries, what: str, values: tf.Tensor, name: str) -> None:
    """Record the finite values of a tensor, and its norm in float32."""
    if asked.wants(f"{what}s"):
        finite = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
        asked.histogram(f"{what}s", finite, name)
    if asked.wants(f"{what}_norm"):
        norm = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(values, tf.float32))))
        asked.scalar(f"{what}_norm", f"{what}_norm", norm, name)


# -- what post_process_gradients does --------------------------------------------------


class Processing:
    """Clip gradients by their global norm, then scale them by LARC; record summaries.

    Args:
        owner: the name of the caller in error messages.
        summaries: the names of the summaries to record; None: the default ones.
        clip_gradients: the largest global norm; None: no clipping.
        larc_params: the parameters of LARC; None: no LARC.
    """

    checks = True
    """Whether numbers must be in their ranges."""

    def __init__(
        self,
        owner: str,
        summaries: Iterable[str] | None = (),
        clip_gradients: float | tf.Tensor | None = None,
        larc_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.owner = owner
        self.names = check_summaries(summaries, owner)
        self.limit = clip_gradients
        self.policy: LarcPolicy | None = None
        if clip_gradients is not None and self.checks:
            check_limit(owner, "clip_gradients", clip_gradients)
        if larc_params is not None:
            self.policy = larc_policy(larc_params, self.checks)

    def __call__(
        self, entries: Sequence[Entry], lr: Any, recorder: Recorder | None
    ) -> list[Gradient]:
        """Return the processed gradients; None stays None."""
        asked = Summaries(self.names, recorder)
        self.check(entries)
        rate = None if self.policy is None else self.rate(lr)
        norm = None
        if asked.wants(GLOBAL_NORM):
            norm = self.norm(entries)
            asked.scalar(GLOBAL_NORM, GLOBAL_NORM, norm)
        if self.limit is not None:
            clipped = self.clip(entries, norm)
            pairs = zip(clipped, entries, strict=True)
            entries = [entry._replace(gradient=gradient) for gradient, entry in pairs]
        if recorder is not None:
            record_entries(asked, entries)
        if self.limit is not None and asked.wants(GLOBAL_NORM):
            norm = self.norm(entries)
            asked.scalar(GLOBAL_NORM, "global_clipped_gradient_norm", norm)
        if self.policy is None:
            return [entry.gradient for entry in entries]
        return self.scale(entries, self.policy, rate, asked)

    def check(self, entries: Sequence[Entry]) -> None:
        """Raise unless gradients have their variables' shapes."""
        pairs = [(entry.gradient, entry.variable) for entry in entries]
        check_shapes(self.owner, pairs, lambda k: entries[k].name)

    def norm(self, entries: Sequence[Entry]) -> tf.Tensor:
        """Return the global norm of all gradients that are present: float32, 0-d."""
        gradients = [entry.gradient for entry in entries]
        return global_norm(require_floats(self.owner, gradients))

    def clip(
        self, entries: Sequence[Entry], norm: tf.Tensor | None = None
    ) -> list[Gradient]:
        """Clip by the norm, known or not; cast gradients to their variables' dtypes."""
        norm = self.norm(entries) if norm is None else norm
        factor = limited(norm, self.limit)
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
        self,
        entries: Sequence[Entry],
        policy: LarcPolicy,
        rate: tf.Tensor,
        asked: Summaries,
    ) -> list[Gradient]:
        """Return the gradients times their ratios, and record these; None stays None.

        Recorded are where LARC lowers the rate, the ratios, and rate times ratio.
        """
        present = [entry for entry in entries if entry.gradient is not None]
        if not present:
            return [None for _ in entries]
        pairs = [(entry.gradient, entry.variable) for entry in present]
        check_dtypes(LARC, pairs, lambda k: present[k].name)
        gradients = require_floats(LARC, [gradient for gradient, _ in pairs])
        weights = [tf.convert_to_tensor(variable) for _, variable in pairs]
        norms = tensor_norms(weights), tensor_norms(gradients)
        raw = self.raw_ratio(policy, rate, *norms)
        ratios = tf.minimum(raw, 1.0) if policy.larc_mode == "clip" else raw
        if asked.wants("larc_summaries"):
            kinds = {"larc_grad_update": ratios, "larc_final_lr": rate * ratios}
            if policy.larc_mode == "clip":
                kinds = {"larc_clip_on": tf.cast(raw < 1.0, tf.int32), **kinds}
            for kind, values in kinds.items():
                for k, entry in enumerate(present):
                    asked.scalar("larc_summaries", kind, values[k], entry.name)
        results = []
        for gradient, ratio in zip(gradients, tf.unstack(ratios), strict=True):
            if gradient.dtype in HALF:
                ratio = saturating_cast(ratio, gradient.dtype)
            results.append(times(gradient, ratio))
        rest = iter(results)
        return [None if e.gradient is None else next(rest) for e in entries]

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


# -- rows ------------------------------------------------------------------------------


def clip_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the clipped ``values``, and a mask of the norms above ``max_norm``.

    Where n = sqrt(sum over axes of w^2) > max_norm, w becomes w max_norm / n, computed
    in at least float32 with norms in float64. Clipped again, a row moves by at most one
    ULP of its largest element. Rows with smaller norms keep their bits.

    Args:
        values: real tensor of any shape.
        axes: distinct axes, all >= 0; without axes each element is its own norm.
        max_norm: the largest norm that is not clipped, > 0.
    """
    wide = tf.float32 if values.dtype in HALF else values.dtype
    limit = tf.cast(as_tensor(max_norm, wide), tf.float64)
    norms = row_norms(values, axes)
    fits = norms <= limit
    # A row of zeros, which fits, must not give an infinity, even an unused one:
    # tf.debugging.enable_check_numerics would stop the program.
    factors = tf.math.divide_no_nan(limit, norms)
    above = row_norms(in_wide(values, factors, wide), axes) > limit
    lower = factors * (1 - MARGINS[values.dtype])
    clipped = in_wide(values, tf.where(above, lower, factors), wide)
    return tf.where(fits, values, clipped), tf.logical_not(fits)


def row_norms(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the norms over ``axes`` in float64; the axes keep length 1."""
    squares = tf.square(tf.cast(values, tf.float64))
    return tf.sqrt(tf.reduce_sum(squares, list(axes), keepdims=True))


def in_wide(values: tf.Tensor, factors: tf.Tensor, wide: tf.DType) -> tf.Tensor:
    """Return w times f, computed in ``wide``."""
    return tf.cast(tf.cast(values, wide) * tf.cast(factors, wide), values.dtype)


def checked_axes(name: str, dims: Any) -> tuple[int, ...]:
    """Return the axes of a variable; raise unless they are integers."""
    try:
        if any(isinstance(axis, bool) for axis in dims):
            raise TypeError("a bool is no axis")
        return tuple(map(operator.index, dims))
    except TypeError as error:
        raise errors.AxesError(
            f"{DIMS}: expected a list of integers for {name!r}, got {dims!r}; write "
            "[1] for the rows of a matrix."
        ) from error


def resolved_axes(name: str, rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return ``axes`` as nonnegative numbers, ascending; raise if it has no such."""
    resolved = sorted({axis % rank for axis in axes if -rank <= axis < rank})
    if len(resolved) < len(axes):
        raise errors.OutOfRangeError(
            f"{DIMS}: expected different axes of {name!r}, which has {rank} dimensions,"
            f" got {list(axes)}; list each axis once."
        )
    return tuple(resolved)
