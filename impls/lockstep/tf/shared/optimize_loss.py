"""What ``optimize_loss`` does alike for TensorFlow and Keras.

:class:`Task` has its arguments and their checks. The functions below make its
optimizer, average gradients over ranks, and add up regularization losses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_integer, dtype_name, number_of
from lockstep.pipeline import in_order, stages_of
from lockstep.tf.shared.clipping import LarcPolicy, Processing, check_limit, larc_policy
from lockstep.tf.shared.gradients import densify, finite_flags
from lockstep.tf.shared.summaries import Summaries, SummaryRecord, check_summaries

Gradient = tf.Tensor | tf.IndexedSlices | None

OWNER = "optimize_loss"
CLIP_AND_LARC = f"{OWNER}: expected clipping or LARC, got both; leave one out."
NEEDED = {
    "AdamW": ("weight_decay", errors.MissingDecayError),
    "Momentum": ("momentum", errors.MissingArgumentError),
}
"""The argument that an optimizer of this name must have, and the error without it."""


class Reduction(Protocol):
    """Interface of an object that averages over ranks.

    Every rank calls ``any`` and ``all_reduce`` in the same order, with lists of the
    same length and tensors of the same shapes and dtypes.

    Attributes:
        size: the number of ranks; with a single rank nothing else is called.
    """

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        ...

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        """Return, for each flag, whether it is set on any rank."""
        ...

    def all_reduce(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return, for each dense tensor, its mean over the ranks."""
        ...


# -- arguments -------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The arguments of ``optimize_loss``, checked. A module does not track them."""

    process: ClassVar[type[Processing]] = Processing

    loss: Any
    optimizer: Any
    optimizer_params: Any
    learning_rate_decay_fn: Any
    var_list: Any
    dtype: Any
    clip_gradients: float | None
    summaries: Iterable[str] | None
    larc_params: Mapping[str, Any] | None
    loss_scaling: Any
    loss_scaling_params: Mapping[str, Any] | None
    on_horovod: bool
    iter_size: int
    skip_update_ph: Any
    model: Any
    reduction: Reduction | None

    def __post_init__(self) -> None:
        if self.clip_gradients is not None and self.larc_params is not None:
            raise errors.ClipAndLarcError(CLIP_AND_LARC)
        self.check()

    def check(self) -> None:
        """Raise for an argument that is out of its range, or has no effect."""
        if dtype_name(self.dtype) not in ("float32", "float16", "mixed"):
            raise errors.UnknownNameError(
                f"{OWNER}: dtype: expected float32, float16 or 'mixed', got "
                f"{dtype_name(self.dtype)!r}; gradients keep their variables' dtypes, "
                "and 'mixed' trains bfloat16 through float32 masters."
            )
        if self.clip_gradients is not None:
            check_limit(OWNER, "clip_gradients", self.clip_gradients)
        check_integer(OWNER, "iter_size", self.iter_size)
        scales = self.mixed or number_of(self.loss_scaling) == 1
        named = isinstance(self.loss_scaling, str)
        if not scales or (self.loss_scaling_params and not named):
            raise errors.UnsupportedError(
                f"{OWNER}: expected dtype='mixed' beside loss_scaling, and a scaler's "
                f"name beside loss_scaling_params, got dtype={dtype_name(self.dtype)}, "
                f"loss_scaling={self.loss_scaling!r} and {self.loss_scaling_params!r}; "
                "leave out what has no effect."
            )
        self.asked, self.larc  # noqa: B018

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names of the requested summaries."""
        return check_summaries(self.summaries, OWNER)

    @cached_property
    def larc(self) -> LarcPolicy | None:
        """The checked parameters of LARC, or None without LARC."""
        return None if self.larc_params is None else larc_policy(self.larc_params)

    @property
    def mixed(self) -> bool:
        """Whether half-precision variables have masters and the loss is scaled."""
        return isinstance(self.dtype, str) and self.dtype == "mixed"

    @property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated."""
        return self.iter_size > 1

    def pipeline(self, optimizer: Any) -> tuple[str, ...]:
        """Return the stages that are active with this optimizer, in order."""
        own = ["accumulate"] * self.accumulates + ["reduce"] * bool(self.on_horovod)
        own += ["norm", "clip"] * (self.clip_gradients is not None)
        own += ["larc"] * (self.larc is not None) + ["update"]
        return in_order([*stages_of(optimizer), *own])

    def check_optimizer(self, optimizer: Any) -> None:
        """Raise if LARC is used with a stack that clips."""
        if self.larc is not None and "clip" in stages_of(optimizer):
            raise errors.ClipAndLarcError(CLIP_AND_LARC)

    def rate(self, global_step: tf.Tensor) -> Any:
        """Return the rate after ``global_step`` steps; check it if it is known."""
        rate = self.learning_rate_decay_fn
        rate = rate(global_step) if callable(rate) else rate
        known = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        is_unknown = known is None and rate is not None
        if not is_unknown and not 0 <= number_of(known) < math.inf:
            raise errors.RateFunctionError(
                f"{OWNER}: learning_rate_decay_fn: expected a finite rate >= 0, or a "
                f"function of the step that returns one, got {known!r}; write "
                "lambda step: 0.1, or functools.partial(policy, ...)."
            )
        return rate

    def waits(self, skip_update: Any, count: tf.Tensor) -> tf.Tensor:
        """Whether the sums of ``count`` micro-batches wait for more: bool."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if flag is None:
            return count < self.iter_size
        return tf.convert_to_tensor(flag, tf.bool)

    def fits(
        self, skips: bool, records: bool, gradients: Sequence[Any]
    ) -> bool | tf.Tensor:
        """Whether all gradients are finite; True if the check is not needed.

        ``skips``: a step that is not finite is skipped. ``records``: summaries are
        recorded, but not those of a skipped step. In eager mode the optimizer names the
        non-finite gradients; clipping first would make the others non-finite too. In a
        graph without summaries no check is needed: clipped gradients are not finite
        either, so the step is skipped as well.
        """
        changes = self.clip_gradients is not None or self.larc is not None
        needed = records or (changes and tf.executing_eagerly())
        if not needed or not skips:
            return True
        finite = tf.reduce_all(finite_flags(gradients))
        return bool(finite) if tf.executing_eagerly() else finite

    def processing(
        self, record: SummaryRecord | None, rate: Any, optimizer: Any, scaler: Any
    ) -> Processing:
        """Return how gradients are processed; record the rate and the loss scale."""
        asked = Summaries(self.asked, record)
        asked.scalar("learning_rate", "learning_rate", rate)
        if asked.wants("loss_scale"):
            scaled = self.scale_of(optimizer, scaler)
            if scaled is not None:
                asked.scalar("loss_scale", "loss_scale", scaled.loss_scale)
        return self.process(asked, self.clip_gradients, self.larc)

    def scale_of(self, optimizer: Any, scaler: Any) -> Any:
        """Return the object whose ``loss_scale`` is recorded, or None."""
        return optimizer if "unscale" in self.pipeline(optimizer) else None


def find_trained(
    var_list: Any,
    model: Any,
    default: Any,
    kind: Any,
    as_variable: Callable[[Any], Any],
) -> list[Any]:
    """Return the variables to train: those listed, of the model, or by default.

    ``kind``: the classes of variables; ``as_variable`` returns the variable that a
    backend's object wraps.
    """
    chosen = getattr(model, "trainable_variables", None)
    chosen = default if chosen is None else chosen
    chosen = chosen if var_list is None else var_list
    if isinstance(chosen, Iterator):
        chosen = list(chosen)
    variables = [as_variable(entry) for entry in tf.nest.flatten(chosen)]
    ids = {id(v) for v in variables if isinstance(v, kind)}
    if not variables or len(ids) < len(variables):
        raise errors.VarListError(
            f"{OWNER}: var_list: expected variables, each once, or a model that has "
            f"trainable ones, got {variables!r:.80} and "
            f"{errors.with_article(type(model).__name__)}; list what this optimizer is "
            "to train."
        )
    return variables


def make_optimizer(
    optimizer: Any, arguments: Mapping[str, Any], rate: Any, classes: Mapping[str, Any]
) -> Any:
    """Return the optimizer that a name, a class or a function stands for.

    Raises:
        UnknownNameError: a ValueError; no optimizer has this name.
        MissingDecayError: a KeyError; "AdamW" without ``weight_decay``.
        MissingArgumentError: a TypeError; "Momentum" without ``momentum``.
        NotAnOptimizerError: a TypeError; not a name, a class or a function.
    """
    if isinstance(optimizer, str):
        if optimizer not in classes:
            raise errors.unknown_name(f"{OWNER}: optimizer", optimizer, classes)
        needed, error = NEEDED.get(optimizer, ("", errors.MissingArgumentError))
        if needed and needed not in arguments:
            raise error(
                f"{OWNER}: optimizer_params of {optimizer}: expected {needed!r}, got "
                "none; add it."
            )
        optimizer = classes[optimizer]
    if not callable(optimizer):
        raise errors.NotAnOptimizerError(
            f"{OWNER}: optimizer: expected a name of OPTIMIZER_CLS_NAMES, a class or a "
            "function that makes an optimizer, or one without optimizer_params, got "
            f"{errors.with_article(type(optimizer).__name__)}; pass its class."
        )
    return optimizer(learning_rate=rate, **arguments)


def shown(
    optimizer: Any, variables: int, step: int, rate: Any, pipeline: Sequence[str]
) -> str:
    """Return the repr of a step: its optimizer, variables, steps, rate and stages."""
    trained = f"{variables} variable" + "s" * (variables != 1)
    now = f"step {step}, rate {float(rate):.6g}"
    stages = " -> ".join(pipeline)
    return f"{OWNER}({type(optimizer).__name__}, {trained}; {now}; {stages})"


# -- ranks -----------------------------------------------------------------------------


def check_reduced(on_horovod: Any) -> None:
    """Raise unless ``on_horovod`` is True."""
    if not on_horovod:
        raise errors.NotReducedError(
            "reduce_gradients: expected on_horovod=True, got False; gradients of "
            "several towers in one process were never reduced; add them."
        )


def mean_gradients(
    gradients: Sequence[Gradient],
    variables: Sequence[tf.Variable],
    reduction: Reduction | None,
) -> list[Gradient]:
    """Return each gradient's mean over the ranks, dense; None if absent on all.

    With a single rank the gradients are returned unchanged.
    """
    reduction = ReplicaReduction() if reduction is None else reduction
    if reduction.size == 1:
        return list(gradients)
    present = reduction.any([gradient is not None for gradient in gradients])
    places = [place for place, is_present in enumerate(present) if is_present]
    added = [
        tf.zeros(variables[k].shape, variables[k].dtype.base_dtype)
        if gradients[k] is None
        else densify(gradients[k], variables[k])
        for k in places
    ]
    reduced = reduction.all_reduce(added) if added else []
    means = dict(zip(places, reduced, strict=True))
    return [means.get(place) for place in range(len(gradients))]


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

    @property
    def size(self) -> int:
        """Return the number of replicas."""
        return int(self.context.num_replicas_in_sync)

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


def chosen_losses(losses: Any, scope: str | None) -> list[Any]:
    """Return the losses whose names match ``scope``; all losses without a scope.

    ``losses``: a mapping name -> loss, or an iterable of losses without names. Losses
    of None, which a deferred regularizer returns, are ignored.
    """
    if isinstance(losses, Mapping):
        names = [name for name in losses if re.match(scope or "", str(name))]
        losses = [losses[name] for name in names]
    elif hasattr(losses, "dtype") or scope is not None:
        raise errors.MalformedPairsError(
            "get_regularization_loss: losses: expected a mapping, or an iterable of "
            f"losses without a scope, got {type(losses).__name__} with scope={scope!r};"
            " pass {name: loss}, or a list such as [loss]."
        )
    return [loss for loss in losses if loss is not None]


def sum_losses(losses: Sequence[Any], name: str) -> tf.Tensor:
    """Return the sum of 0-d losses in float32, in their order, each cast first."""
    wide = [tf.cast(loss, tf.float32) for loss in losses]
    return tf.add_n(wide, name) if wide else tf.constant(0.0)
