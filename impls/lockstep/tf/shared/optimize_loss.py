"""What ``optimize_loss`` does alike for TensorFlow and Keras.

:class:`TrainingStep` is the base of both steps, :class:`Accumulators` holds sums of
micro-batches. The functions at the end average gradients over ranks, and add up
regularization losses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_integer, dtype_name, number_of
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.pipeline import base_of, in_order, stages_of
from lockstep.tf.shared.clipping import Entry, Processing, Summaries, host_recorder
from lockstep.tf.shared.gradients import Gradient, Values, densify, finite_flags

Pairs = list[tuple[Gradient, Any]]

OWNER = "optimize_loss"
CLIP_AND_LARC = f"{OWNER}: expected clipping or LARC, got both; leave one out."
NEEDED = {
    "AdamW": ("weight_decay", errors.MissingDecayError),
    "Momentum": ("momentum", errors.MissingArgumentError),
}
"""The argument that an optimizer of this name must have, and the error without it."""


class TrainingStep(tf.Module):
    """The step of one backend: its arguments, their checks, and what it is made of.

    A subclass creates the optimizer and takes the steps. Its ``__init__`` gets the
    arguments of ``optimize_loss`` by name, which become the attributes of ``task``, and
    the variables to train.
    """

    classes: ClassVar[Mapping[str, Any]]
    make_scaler: ClassVar[Any]
    make_masters: ClassVar[Any]
    make_processing: ClassVar[type[Processing]] = Processing

    optimizer: Any
    last_step: StepReport = NO_EAGER_STEP

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
        base, stages = (
            type(base_of(self.optimizer)).__name__,
            " -> ".join(self.pipeline),
        )
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

    def report_added(self, count: tf.Tensor) -> None:
        """Report an eager call that added a micro-batch, without an update."""
        reason = f"accumulated micro-batch {int(count)} of {self.task.iter_size}"
        self.last_step = StepReport(False, reason, ())

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


def applied(count: int, absent: Iterable[str]) -> StepReport:
    """Return the report of an applied step of an optimizer without reports."""
    names = tuple(absent)
    reason = f"{count - len(names)} of {count} variables updated"
    return StepReport(True, reason, names)


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


# -- summaries of a step ---------------------------------------------------------------


class SummaryRecord:
    """A recorder that stores the last value of each tag.

    Attributes:
        scalars: tag -> 0-d tensor.
        histograms: tag -> tensor.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}
        self.histograms: dict[str, Any] = {}

    def scalar(self, tag: str, value: Any) -> None:
        """Store a 0-d value."""
        self.scalars[tag] = value

    def histogram(self, tag: str, values: Any) -> None:
        """Store values of any shape."""
        self.histograms[tag] = values


def new_record() -> SummaryRecord | None:
    """Return an empty record; None if nothing is recorded."""
    return None if host_recorder() is None else SummaryRecord()


def add_to_graph(record: SummaryRecord | None) -> None:
    """Add the record's operations to the collection SUMMARIES of the graph."""
    if record is None:
        return
    for tag, value in record.scalars.items():
        tf.compat.v1.summary.scalar(tag, value)
    for tag, values in record.histograms.items():
        tf.compat.v1.summary.histogram(tag, values)


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


# -- sums of micro-batches -------------------------------------------------------------


class Accumulators(tf.Module):
    """One sum per variable, sparse or dense like its first gradient.

    Args:
        iter_size: the number of micro-batches per step.
        micro_step: the number of micro-batches in the sums: int64, 0-d.

    Attributes:
        sums: for each variable of the first micro-batch the variables of its sum: the
            dense sum, or rows and their indices in the order of their arrival. It is
            empty without a gradient.
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
        return [
            gradient_of([part.read_value() for part in parts], shape)
            for parts, shape in zip(self.sums, self.shapes, strict=True)
        ]

    def begin(self, pairs: Pairs) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            self.shapes = [tuple(map(int, variable.shape)) for _, variable in pairs]
            gradients = [gradient for gradient, _ in pairs]
            with tf.init_scope():
                self.sums = tuple(map(make_sum, gradients, self.shapes))

    def add(self, pairs: Pairs) -> Pairs:
        """Return the sums plus a micro-batch, paired with the variables.

        The result is not stored yet, so a failed step changes nothing.

        Raises:
            UnsupportedError: the kind of a gradient has changed since the first call.
        """
        self.begin(pairs)
        for parts, (gradient, variable) in zip(self.sums, pairs, strict=True):
            if len(parts) != len(parts_of(gradient)):
                name = getattr(variable, "path", variable.name).removesuffix(":0")
                raise errors.UnsupportedError(
                    f"{OWNER}: iter_size: expected the same gradients, dense or sparse,"
                    f" in each micro-batch, got another kind for {name!r} than before; "
                    "fill in zeros where the loss does not depend on it."
                )
        everything = zip(self.values, pairs, strict=True)
        return [
            (None if gradient is None else self.added(total, gradient), variable)
            for total, (gradient, variable) in everything
        ]

    def added(self, total: Gradient, gradient: Values) -> Values:
        """Return total + gradient / iter_size, of which both are sparse or dense."""
        if not isinstance(gradient, tf.IndexedSlices):
            return total + gradient / tf.cast(self.iter_size, gradient.dtype)
        share = gradient.values / tf.cast(self.iter_size, gradient.dtype)
        indices = tf.concat([total.indices, tf.cast(gradient.indices, tf.int64)], 0)
        values = tf.concat([total.values, share], 0)
        return tf.IndexedSlices(values, indices, total.dense_shape)

    def keep(self, pairs: Pairs, count: tf.Tensor) -> tf.Operation | None:
        """Store the sums of ``count`` micro-batches in their variables."""
        return self._write(
            [part for gradient, _ in pairs for part in parts_of(gradient)], count
        )

    def clear(self) -> tf.Operation | None:
        """Clear the sums: zeros, or no rows."""
        variables = [part for parts in self.sums for part in parts]
        empty = [tf.zeros([n or 0 for n in v.shape], v.dtype) for v in variables]
        return self._write(empty, tf.zeros((), tf.int64))

    def _write(self, values: Sequence[tf.Tensor], count: tf.Tensor) -> Any:
        variables = [part for parts in self.sums for part in parts]
        done = [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, values, strict=True)
        ]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))


def parts_of(gradient: Gradient) -> list[tf.Tensor]:
    """Return the tensors of a gradient: none, one, or rows and their indices."""
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [] if gradient is None else [gradient]


def gradient_of(parts: Sequence[tf.Tensor], shape: tuple[int, ...]) -> Gradient:
    """Return the gradient of a shape that has these tensors."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return tf.IndexedSlices(*parts, tf.constant(shape, tf.int64))


def make_sum(gradient: Gradient, shape: tuple[int, ...]) -> tuple[tf.Variable, ...]:
    """Create the variables of an empty sum like a gradient."""
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return (make_variable("total", tf.zeros(shape, gradient.dtype), None),)
    no_rows = tf.zeros([0, *shape[1:]], gradient.dtype)
    return (
        make_variable("values", no_rows, [None, *shape[1:]]),
        make_variable("indices", tf.zeros([0], tf.int64), [None]),
    )


def make_variable(
    name: str, value: tf.Tensor, shape: Sequence[int | None] | None
) -> tf.Variable:
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        name=f"{name}_accum",
        shape=shape,
        validate_shape=shape is None,
        use_resource=True,
    )


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
        ...

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        """Return, for each flag, whether it is set on any rank."""
        ...

    def all_reduce(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return, for each dense tensor, its mean over the ranks."""
        ...


def mean_gradients(
    entries: Sequence[Entry], on_horovod: Any, reduction: Reduction | None
) -> list[Gradient]:
    """Return each gradient's mean over the ranks, dense; None if absent on all.

    With a single rank the gradients are returned unchanged.
    """
    if not on_horovod:
        raise errors.NotReducedError(
            "reduce_gradients: expected on_horovod=True, got False; gradients of "
            "several towers in one process were never reduced; add them."
        )
    reduction = ReplicaReduction() if reduction is None else reduction
    if reduction.size == 1:
        return [entry.gradient for entry in entries]
    present = reduction.any([entry.gradient is not None for entry in entries])
    places = [place for place, is_present in enumerate(present) if is_present]
    added = [
        tf.zeros(variable.shape, variable.dtype.base_dtype)
        if gradient is None
        else densify(gradient, variable)
        for gradient, variable, _ in (entries[place] for place in places)
    ]
    reduced = reduction.all_reduce(added) if added else []
    means = dict(zip(places, reduced, strict=True))
    return [means.get(place) for place in range(len(entries))]


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
    """Return the sum of 0-d losses in float32, in their order, each cast first.

    ``losses``: a mapping name -> loss, of which those whose names match ``scope`` are
    added, or an iterable. Losses of None, which a deferred regularizer returns, are
    ignored.
    """
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
