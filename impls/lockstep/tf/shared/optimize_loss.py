"""What ``optimize_loss`` does alike for TensorFlow and Keras.

:class:`TrainingStep` is the base of both steps. It has :class:`Accumulators` if
gradients are summed over micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from lockstep import errors
from lockstep.checks import check_integer, dtype_name, number_of
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.larc import larc_policy
from lockstep.pipeline import in_order, stages_of
from lockstep.tf.shared.clipping import check_limit
from lockstep.tf.shared.gradients import Gradient, finite_flags, name_of
from lockstep.tf.shared.post_process import (
    Summaries,
    host_recorder,
    post_process_gradients,
    reduce_gradients,
    requested,
)

Pairs = list[tuple[Gradient, Any]]
Done = tuple[tf.Operation | None, "StepSummaries"]
"""The operation of a call, and the summaries of a graph."""

OWNER = "optimize_loss"
NEEDED: Mapping[str, tuple[str, Any]] = {
    "AdamW": ("weight_decay", errors.MissingDecayError),
    "Momentum": ("momentum", errors.MissingArgumentError),
}
"""The argument that an optimizer of this name must have, and the error without it."""
CLIP_AND_LARC = f"{OWNER}: expected clipping or LARC, got both; leave one out."


class TrainingStep(tf.Module):
    """The step of one backend: its arguments, what it is made of, and its parts.

    A subclass creates the optimizer, is called by the user, and applies gradients. Its
    ``__init__`` gets the arguments of ``optimize_loss`` by name, which become the
    attributes of ``task``, and the variables to train.
    """

    # A subclass has these classes and methods.
    classes: ClassVar[Mapping[str, Any]]
    make_scaler: ClassVar[Any]
    make_masters: ClassVar[Any]
    make_count: Any
    make_optimizer: Any
    checked: Any
    apply: Any

    post_process: ClassVar[Any] = staticmethod(post_process_gradients)
    optimizer: Any
    last_step: StepReport = NO_EAGER_STEP
    in_graph: Any = False

    def __init__(self, arguments: Mapping[str, Any], trained: Sequence[Any]) -> None:
        super().__init__()
        # A namespace, because a module tracks lists and dicts.
        self.task = task = SimpleNamespace(**arguments)
        self.mixed = isinstance(task.dtype, str) and task.dtype == "mixed"
        if not callable(task.loss) and not self.in_graph:
            raise errors.LossNotCallableError(
                f"{OWNER}: loss: expected a function that computes the loss, got "
                f"{errors.with_article(type(task.loss).__name__)}; each step calls it: "
                "pass lambda: ..., or a function of a batch."
            )
        if not trained or len(set(map(id, trained))) < len(trained):
            raise errors.VarListError(
                f"{OWNER}: var_list: expected variables, each once, or a model that "
                f"has trainable ones, got {trained!r:.80} and "
                f"{errors.with_article(type(task.model).__name__)}; list what this "
                "optimizer is to train."
            )
        if task.clip_gradients is not None and task.larc_params is not None:
            raise errors.ClipAndLarcError(CLIP_AND_LARC)
        self.check()
        self.trained = tuple(trained)
        self.global_step = self.make_count("global_step")
        self.scaler: Any = None
        self._sums: Accumulators | None = None
        if self.accumulates:
            shapes = tuple(tuple(variable.shape) for variable in trained)
            count = self.make_count("micro_step")
            self._sums = Accumulators(task.iter_size, count, shapes)
        self._rate: Any = None

    def check(self) -> None:
        """Raise for an argument that is out of its range, or has no effect."""
        task, dtype = self.task, dtype_name(self.task.dtype)
        requested(task.summaries, OWNER)
        if task.clip_gradients is not None:
            check_limit(OWNER, "clip_gradients", task.clip_gradients)
        if task.larc_params is not None:
            larc_policy(task.larc_params)
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

    def assemble(self) -> None:
        """Create the optimizer, its loss scaler, and the wrapper with masters."""
        scale = self.task.loss_scaling
        self.optimizer = optimizer = self.make_optimizer()
        if self.task.larc_params is not None and "clip" in stages_of(optimizer):
            raise errors.ClipAndLarcError(CLIP_AND_LARC)
        if isinstance(scale, str):
            scale = self.make_scaler(scale, self.task.loss_scaling_params)
            self.scaler = scale
        if self.mixed:
            self.optimizer = self.make_masters(optimizer, scale)

    def call_optimizer(self, arguments: Mapping[str, Any], rate: Any) -> Any:
        """Return the optimizer that a name, a class or a function stands for."""
        optimizer = self.task.optimizer
        if isinstance(optimizer, str):
            if optimizer not in self.classes:
                raise errors.unknown_name(
                    f"{OWNER}: optimizer", optimizer, self.classes
                )
            needed, error = NEEDED.get(optimizer, ("", None))
            if error is not None and needed not in arguments:
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
        own += ["norm", "clip"] * (self.task.clip_gradients is not None)
        own += ["larc"] * (self.task.larc_params is not None) + ["update"]
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

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        """Compute the loss and take a step, or add a micro-batch.

        Args:
            inputs: for the loss.
            skip_update: whether to accumulate without an update; None: as given at
                construction. Without ``iter_size`` > 1 it has no effect.

        Returns:
            The loss before the update. If the loss function returns a tuple, that
            tuple, with the loss first.
        """
        values: list[Any] = []
        self._rate = self.next_rate()
        loss = partial(self.compute_loss, inputs, values)
        pairs = self.optimizer.compute_gradients(loss, self.trained)
        self.advance(pairs, skip_update)
        return values[-1]

    def compute_loss(self, inputs: Sequence[Any], values: list[Any]) -> tf.Tensor:
        """Return the loss; append what the call of the step returns to ``values``.

        The gradients of a strategy's replicas are summed, so a replica's loss is
        divided by their number.
        """
        context = tf.distribute.get_replica_context()
        replicas = 1 if context is None else context.num_replicas_in_sync
        if replicas > 1 and not self.task.on_horovod:
            raise errors.UnsupportedError(
                f"{OWNER}: expected on_horovod with several replicas, got {replicas} of"
                " them; pass on_horovod=True, so that their gradients are averaged."
            )
        answer = self.task.loss(*inputs)
        first, *rest = answer if isinstance(answer, tuple) else (answer,)
        if first is None or isinstance(first, str):
            raise errors.LossNotCallableError(
                f"{OWNER}: loss: expected a 0-d tensor, got {first!r}; return the loss "
                "from its function."
            )
        value = tf.convert_to_tensor(first)
        values.append((value, *rest) if isinstance(answer, tuple) else value)
        return value if replicas == 1 else value / replicas

    def advance(self, pairs: Pairs, skip_update: Any = None) -> Done:
        """Take a step with these gradients, or add them to the sums."""
        if self._sums is not None:
            return self.add_up(self._sums, pairs, skip_update)
        return self.update(pairs)

    def add_up(self, sums: Accumulators, pairs: Pairs, skip_update: Any) -> Done:
        """Add a micro-batch, and take a step with the sums unless they must wait."""
        totals = sums.add(pairs)
        count = sums.micro_step.read_value() + 1
        flag = self.task.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        waits = count < self.task.iter_size
        if flag is not None:
            waits = tf.convert_to_tensor(flag, tf.bool)
        made: list[StepSummaries] = []

        def wait() -> list[Any]:
            if tf.executing_eagerly():
                reason = f"accumulated micro-batch {int(count)} of {sums.iter_size}"
                self.last_step = StepReport(False, reason, ())
            summaries = made[0].blank() if made else StepSummaries({}, {})
            parts = [part for total, _ in totals for part in parts_of(total)]
            with tf.control_dependencies([sums.write(parts, count)]):
                return tf.nest.map_structure(tf.identity, [False, summaries])

        def update() -> list[Any]:
            done, summaries = self.update(totals)
            made.append(summaries)
            with tf.control_dependencies([done]):
                cleared = sums.write(None, tf.zeros((), tf.int64))
            with tf.control_dependencies([cleared]):
                return tf.nest.map_structure(tf.identity, [True, summaries])

        known = tf.get_static_value(waits)
        if known is None:
            # The update is traced first: the other branch must return as many values.
            updated, summaries = tf.cond(tf.logical_not(waits), update, wait)
        else:
            updated, summaries = wait() if known else update()
        return tf.group(updated), summaries

    def update(self, pairs: Pairs) -> Done:
        """Process and apply gradients."""
        task, in_graph = self.task, self.in_graph
        if task.on_horovod and task.reduction is not None:
            pairs = reduce_gradients(pairs, True, reduction=task.reduction)
        summaries, fits = StepSummaries({}, {}), True
        listens = host_recorder() is not None
        if not in_graph:
            fits = self.fits(listens, [g for g, _ in pairs if g is not None])
        if fits is not False:
            recorder = summaries if listens else None
            asked = Summaries(requested(task.summaries, OWNER), recorder)
            if "learning_rate" in asked:
                summaries.scalar("learning_rate", self._rate)
            scaled = self.scale_source() if "loss_scale" in asked else None
            if scaled is not None:
                summaries.scalar("loss_scale", scaled.loss_scale)
            given = task.clip_gradients, task.larc_params, recorder
            pairs = self.post_process(pairs, task.summaries, self._rate, *given)
        pairs = self.checked(pairs)
        if listens and not in_graph:
            wanted = tf.logical_and(tf.summary.should_record_summaries(), fits)
            with tf.summary.record_if(wanted):
                summaries.write(tf.summary, self.global_step + 1)
            summaries = StepSummaries({}, {})
        # The summary has the scale before the step, which then updates it.
        scale = [v for tag, v in summaries.scalars.items() if tag == "loss_scale"]
        with tf.control_dependencies(scale):
            done = self.apply(pairs)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            report = getattr(self.optimizer, "last_step", None)
            self.last_step = report or applied(pairs)
        return done, summaries

    def fits(self, listens: bool, gradients: Sequence[Any]) -> bool | tf.Tensor:
        """Whether all gradients are finite; True if the check is not needed.

        A step that is not finite is skipped, and has no summaries. In eager mode the
        optimizer names the non-finite gradients; clipping first would make the others
        non-finite too. In a graph without summaries no check is needed: clipped
        gradients are not finite either, so the step is skipped as well.
        """
        limits = self.task.clip_gradients, self.task.larc_params
        changes = any(limit is not None for limit in limits)
        needed = listens or (changes and tf.executing_eagerly())
        if not needed or "finite check" not in self.pipeline:
            return True
        finite = tf.reduce_all(finite_flags(gradients))
        return bool(finite) if tf.executing_eagerly() else finite

    def scale_source(self) -> Any:
        """Return the object whose ``loss_scale`` is recorded, or None."""
        return self.optimizer if "unscale" in self.pipeline else None


def to_train(var_list: Any, model: Any, default: Any = ()) -> Any:
    """Return the variables to train: those listed, of the model, or by default."""
    if var_list is not None:
        return list(var_list) if isinstance(var_list, Iterator) else var_list
    of_model = getattr(model, "trainable_variables", None)
    return default if of_model is None else of_model


def applied(pairs: Pairs) -> StepReport:
    """Return the report of an applied step of an optimizer without reports."""
    absent = tuple(name_of(v) for gradient, v in pairs if gradient is None)
    reason = f"{len(pairs) - len(absent)} of {len(pairs)} variables updated"
    return StepReport(True, reason, absent)


# -- sums over micro-batches -----------------------------------------------------------


class Accumulators(tf.Module):
    """One sum per variable, sparse or dense like its first gradient.

    ``sums`` has the variables of each: the dense sum, or rows and indices, or none.
    """

    def __init__(
        self, iter_size: int, micro_step: tf.Variable, shapes: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.iter_size = iter_size
        self.micro_step = micro_step
        self.shapes = shapes
        self.sums: tuple[tuple[tf.Variable, ...], ...] = ()

    @property
    def values(self) -> list[Gradient]:
        """The sums so far, one per variable; None if there is none."""
        values: list[Gradient] = []
        for variables, shape in zip(self.sums, self.shapes, strict=False):
            parts = [variable.read_value() for variable in variables]
            if len(parts) == 2:
                parts = [tf.IndexedSlices(*parts, tf.constant(shape, tf.int64))]
            values.append(parts[0] if parts else None)
        return values

    def begin(self, gradients: Sequence[Gradient]) -> None:
        """Create the sums for these gradients, if there are none yet."""
        if not self.sums:
            with tf.init_scope():
                self.sums = tuple(map(make_sum, gradients, self.shapes))

    def add(self, pairs: Pairs) -> Pairs:
        """Return the sums plus a micro-batch; a failed step must not store them."""
        self.begin([gradient for gradient, _ in pairs])
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

    def write(
        self, parts: Sequence[tf.Tensor] | None, count: tf.Tensor
    ) -> tf.Operation | None:
        """Store the sums of ``count`` micro-batches; None clears them."""
        variables = [part for parts in self.sums for part in parts]
        if parts is None:
            parts = [tf.zeros([n or 0 for n in v.shape], v.dtype) for v in variables]
        pairs = zip(variables, parts, strict=True)
        done = [variable.assign(value, read_value=False) for variable, value in pairs]
        return tf.group(*done, self.micro_step.assign(count, read_value=False))


def parts_of(gradient: Gradient) -> list[tf.Tensor]:
    """Return the tensors of a gradient: none, one, or rows and their indices."""
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [] if gradient is None else [gradient]


def make_sum(gradient: Gradient, shape: tuple[int, ...]) -> tuple[tf.Variable, ...]:
    """Create the variables of an empty sum like a gradient."""

    def part(name: str, value: tf.Tensor, shape: Any = None) -> tf.Variable:
        return tf.compat.v1.Variable(
            value,
            trainable=False,
            name=f"{name}_accum",
            shape=shape,
            validate_shape=shape is None,
            use_resource=True,  # Conditions can change it, with any TensorFlow.
        )

    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return (part("total", tf.zeros(shape, gradient.dtype)),)
    values = tf.zeros([0, *shape[1:]], gradient.dtype)
    indices = part("indices", tf.zeros([0], tf.int64), [None])
    return part("values", values, [None, *shape[1:]]), indices


# -- summaries of a step ---------------------------------------------------------------


class StepSummaries(NamedTuple):
    """A recorder of values by tag, which conditions can return."""

    scalars: dict[str, tf.Tensor]
    histograms: dict[str, tf.Tensor]

    def scalar(self, tag: str, value: Any) -> None:
        """Record a 0-d value."""
        self.scalars[tag] = tf.cast(value, tf.float32)

    def histogram(self, tag: str, values: tf.Tensor) -> None:
        """Record values of any shape."""
        self.histograms[tag] = values

    def blank(self) -> StepSummaries:
        """Return values for a call without an update.

        A number is NaN, which TensorBoard does not draw. Histograms do not accept NaN.
        """
        numbers = dict.fromkeys(self.scalars, tf.constant(float("nan")))
        histograms = self.histograms.items()
        zeros = {tag: tf.zeros([], values.dtype) for tag, values in histograms}
        return StepSummaries(numbers, zeros)

    def write(self, recorder: Any, *step: tf.Tensor) -> None:
        """Pass all values to a recorder: TensorFlow's for graphs, or the other one."""
        for tag, value in self.scalars.items():
            recorder.scalar(tag, value, *step)
        for tag, values in self.histograms.items():
            recorder.histogram(tag, values, *step)
