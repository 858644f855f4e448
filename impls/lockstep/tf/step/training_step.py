"""The training step of ``optimize_loss``, which is called or built into a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages import tf as tf_host
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.step.summaries import SummaryRecord
from lockstep.messages.step.training_step import (
    OWNER,
    joined,
    loss_and_extras,
    report_accumulated,
    report_applied,
    shown,
)
from lockstep.tf.clipping import processed
from lockstep.tf.replicas import (
    Pairs,
    awaits_sums,
    make_together,
    name_of,
    replica_count,
    summed_gradients,
    sums_over_replicas,
)
from lockstep.tf.scaling.loss_scale import state_variable
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler
from lockstep.tf.shared.gradients import Gradient, apart
from lockstep.tf.shared.step import summaries as summary_records
from lockstep.tf.shared.step.accumulators import Accumulators
from lockstep.tf.shared.step.arguments import Task
from lockstep.tf.step.reduction import reduce_gradients
from lockstep.tf.wrapper import (
    Wrapper,
    apply_with,
    as_train_op,
    base_of,
    builds_graph,
    check_pairs,
    require_resources,
)

__all__ = ["TrainingStep"]

RATES = ("_lr", "_learning_rate")
"""The names of v1 optimizers' attributes for the rate."""


@documented
class TrainingStep(tf.Module):
    """...

    In a graph the step is already built. It is the attribute ``training_step`` of the
    returned tensor, for inspection.

    Attributes:
        ...
        record: the summaries of a graph, by tag; None in other modes.
        is_replica: whether it is the step of one of several replicas.
    """

    optimizer: Any
    last_step: StepReport = NO_EAGER_STEP
    weight_decay: Any = None
    record: SummaryRecord | None = None
    is_replica = False

    def __init__(self, task: Task, trained: Sequence[tf.Variable]) -> None:
        super().__init__()
        self.settings = settings = task.settings
        self.task = task
        self.trained = tuple(trained)
        self.global_step = make_counter()
        self.scaler: AutomaticLossScaler | None = None
        self._sums: Accumulators | None = None
        if settings.accumulates:
            micro_step = state_variable("micro_step", 0, tf.int64)
            self._sums = Accumulators(settings.iter_size, micro_step, name_of)
        self._rate: Any = None

    def __repr__(self) -> str:
        """Return the optimizer, the steps so far, the rate and the stages."""
        base, count = base_of(self.optimizer), len(self.trained)
        if builds_graph():
            stages = " -> ".join(self.pipeline)
            return f"{OWNER}({type(base).__name__}, in a graph; {stages})"
        step, rate = int(self.global_step.read_value()), self.next_rate()
        return shown(base, count, step, rate, self.pipeline)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        return self.settings.pipeline(self.optimizer)

    @cached_property
    def _skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        return "finite check" in self.pipeline

    @property
    def accumulators(self) -> list[Gradient]:
        """The sum so far for each variable; None if it has none."""
        sums = [] if self._sums is None else self._sums.values
        return sums or [None] * len(self.trained)

    @property
    def micro_step(self) -> tf.Variable | None:
        """The number of micro-batches in the sums: int64, 0-d; None without sums."""
        return None if self._sums is None else self._sums.micro_step

    @tf.autograph.experimental.do_not_convert
    @documented
    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        if replica_count() > 1 and not self.is_replica:
            raise tf_host.OUTSIDE_RUN.error(function=OWNER, count=replica_count())
        values: list[Any] = []

        def loss() -> tf.Tensor:
            answer, extras = loss_and_extras(self.task.loss(*inputs))
            if answer is None or isinstance(answer, str):
                raise base_refusals.NO_LOSS.error(owner=OWNER, got=answer)
            value = tf.convert_to_tensor(answer)
            values.append(joined(value, extras))
            return value

        self._rate = self.next_rate()
        pairs = self.optimizer.compute_gradients(loss, self.trained)
        pairs = self.reduced(pairs) if self.is_replica else pairs
        self.advance(pairs, skip_update)
        return values[-1]

    def build(self, loss: tf.Tensor) -> tf.Tensor:
        """Build the step; return the loss before the update, evaluated after it."""
        pairs = self.optimizer.compute_gradients(
            loss, self.trained, colocate_gradients_with_ops=True
        )
        # Without this, a loss that no gradient reads could be computed after the
        # update.
        with tf.control_dependencies([loss]):
            updated = as_train_op(lambda: self.advance(pairs))
        with tf.control_dependencies([updated]):
            return tf.identity(loss, name="train_loss")

    def next_rate(self) -> Any:
        """Return the learning rate for the next step."""
        return self.task.rate(self.global_step.read_value())

    def advance(self, pairs: Pairs, skip_update: Any = None) -> tf.Operation | None:
        """Take a step with these gradients or accumulate them; return the operation."""
        if not awaits_sums() or self.is_replica:
            return self._advance(pairs, skip_update)
        # The only replica of a strategy: state cannot be created inside a condition.
        pairs = sums_over_replicas(pairs)
        touched = [v for g, v in pairs if g is not None]
        make_together(lambda: make_slots(self.optimizer, touched))
        with summed_gradients():
            return self._advance(pairs, skip_update)

    def _advance(self, pairs: Pairs, skip_update: Any) -> tf.Operation | None:
        if self._sums is None:
            done, self.record = self.update(pairs)
            return done
        return self.add_up(self._sums, pairs, skip_update)

    def add_up(
        self, sums: Accumulators, pairs: Pairs, skip_update: Any
    ) -> tf.Operation | None:
        """Add a micro-batch, and take a step with the sums unless they must wait."""
        totals = sums.add(pairs, self.settings.quirks)
        count = sums.micro_step.read_value() + 1
        records: list[SummaryRecord | None] = []

        def wait() -> list[tf.Tensor]:
            self.note_added(totals, count)
            record = records[0] if records else None
            results = [tf.constant(False), *summary_records.blank(record)]
            return after(sums.keep(totals, count), results)

        def update() -> list[tf.Tensor]:
            done, record = self.update(totals)
            records.append(record)
            with tf.control_dependencies(as_list(done)):
                cleared = sums.clear()
            results = [tf.constant(True), *summary_records.flat(record)]
            return after(cleared, results)

        waits = self.task.waits(skip_update, count)
        known = tf.get_static_value(waits)
        if known is None:
            self.require_resources(pairs)
            # The update is traced first: the other branch must return as many values.
            results = tf.cond(tf.logical_not(waits), update, wait)
        else:
            results = wait() if known else update()
        if records:
            self.record = records[0]
            summary_records.refilled(self.record, results[1:])
        return tf.group(results)

    def require_resources(self, pairs: Pairs) -> None:
        """Raise for variables that an update under a condition cannot change."""
        require_resources([v for g, v in pairs if g is not None])
        require_resources([*self.trained, self.global_step])

    def update(self, pairs: Pairs) -> tuple[tf.Operation | None, SummaryRecord | None]:
        """Process the gradients and pass them to the optimizer.

        Returns:
            The operation, and the summaries of a graph.
        """
        late = self.settings.quirks.optimize_loss_order
        if self.settings.on_horovod and not self.is_replica:
            pairs = self.reduced(pairs)
        record = summary_records.new_record()
        in_graph = builds_graph()
        fits = in_graph or self.fits(pairs, record)
        if not late and fits is False:
            processed, record = pairs, None
        else:
            processed = self.post_process(pairs, record)
        processed = check_pairs(processed, OWNER)
        if not in_graph:
            summary_records.write_summaries(record, self.global_step + 1, fits)
            record = None
        done = self.apply(processed, record)
        return done, record

    def reduced(self, pairs: Pairs) -> Pairs:
        """Return the gradients averaged over the ranks."""
        return reduce_gradients(pairs, True, self.task.model, self.task.reduction)

    def apply(self, pairs: Pairs, record: SummaryRecord | None) -> tf.Operation | None:
        """Update with the optimizer, at the rate of this step."""
        base = base_of(self.optimizer)
        for name in RATES:
            if name in vars(base):
                setattr(base, name, self._rate)
        # The summary has the scale before the step, which then updates it.
        scale = [] if record is None else record.scalars.get("loss_scale", [])
        # A replica updates its own copies, outside of the strategy.
        own = apart() if self.is_replica else contextlib.nullcontext()
        with tf.control_dependencies(as_list(scale)), own:
            done = apply_with(self.optimizer, pairs, self.global_step)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            inner = getattr(self.optimizer, "last_step", None)
            names = [name_of(variable) for variable in self.trained]
            absent = [name_of(v) for g, v in pairs if g is None]
            self.last_step = report_applied(inner, names, absent)
        return done

    def fits(self, pairs: Pairs, record: SummaryRecord | None) -> bool | tf.Tensor:
        """Whether gradients are finite, if a step that is not finite is skipped."""
        present = [g for g, _ in pairs if g is not None]
        return self.task.fits(self._skips, record is not None, present)

    def post_process(self, pairs: Pairs, record: SummaryRecord | None) -> Pairs:
        """Clip or scale by LARC; record the requested summaries."""
        rate = self._rate
        process = self.task.processing(record, rate, self.optimizer, self.scaler)
        return processed(process, pairs, rate)

    def decay(self) -> Any:
        """Return AdamW's decay at this step: the rate times the argument."""
        decay = self.weight_decay
        rate = self.next_rate() if self._rate is None else self._rate
        return rate * (decay() if callable(decay) else decay)

    def note_added(self, pairs: Pairs, count: tf.Tensor) -> None:
        """In eager mode, report that a micro-batch was added, without an update.

        As in a graph, the slots exist from then on.
        """
        if not tf.executing_eagerly():
            return
        make_slots(self.optimizer, [v for g, v in pairs if g is not None])
        size = self.settings.iter_size
        self.last_step = report_accumulated(int(count), size)


def make_counter() -> tf.Variable:
    """Return the global step of a graph; in other modes create a counter."""
    if builds_graph():
        return tf.compat.v1.train.get_or_create_global_step()
    return state_variable("global_step", 0, tf.int64)


def make_slots(optimizer: Any, variables: list[tf.Variable]) -> None:
    """Create the slots of variables unless they exist."""
    if isinstance(optimizer, Wrapper):
        optimizer.create_slots(variables)
        return
    with tf.init_scope():
        optimizer._create_slots(variables)


def as_list(operation: Any) -> list[Any]:
    """Return an operation or tensor in a list; an empty list for None and for []."""
    if operation is None or isinstance(operation, list):
        return []
    return [operation]


def after(operation: Any, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return tensors that can be read only after an operation has run."""
    with tf.control_dependencies(as_list(operation)):
        return [tf.identity(tensor) for tensor in tensors]
