"""What OpenSeq2Seq does with gradients before an update, and its summaries.

``post_process_gradients`` clips gradients or scales them by LARC, ``reduce_gradients``
averages them over ranks. ``sum_losses`` adds up penalties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep import errors
from lockstep.larc import LARC, LarcPolicy, larc_policy
from lockstep.tf.shared.clipping import (
    Pairs,
    check_limit,
    checked_pairs,
    clip_pairs,
    norm_of,
)
from lockstep.tf.shared.gradients import (
    HALF,
    MODEL,
    as_variable,
    check_dtypes,
    check_shapes,
    densify,
    require_floats,
    saturating_cast,
    summed_values,
    times,
)

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


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is computed."""

    names: frozenset[str]
    recorder: Any

    def __contains__(self, name: object) -> bool:
        return self.recorder is not None and name in self.names

    def pairs(self, pairs: Pairs) -> None:
        """Record each gradient that is present, and its variable."""
        for gradient, key in pairs:
            if gradient is not None:
                self._tensor("gradient", gradient, key)
                self._tensor("variable", as_variable(key), key)

    def _tensor(self, kind: str, value: Any, key: Any) -> None:
        """Record the finite values of a tensor, and its norm in float32."""
        if f"{kind}s" not in self and f"{kind}_norm" not in self:
            return
        values = tf.convert_to_tensor(summed_values(value))
        if f"{kind}s" in self:
            finite = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
            self.recorder.histogram(tag_of(f"{kind}s", key), finite)
        if f"{kind}_norm" in self:
            norm = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(values, tf.float32))))
            self.recorder.scalar(tag_of(f"{kind}_norm", key), norm)

    def ratios(
        self, keys: Sequence[Any], ratios: tf.Tensor, rate: tf.Tensor, raw: Any
    ) -> None:
        """Record LARC's ratios: [n]; ``raw``: those before the limit of 1, or None."""
        if "larc_summaries" not in self:
            return
        kinds = {} if raw is None else {"larc_clip_on": tf.cast(raw < 1.0, tf.float32)}
        kinds |= {"larc_grad_update": ratios, "larc_final_lr": rate * ratios}
        for kind, values in kinds.items():
            for k, key in enumerate(keys):
                self.recorder.scalar(tag_of(kind, key), values[k])


def tag_of(kind: str, key: Any) -> str:
    """Return the tag KIND/VARIABLE, with ":" replaced by "_"."""
    model = getattr(key, MODEL, key)
    name = str(getattr(model, "path", as_variable(key).name))
    return f"{kind}/{name.replace(':', '_')}"


def requested(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the names of requested summaries; None means the default ones."""
    names = DEFAULT_SUMMARIES if summaries is None else list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            raise errors.unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return frozenset(names)


def host_recorder() -> Any:
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


# -- clipping, then LARC ---------------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    summaries: Iterable[str] | None,
    lr: float | tf.Tensor,
    clip_gradients: float | tf.Tensor | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
) -> Pairs:
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
        recorder: receives the summaries by ``scalar(tag, value)`` and
            ``histogram(tag, values)``. None: in a graph ``tf.compat.v1.summary``;
            otherwise ``tf.summary``, if there is a default writer.

    Returns:
        The pairs, with processed gradients.

    Raises:
        OutOfRangeError, UnknownNameError: ValueErrors; a parameter or a summary that
            is missing, unknown, of another type or out of range.
        ShapeError: a ValueError; a gradient has another shape than its variable.
        DtypeError: a TypeError; LARC with a gradient of another dtype.
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
    names = requested(summaries, OWNER)
    if clip_gradients is not None:
        check_limit(OWNER, "clip_gradients", clip_gradients)
    policy = None if larc_params is None else larc_policy(larc_params)
    asked = Summaries(names, host_recorder() if recorder is None else recorder)
    pairs = checked_pairs(OWNER, grads_and_vars)
    check_shapes(OWNER, pairs)
    pairs = clip_and_record(pairs, clip_gradients, asked, norm_of)
    if policy is None:
        return pairs
    rate = tf.cast(lr, tf.float32)
    in_range = not isinstance(lr, int | float) or 0 <= lr < math.inf
    if not in_range or not rate.shape.is_compatible_with([]):
        raise errors.OutOfRangeError(
            f"{LARC}: lr: expected a finite number >= 0 or a 0-d tensor, got {lr!r}; "
            "pass the learning rate of this step."
        )
    return scale_by_larc(pairs, rate, policy, asked, larc_ratios)


def clip_and_record(
    pairs: Pairs,
    limit: float | tf.Tensor | None,
    asked: Summaries,
    norm_of: Callable[[str, Pairs], tf.Tensor],
) -> Pairs:
    """Clip gradients by their global norm if there is a limit; record summaries."""
    norm = None
    if limit is not None or GLOBAL_NORM in asked:
        norm = norm_of(OWNER, pairs)
    if GLOBAL_NORM in asked:
        asked.recorder.scalar(GLOBAL_NORM, norm)
    if limit is not None:
        pairs = clip_pairs(pairs, norm, limit)
    asked.pairs(pairs)
    if limit is not None and GLOBAL_NORM in asked:
        asked.recorder.scalar("global_clipped_gradient_norm", norm_of(OWNER, pairs))
    return pairs


def scale_by_larc(
    pairs: Pairs,
    rate: tf.Tensor,
    policy: LarcPolicy,
    asked: Summaries,
    ratios_of: Callable[..., tf.Tensor],
) -> Pairs:
    """Return the pairs with gradients times their ratios, rounded to their dtypes."""
    present = [(gradient, key) for gradient, key in pairs if gradient is not None]
    if not present:
        return pairs
    check_dtypes(LARC, present)
    gradients = require_floats(LARC, [gradient for gradient, _ in present])
    weights = [tf.convert_to_tensor(as_variable(key)) for _, key in present]
    raw = ratios_of(policy, rate, tensor_norms(weights), tensor_norms(gradients))
    clips = policy.larc_mode == "clip"
    ratios = tf.minimum(raw, 1.0) if clips else raw
    keys = [key for _, key in present]
    asked.ratios(keys, ratios, rate, raw if clips else None)
    rest, results = iter(tf.unstack(ratios)), []
    for gradient, key in pairs:
        if gradient is not None:
            ratio = next(rest)
            if gradient.dtype in HALF:
                ratio = saturating_cast(ratio, gradient.dtype)
            gradient = times(gradient, ratio)
        results.append((gradient, key))
    return results


def tensor_norms(tensors: Iterable[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Return the 2-norms of n tensors, duplicate rows summed first, in float32: [n]."""
    values = [tf.cast(summed_values(tensor), tf.float32) for tensor in tensors]
    return tf.sqrt(tf.stack([tf.reduce_sum(tf.square(value)) for value in values]))


def larc_ratios(
    policy: LarcPolicy, rate: tf.Tensor, weight: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Return the ratios for the norms before the limit of 1: float32, [n].

    If both norms are finite, the ratio is 1 where a norm is 0, and in mode "clip" where
    the rate is 0.
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


# -- averages over ranks ---------------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    on_horovod: bool,
    model: object = None,
    reduction: Any = None,
) -> Pairs:
    """Return each gradient's mean over the ranks.

    g = sum over ranks of (g / ranks). A gradient that is absent on some ranks counts as
    zeros there. A gradient that is absent on all ranks stays absent. A sparse gradient
    becomes dense.

    Keras' optimizers sum the gradients of a strategy's replicas themselves, so with
    Keras this function is for custom training loops.

    Args:
        grads_and_vars: iterable of (gradient or None, variable), the same variables in
            the same order on every rank.
        on_horovod: must be True; the original raises otherwise.
        model: as in OpenSeq2Seq; without effect.
        reduction: an object with the number of ranks as ``size``, and two methods that
            all ranks call in the same order: ``any(flags)`` returns for each flag
            whether it is set on any rank, ``all_reduce(tensors)`` the means of dense
            tensors. None: average over the replicas of the current ``tf.distribute``
            strategy; without a strategy this rank is the only one.

    Returns:
        The pairs, with averaged gradients; unchanged for a single rank.

    Raises:
        NotReducedError: a NotImplementedError; ``on_horovod`` is False.
        MalformedPairsError, NoGradientsError: not pairs, or an empty list.
        CrossReplicaError: a RuntimeError; called outside of ``strategy.run``.

    Origin: OpenSeq2Seq (8681d381ed40), ``reduce_gradients``, on Horovod.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = reduce_gradients([(tf.ones([2]), w)], on_horovod=True)
        >>> pairs[0][0].numpy().tolist()
        [1.0, 1.0]
    """
    owner = "reduce_gradients"
    if not on_horovod:
        raise errors.NotReducedError(
            f"{owner}: expected on_horovod=True, got False; gradients of several towers"
            " in one process were never reduced; add them."
        )
    pairs = checked_pairs(owner, grads_and_vars)
    reduction = ReplicaReduction() if reduction is None else reduction
    if reduction.size == 1:
        return pairs
    present = reduction.any([gradient is not None for gradient, _ in pairs])
    added = [densify(g, as_variable(key)) for g, key in compress(pairs, present)]
    means = iter(reduction.all_reduce(added) if added else ())
    both = zip(pairs, present, strict=True)
    return [(next(means) if known else None, key) for (_, key), known in both]


class ReplicaReduction:
    """Means over the replicas of the current strategy, for calls inside its ``run``.

    The replicas of one process agree on absent gradients while they are traced. Several
    workers have to agree by themselves.
    """

    def __init__(self) -> None:
        if tf.distribute.in_cross_replica_context():
            raise errors.CrossReplicaError(
                "reduce_gradients: expected a replica context, got a cross-replica "
                "context; call it inside strategy.run."
            )
        self.context = tf.distribute.get_replica_context()
        self.size = int(self.context.num_replicas_in_sync)

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return, for each flag, whether it is set on any replica."""

        def set_anywhere(strategy: tf.distribute.Strategy, flag: bool) -> bool:
            return any(strategy.experimental_local_results(flag))

        return [self.context.merge_call(set_anywhere, args=(flag,)) for flag in flags]

    def all_reduce(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return each tensor's mean; divide before the sum, which could overflow.

        One collective per dtype, because a strategy concatenates tensors.
        """
        means: dict[int, tf.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [k for k, tensor in enumerate(tensors) if tensor.dtype == dtype]
            shares = [tensors[k] / tf.cast(self.size, dtype) for k in alike]
            summed = self.context.all_reduce(tf.distribute.ReduceOp.SUM, shares)
            means.update(zip(alike, summed, strict=True))
        return [means[k] for k in range(len(tensors))]


# -- regularization losses -------------------------------------------------------------


def sum_losses(losses: Any, name: str, scope: str | None = None) -> tf.Tensor:
    """Return the sum of 0-d losses, or of those matching ``scope``, each in float32."""
    if isinstance(losses, Mapping):
        names = [key for key in losses if re.match(scope or "", str(key))]
        losses = [losses[key] for key in names]
    elif hasattr(losses, "dtype") or scope is not None:
        raise errors.MalformedPairsError(
            "get_regularization_loss: losses: expected a mapping, or an iterable of "
            f"losses without a scope, got {type(losses).__name__} with scope={scope!r};"
            " pass {name: loss}, or a list such as [loss]."
        )
    wide = [tf.cast(loss, tf.float32) for loss in losses if loss is not None]
    return tf.add_n(wide, name) if wide else tf.constant(0.0)
