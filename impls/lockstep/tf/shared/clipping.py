"""Clipping by the global norm and of rows, and LARC, on tensors and slices.

``clip_gradients_by_global_norm`` is that of ``tf.contrib.opt``. The other functions are
OpenSeq2Seq's, of which ``post_process_gradients`` is a :class:`Processing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_norm_limit, require
from lockstep.larc import LARC, LarcPolicy, larc_policy
from lockstep.tf.shared.gradients import (
    HALF,
    MODEL,
    Gradient,
    as_gradient,
    as_pairs,
    as_tensor,
    as_variable,
    check_dtypes,
    check_shapes,
    require_floats,
    require_variable,
    saturating_cast,
    summed_values,
    times,
    widen,
)

BY_GLOBAL_NORM = "clip_gradients_by_global_norm"
BY_NORM = "clip_gradients_by_norm"
OF_LIST = "clip_by_global_norm"
OWNER = "post_process_gradients"

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


# -- tf.contrib.opt's clipping by the global norm --------------------------------------


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present and not all zero;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient or None, variable), dense or sparse.
        clip_norm: the largest global norm that is not clipped, > 0 and finite.
        error_if_nonfinite: raise instead of returning NaN; in a graph an assertion,
            which raises ``tf.errors.InvalidArgumentError`` when it runs.

    Returns:
        The pairs with clipped gradients, and the norm: float32, 0-d.

    Raises:
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.
        NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. In
    ``fit`` the argument ``global_clipnorm`` of Keras' optimizers does the same.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = [(tf.constant([3.0, 4.0]), w)]
        >>> clipped, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> clipped[0][0].numpy().tolist(), float(norm)
        ([1.5, 2.0], 5.0)
    """
    owner, remedy = BY_GLOBAL_NORM, "give the largest global norm that is not clipped"
    check_norm_limit(owner, "clip_norm", clip_norm, remedy)
    pairs = as_pairs(gradients_variables, owner)
    gradients = [as_gradient(g, v, owner) for g, v in pairs]
    variables = [as_variable(variable) for _, variable in pairs]
    both = zip(gradients, variables, strict=True)
    fitting = [(g, v) for g, v in both if isinstance(v, tf.Variable)]
    check_shapes(owner, fitting)
    with tf.name_scope("global_norm"):
        norm = global_norm(require_floats(owner, gradients))
    if error_if_nonfinite:
        norm = require_finite(norm)
    with tf.name_scope("clip_by_global_norm"):
        clipped = scale_gradients(gradients, clip_factor(norm, clip_norm))
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm


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
    if isinstance(use_norm, int | float):
        require(OF_LIST, "use_norm", use_norm, not use_norm < 0, "a number >= 0")
    with tf.name_scope(name or OF_LIST):
        norm = global_norm(tensors) if use_norm is None else use_norm
        norm = tf.cast(norm, tf.float32)
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

    def histogram(self, tag: str, values: Any) -> None:
        """Record values of any shape; all are finite."""


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
    """A gradient or None, its variable, and the variable as the caller gave it."""

    gradient: Any
    variable: tf.Variable
    key: Any

    @property
    def name(self) -> str:
        """The variable's name for tags."""
        model = getattr(self.key, MODEL, self.key)
        return str(getattr(model, "path", self.variable.name))


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
    for entry in entries:
        if entry.gradient is not None:
            values, weight = summed_values(entry.gradient), entry.variable
            record_values(asked, "gradient", values, entry.name)
            record_values(asked, "variable", tf.convert_to_tensor(weight), entry.name)


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
    """Clips gradients by their global norm, then scales by LARC; records summaries."""

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
        check_shapes(self.owner, [(entry.gradient, entry.key) for entry in entries])

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
        """Return the gradients times their ratios; record these; None stays None."""
        present = [entry for entry in entries if entry.gradient is not None]
        if not present:
            return [None for _ in entries]
        check_dtypes(LARC, [(entry.gradient, entry.key) for entry in present])
        gradients = require_floats(LARC, [entry.gradient for entry in present])
        weights = [tf.convert_to_tensor(entry.variable) for entry in present]
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


# -- OpenSeq2Seq's functions of pairs --------------------------------------------------


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]], clip_gradients: float | tf.Tensor
) -> list[tuple[Gradient, Any]]:
    """Clip gradients by their global norm, each in its variable's dtype afterwards.

    Norm and products are computed in float32, as by :func:`clip_by_global_norm`.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        clip_gradients: the largest global norm that is not clipped, > 0 and finite;
            tensors are not checked.

    Returns:
        The pairs, with clipped gradients.

    Raises:
        OutOfRangeError: a ValueError; ``clip_gradients`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``. In ``fit`` the
    argument ``global_clipnorm`` of Keras' optimizers does nearly the same.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = clip_gradients_by_norm([(tf.constant([3.0, 4.0]), w)], 2.5)
        >>> pairs[0][0].numpy().tolist()
        [1.5, 2.0]
    """
    check_limit(BY_NORM, "clip_gradients", clip_gradients)
    process = Processing(BY_NORM, (), clip_gradients)
    return processed(process, grads_and_vars, None, None)


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Recorder | None = None,
) -> list[tuple[Gradient, Any]]:
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
        >>> pairs = [(tf.constant([48.0, 64.0]), w)]
        >>> parameters = {"larc_eta": 0.0625}
        >>> result = post_process_gradients(pairs, [], 0.125, None, parameters)
        >>> result[0][0].numpy().tolist()  # r = 0.0625 * 5 / (0.125 * 80) = 0.03125
        [1.5, 2.0]
    """
    process = Processing(OWNER, summaries, clip_gradients, larc_params)
    recorder = host_recorder() if recorder is None else recorder
    return processed(process, grads_and_vars, lr, recorder)


def processed(
    process: Processing,
    grads_and_vars: Iterable[Any],
    lr: Any,
    recorder: Recorder | None,
) -> list[tuple[Gradient, Any]]:
    """Return processed pairs; the recorder gets the requested summaries."""
    entries = as_entries(grads_and_vars, process.owner)
    keys = [entry.key for entry in entries]
    return list(zip(process(entries, lr, recorder), keys, strict=True))


def as_entries(grads_and_vars: Iterable[Any], owner: str) -> list[Entry]:
    """Return pairs as entries."""
    entries = []
    for gradient, key in as_pairs(grads_and_vars, owner):
        variable = require_variable(owner, key, "variable")
        entries.append(Entry(as_gradient(gradient, key, owner), variable, key))
    return entries
