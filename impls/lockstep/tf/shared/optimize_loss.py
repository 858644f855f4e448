"""What ``optimize_loss`` does alike for TensorFlow and Keras.

:class:`TrainingStep` is the base of both steps. The functions at the end average
gradients over ranks, and add up regularization losses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_integer, dtype_name, number_of
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.pipeline import base_of, in_order, stages_of
from lockstep.tf.shared.clipping import (
    Processing,
    Summaries,
    as_entries,
    host_recorder,
    processed,
)
from lockstep.tf.shared.gradients import Gradient, densify, finite_flags, name_of

Pairs = list[tuple[Gradient, Any]]

OWNER = "optimize_loss"
CLIP_AND_LARC = f"{OWNER}: expected clipping or LARC, got both; leave one out."
NEEDED = {
    "AdamW": ("weight_decay", errors.MissingDecayError),
    "Momentum": ("momentum", errors.MissingArgumentError),
}
"""The argument that an optimizer of this name must have, and the error without it."""


class TrainingStep(tf.Module):
    """The step of one backend: its arguments, what it is made of, and its parts.

    A subclass creates the optimizer, is called by the user, and applies gradients. Its
    ``__init__`` gets the arguments of ``optimize_loss`` by name, which become the
    attributes of ``task``, and the variables to train.
    """

    classes: ClassVar[Mapping[str, Any]]
    make_scaler: ClassVar[Any]
    make_masters: ClassVar[Any]
    make_processing: ClassVar[type[Processing]] = Processing

    optimizer: Any
    last_step: StepReport = NO_EAGER_STEP
    record: SummaryRecord | None = None
    in_graph: Any = False
    is_replica = False

    def __init__(self, arguments: Mapping[str, Any], trained: Sequence[Any]) -> None:
        super().__init__()
        # A namespace, because a module tracks lists and dicts.
        self.task = task = SimpleNamespace(**arguments)
        self.mixed = isinstance(task.dtype, str) and task.dtype == "mixed"
        if task.clip_gradients is not None and task.larc_params is not None:
            raise errors.ClipAndLarcError(CLIP_AND_LARC)
        self.check()
        limits = task.clip_gradients, task.larc_params
        self.process = self.make_processing(OWNER, task.summaries, *limits)
        self.trained = tuple(trained)
        self.global_step = self.make_count("global_step")
        self.scaler: Any = None
        self._sums: Accumulators | None = None
        if self.accumulates:
            self._sums = Accumulators(task.iter_size, self.make_count("micro_step"))
        self._rate: Any = None

    def check(self) -> None:
        """Raise for an argument that is out of its range, or has no effect."""
        task, dtype = self.task, dtype_name(self.task.dtype)
        if dtype not in ("float32", "float16", "mixed"):
            raise errors.UnknownNameError(
                f"{OWNER}: dtype: expected float32, float16 or 'mixed', got {dtype!r}; "
                "gradients keep their variables' dtypes, and 'mixed' trains bfloat16 "
                "through float32 masters."
            )
        check_integer(OWNER, "iter_size", task.iter_size)
        scales = self.mixed or number_of(task.loss_scaling) == 1
        named = isinstance(task.loss_scaling, str)
        if not scales or (task.loss_scaling_params and not named):
            raise errors.UnsupportedError(
                f"{OWNER}: expected dtype='mixed' beside loss_scaling, and a scaler's "
                f"name beside loss_scaling_params, got dtype={dtype}, "
                f"loss_scaling={task.loss_scaling!r} and {task.loss_scaling_params!r}; "
                "leave out what has no effect."
            )

    # -- what it is made of ------------------------------------------------------------

    def make_count(self, name: str) -> tf.Variable:
        """Create a count of steps: int64, 0-d."""
        raise NotImplementedError

    def assemble(self) -> None:
        """Create the optimizer, its loss scaler, and the wrapper with masters."""
        scale = self.task.loss_scaling
        self.optimizer = optimizer = self.make_optimizer()
        if self.process.policy is not None and "clip" in stages_of(optimizer):
            raise errors.ClipAndLarcError(CLIP_AND_LARC)
        if isinstance(scale, str):
            scale = self.make_scaler(scale, self.task.loss_scaling_params)
            self.scaler = scale
        if self.mixed:
            self.optimizer = self.make_masters(optimizer, scale)

    def make_optimizer(self) -> Any:
        """Return the optimizer for the argument ``optimizer``."""
        raise NotImplementedError

    def call_optimizer(self, arguments: Mapping[str, Any], rate: Any) -> Any:
        """Return the optimizer that a name, a class or a function stands for."""
        optimizer = self.task.optimizer
        if isinstance(optimizer, str):
            if optimizer not in self.classes:
                raise errors.unknown_name(
                    f"{OWNER}: optimizer", optimizer, self.classes
                )
            needed, error = NEEDED.get(optimizer, ("", errors.MissingArgumentError))
            if needed and needed not in arguments:
                raise error(
                    f"{OWNER}: optimizer_params of {optimizer}: expected {needed!r}, "
                    "got none; add it."
                )
            optimizer = self.classes[optimizer]
        if not callable(optimizer):
            raise errors.NotAnOptimizerError(
                f"{OWNER}: optimizer: expected a name of OPTIMIZER_CLS_NAMES, a class "
                "or a function that makes an optimizer, or one without "
                f"optimizer_params, got {errors.with_article(type(optimizer).__name__)}"
                "; pass its class."
            )
        return optimizer(learning_rate=rate, **arguments)

    @property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated."""
        return self.task.iter_size > 1

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        own = ["accumulate"] * self.accumulates
        own += ["reduce"] * bool(self.task.on_horovod)
        own += ["norm", "clip"] * (self.process.limit is not None)
        own += ["larc"] * (self.process.policy is not None) + ["update"]
        return in_order([*stages_of(self.optimizer), *own])

    @property
    def accumulators(self) -> list[Gradient]:
        """The sum so far for each variable; None if it has none."""
        sums = [] if self._sums is None else self._sums.values
        return sums or [None] * len(self.trained)

    @property
    def micro_step(self) -> tf.Variable | None:
        """The number of micro-batches in the sums: int64, 0-d; None without sums."""
        return None if self._sums is None else self._sums.micro_step

    def __repr__(self) -> str:
        base = type(base_of(self.optimizer)).__name__
        stages = " -> ".join(self.pipeline)
        if not tf.executing_eagerly():
            return f"{OWNER}({base}, in a graph; {stages})"
        trained = f"{len(self.trained)} variable" + "s" * (len(self.trained) != 1)
        step, rate = int(self.global_step.read_value()), float(self.next_rate())
        return f"{OWNER}({base}, {trained}; step {step}, rate {rate:.6g}; {stages})"

    # -- parts of a step ---------------------------------------------------------------

    def next_rate(self) -> Any:
        """Return the learning rate for the next step; check it if it is known."""
        rate = self.task.learning_rate_decay_fn
        rate = rate(self.global_step.read_value()) if callable(rate) else rate
        known = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        is_unknown = known is None and rate is not None
        if not is_unknown and not 0 <= number_of(known) < math.inf:
            raise errors.RateFunctionError(
                f"{OWNER}: learning_rate_decay_fn: expected a finite rate >= 0, or a "
                f"function of the step that returns one, got {known!r}; write "
                "lambda step: 0.1, or functools.partial(policy, ...)."
            )
        return rate

    def compute_loss(self, inputs: Sequence[Any], values: list[Any]) -> tf.Tensor:
        """Return the loss; append what the call of the step returns to ``values``."""
        answer = self.task.loss(*inputs)
        first, *rest = answer if isinstance(answer, tuple) else (answer,)
        if first is None or isinstance(first, str):
            raise errors.LossNotCallableError(
                f"{OWNER}: loss: expected a 0-d tensor, got {first!r}; return the loss "
                "from its function."
            )
        value = tf.convert_to_tensor(first)
        values.append((value, *rest) if isinstance(answer, tuple) else value)
        return value

    def waits(self, skip_update: Any, count: tf.Tensor) -> tf.Tensor:
        """Whether the sums of ``count`` micro-batches wait for more: bool."""
        flag = self.task.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if flag is None:
            return count < self.task.iter_size
        return tf.convert_to_tensor(flag, tf.bool)

    def advance(self, pairs: Pairs, skip_update: Any = None) -> tf.Operation | None:
        """Take a step with these gradients or accumulate them; return the operation."""
        if self._sums is not None:
            return self.add_up(self._sums, pairs, skip_update)
        done, self.record = self.update(pairs)
        return done

    def add_up(
        self, sums: Accumulators, pairs: Pairs, skip_update: Any
    ) -> tf.Operation | None:
        """Add a micro-batch, and take a step with the sums unless they must wait."""
        totals = sums.add(pairs)
        count = sums.micro_step.read_value() + 1
        made: list[SummaryRecord | None] = []

        def wait() -> list[tf.Tensor]:
            if tf.executing_eagerly():
                reason = f"accumulated micro-batch {int(count)} of {sums.iter_size}"
                self.last_step = StepReport(False, reason, ())
            results = [tf.constant(False), *blank(made[0] if made else None)]
            return after(sums.keep(totals, count), results)

        def update() -> list[tf.Tensor]:
            done, record = self.update(totals)
            made.append(record)
            with tf.control_dependencies(as_list(done)):
                cleared = sums.clear()
            return after(cleared, [tf.constant(True), *flat(record)])

        waits = self.waits(skip_update, count)
        known = tf.get_static_value(waits)
        if known is None:
            # The update is traced first: the other branch must return as many values.
            results = tf.cond(tf.logical_not(waits), update, wait)
        else:
            results = wait() if known else update()
        if made:
            self.record = made[0]
            refill(self.record, results[1:])
        return tf.group(results)

    def update(self, pairs: Pairs) -> tuple[tf.Operation | None, SummaryRecord | None]:
        """Process and apply gradients: the operation, and the summaries of a graph."""
        if self.task.on_horovod and not self.is_replica:
            pairs = reduce_gradients(pairs, True, reduction=self.task.reduction)
        record = None if host_recorder() is None else SummaryRecord()
        fits: bool | tf.Tensor = True
        if not self.in_graph:
            fits = self.fits(record, [g for g, _ in pairs if g is not None])
        if fits is False:
            record = None
        else:
            self.record_state(record)
            pairs = processed(self.process, pairs, self._rate, record)
        pairs = self.checked(pairs)
        if not self.in_graph:
            write_summaries(record, self.global_step + 1, fits)
            record = None
        done = self.apply(pairs, record)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            report = getattr(self.optimizer, "last_step", None)
            self.last_step = report or applied(pairs)
        return done, record

    def checked(self, pairs: Pairs) -> Pairs:
        """Return the pairs; raise unless they fit and a gradient is present."""
        raise NotImplementedError

    def apply(self, pairs: Pairs, record: SummaryRecord | None) -> tf.Operation | None:
        """Update with the optimizer, at the rate of this step."""
        raise NotImplementedError

    def fits(
        self, record: SummaryRecord | None, gradients: Sequence[Any]
    ) -> bool | tf.Tensor:
        """Whether all gradients are finite; True if the check is not needed.

        A step that is not finite is skipped, and has no summaries. In eager mode the
        optimizer names the non-finite gradients; clipping first would make the others
        non-finite too. In a graph without summaries no check is needed: clipped
        gradients are not finite either, so the step is skipped as well.
        """
        limits = self.process.limit, self.process.policy
        changes = any(limit is not None for limit in limits)
        needed = record is not None or (changes and tf.executing_eagerly())
        if not needed or "finite check" not in self.pipeline:
            return True
        finite = tf.reduce_all(finite_flags(gradients))
        return bool(finite) if tf.executing_eagerly() else finite

    def record_state(self, record: SummaryRecord | None) -> None:
        """Record the rate and the loss scale of this step, if requested."""
        asked = Summaries(self.process.names, record)
        asked.scalar("learning_rate", "learning_rate", self._rate)
        if asked.wants("loss_scale"):
            scaled = self.scale_source()
            if scaled is not None:
                asked.scalar("loss_scale", "loss_scale", scaled.loss_scale)

    def scale_source(self) -> Any:
        """Return the object whose ``loss_scale`` is recorded, or None."""
        return self.optimizer if "unscale" in self.pipeline else None


def applied(pairs: Pairs) -> StepReport:
    """Return the report of an applied step of an optimizer without reports."""
    absent = tuple(name_of(v) for gradient, v in pairs if gradient is None)
    reason = f"{len(pairs) - len(absent)} of {len(pairs)} variables updated"
    return StepReport(True, reason, absent)


def as_list(operation: Any) -> list[Any]:
    """Return an operation or tensor in a list; an empty list for None and for []."""
    return [] if operation is None or isinstance(operation, list) else [operation]


def after(operation: Any, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return tensors that can be read only after an operation has run."""
    with tf.control_dependencies(as_list(operation)):
        return [tf.identity(tensor) for tensor in tensors]


def find_trained(
    var_list: Any,
    model: Any,
    default: Any,
    kind: Any,
    as_variable: Callable[[Any], Any],
) -> list[Any]:
    """Return the variables to train: those listed, of the model, or by default."""
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


# -- sums over micro-batches -----------------------------------------------------------


class Accumulators(tf.Module):
    """One sum per variable, sparse or dense like its first gradient.

    ``sums`` has the variables of each: the dense sum, or rows and indices, or none.
    """

    def __init__(self, iter_size: int, micro_step: tf.Variable) -> None:
        super().__init__()
        self.iter_size = iter_size
        self.micro_step = micro_step
        self.sums: tuple[tuple[tf.Variable, ...], ...] = ()
        self.shapes: list[tuple[int, ...]] = []

    @property
    def values(self) -> list[Gradient]:
        """The sums so far, one per variable; None if there is none."""
        values: list[Gradient] = []
        for variables, shape in zip(self.sums, self.shapes, strict=True):
            parts = [variable.read_value() for variable in variables]
            if len(parts) == 2:
                parts = [tf.IndexedSlices(*parts, tf.constant(shape, tf.int64))]
            values.append(parts[0] if parts else None)
        return values

    def begin(self, pairs: Pairs) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            self.shapes = [tuple(map(int, variable.shape)) for _, variable in pairs]
            gradients = [gradient for gradient, _ in pairs]
            with tf.init_scope():
                self.sums = tuple(map(make_sum, gradients, self.shapes))

    def add(self, pairs: Pairs) -> Pairs:
        """Return the sums plus a micro-batch; a failed step must not store them."""
        self.begin(pairs)
        totals: Pairs = []
        for total, (gradient, variable) in zip(self.values, pairs, strict=True):
            if len(parts_of(total)) != len(parts_of(gradient)):
                raise errors.UnsupportedError(
                    f"{OWNER}: iter_size: expected the same kinds of gradients in each "
                    "micro-batch, got another kind than before for "
                    f"{name_of(variable)!r}; fill in zeros where the loss does not "
                    "depend on it."
                )
            if isinstance(gradient, tf.IndexedSlices):
                share = gradient.values / tf.cast(self.iter_size, gradient.dtype)
                added = tf.cast(gradient.indices, tf.int64)
                indices = tf.concat([total.indices, added], 0)
                values = tf.concat([total.values, share], 0)
                total = tf.IndexedSlices(values, indices, total.dense_shape)
            elif gradient is not None:
                total += gradient / tf.cast(self.iter_size, gradient.dtype)
            totals.append((total, variable))
        return totals

    def keep(self, pairs: Pairs, count: tf.Tensor) -> tf.Operation | None:
        """Store the sums of ``count`` micro-batches in their variables."""
        parts = [part for gradient, _ in pairs for part in parts_of(gradient)]
        return self._write(parts, count)

    def clear(self) -> tf.Operation | None:
        """Clear the sums: zeros, or no rows."""
        variables = [part for parts in self.sums for part in parts]
        empty = [tf.zeros([n or 0 for n in v.shape], v.dtype) for v in variables]
        return self._write(empty, tf.zeros((), tf.int64))

    def _write(self, values: Sequence[tf.Tensor], count: tf.Tensor) -> Any:
        variables = [part for parts in self.sums for part in parts]
        pairs = zip(variables, values, strict=True)
        done = [variable.assign(value, read_value=False) for variable, value in pairs]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))


def parts_of(gradient: Gradient) -> list[tf.Tensor]:
    """Return the tensors of a gradient: none, one, or rows and their indices."""
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [] if gradient is None else [gradient]


def make_sum(gradient: Gradient, shape: tuple[int, ...]) -> tuple[tf.Variable, ...]:
    """Create the variables of an empty sum like a gradient."""
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return (make_part("total", tf.zeros(shape, gradient.dtype), None),)
    rows = tf.zeros([0, *shape[1:]], gradient.dtype)
    indices = make_part("indices", tf.zeros([0], tf.int64), [None])
    return make_part("values", rows, [None, *shape[1:]]), indices


def make_part(name: str, value: tf.Tensor, shape: Any) -> tf.Variable:
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        name=f"{name}_accum",
        shape=shape,
        validate_shape=shape is None,
        use_resource=True,
    )


# -- summaries of a step ---------------------------------------------------------------


class SummaryRecord:
    """A recorder that stores the last value of each tag."""

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}
        self.histograms: dict[str, Any] = {}

    def scalar(self, tag: str, value: Any) -> None:
        """Store a 0-d value."""
        self.scalars[tag] = value

    def histogram(self, tag: str, values: Any) -> None:
        """Store values of any shape."""
        self.histograms[tag] = values


def write_summaries(
    record: SummaryRecord | None, step: tf.Tensor, wanted: tf.Tensor | bool
) -> None:
    """Write to the default writer of ``tf.summary``, if this step is ``wanted``."""
    if record is None:
        return
    both = tf.logical_and(tf.summary.should_record_summaries(), wanted)
    with tf.summary.record_if(both):
        for tag, value in record.scalars.items():
            tf.summary.scalar(tag, value, step)
        for tag, values in record.histograms.items():
            tf.summary.histogram(tag, values, step)


def flat(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return the values of a record as a list, which a condition can return."""
    if record is None:
        return []
    values = [*record.scalars.values(), *record.histograms.values()]
    return [tf.convert_to_tensor(value) for value in values]


def blank(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return placeholders for the values of a record, for a call without an update.

    A number becomes NaN, which TensorBoard does not draw. A histogram becomes zeros,
    because histograms do not accept NaN, not even those of a 0-d variable.
    """
    numbers = 0 if record is None else len(record.scalars)
    return [
        tf.constant(float("nan"), value.dtype)
        if value.dtype.is_floating and place < numbers
        else tf.zeros([size or 0 for size in value.shape], value.dtype)
        for place, value in enumerate(flat(record))
    ]


def refill(record: SummaryRecord | None, values: list[tf.Tensor]) -> None:
    """Replace a record's values from a branch by the values of the condition."""
    if record is None:
        return
    left = iter(values)
    for kind in (record.scalars, record.histograms):
        kind.update({tag: next(left) for tag in kind})


# -- ranks -----------------------------------------------------------------------------


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

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        """Return, for each flag, whether it is set on any rank."""

    def all_reduce(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return, for each dense tensor, its mean over the ranks."""


@tf.autograph.experimental.do_not_convert
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    on_horovod: bool,
    model: object = None,
    reduction: Reduction | None = None,
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
        reduction: an object with ``size``, ``any`` and ``all_reduce``, as in
            :class:`lockstep.tf.shared.optimize_loss.Reduction`. None: average over the
            replicas of the current ``tf.distribute`` strategy; without a strategy this
            rank is the only one.

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
    entries = as_entries(grads_and_vars, owner)
    reduction = ReplicaReduction() if reduction is None else reduction
    if reduction.size == 1:
        return [(entry.gradient, entry.key) for entry in entries]
    present = reduction.any([entry.gradient is not None for entry in entries])
    kept = compress(entries, present)
    added = [densify(entry.gradient, entry.variable) for entry in kept]
    means = iter(reduction.all_reduce(added) if added else ())
    both = zip(entries, present, strict=True)
    return [(next(means) if known else None, entry.key) for entry, known in both]


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
