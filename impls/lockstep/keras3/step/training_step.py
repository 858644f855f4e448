"""The object that ``optimize_loss`` returns; each call is a training step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.keras3.base.gradients import Gradient, check_gradients, name_of, value_of
from lockstep.keras3.base.replicas import replica_count, together
from lockstep.keras3.base.slots import base_of
from lockstep.keras3.clipping.post_process import post_process
from lockstep.keras3.scaling.loss_scale import state_variable
from lockstep.keras3.scaling.loss_scaler import AutomaticLossScaler
from lockstep.keras3.scaling.scaled_gradients import Pairs
from lockstep.keras3.step.reduction import reduce_gradients
from lockstep.messages.base.pairs import require_gradients
from lockstep.messages.base.refusals import NO_LOSS
from lockstep.messages.step.summaries import SummaryRecord
from lockstep.messages.step.training_step import (
    OWNER,
    joined,
    loss_and_extras,
    report_accumulated,
    report_applied,
    shown,
)
from lockstep.messages.tf import NOT_AVERAGED
from lockstep.tf.shared.step import summaries as summary_records
from lockstep.tf.shared.step.accumulators import Accumulators
from lockstep.tf.shared.step.arguments import Task

__all__ = ["TrainingStep"]


@documented
class TrainingStep(tf.Module):
    """The result of ``optimize_loss``: a call computes gradients and takes a step.

    ...
    """

    optimizer: Any
    last_step: StepReport = NO_EAGER_STEP

    def __init__(self, task: Task, trained: Sequence[Any]) -> None:
        super().__init__()
        self.settings = settings = task.settings
        self.task = task
        self.trained = tuple(trained)
        self.global_step = state_variable("global_step", 0, "int64")
        self.scaler: AutomaticLossScaler | None = None
        self._sums: Accumulators | None = None
        if settings.accumulates:
            self.micro_step = state_variable("micro_step", 0, "int64")
            count = value_of(self.micro_step)
            self._sums = Accumulators(settings.iter_size, count, name_of)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        return self.settings.pipeline(self.optimizer)

    def __repr__(self) -> str:
        base, count = base_of(self.optimizer), len(self.trained)
        if not tf.executing_eagerly():
            return f"{OWNER}({type(base).__name__}, in a graph)"
        step = int(value_of(self.global_step).read_value())
        rate = value_of(base._learning_rate).read_value()
        return shown(base, count, step, rate, self.pipeline)

    @cached_property
    def _skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        return "finite check" in self.pipeline

    @property
    def accumulators(self) -> list[Gradient]:
        """The sum so far for each variable; None if it has none."""
        sums = [] if self._sums is None else self._sums.values
        return sums or [None] * len(self.trained)

    @tf.autograph.experimental.do_not_convert
    @documented
    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        replicas = replica_count()
        if replicas > 1 and not self.settings.on_horovod:
            raise NOT_AVERAGED.error(function=OWNER, count=replicas)
        values: list[Any] = []

        def loss() -> tf.Tensor:
            answer, extras = loss_and_extras(self.task.loss(*inputs))
            if answer is None or isinstance(answer, str):
                raise NO_LOSS.error(owner=OWNER, got=answer)
            value = tf.convert_to_tensor(answer)
            values.append(joined(value, extras))
            return value if replicas == 1 else value / replicas

        rate = self.next_rate()
        pairs = self.optimizer.compute_gradients(loss, self.trained)
        variables = [variable for _, variable in pairs]

        def step(gradients: list[Gradient]) -> None:
            pairs = list(zip(gradients, variables, strict=True))
            if self._sums is None:
                self.update(pairs, rate)
            else:
                self.add_up(self._sums, pairs, rate, skip_update)

        def begin(gradients: list[Gradient]) -> None:
            if self._sums is not None:
                self._sums.begin(list(zip(gradients, variables, strict=True)))

        gradients = [gradient for gradient, _ in pairs]
        if tf.distribute.has_strategy():
            together(OWNER, begin, step, gradients, variables)
        else:
            step(gradients)
        return values[-1]

    def next_rate(self) -> Any:
        """Return the learning rate for the next step."""
        return self.task.rate(value_of(self.global_step).read_value())

    def add_up(
        self, sums: Accumulators, pairs: Pairs, rate: Any, skip_update: Any
    ) -> None:
        """Add a micro-batch, and take a step with the sums unless they must wait."""
        totals = sums.add(pairs, self.settings.quirks)
        count = sums.micro_step.read_value() + 1

        def keep() -> tf.Tensor:
            sums.keep(totals, count)
            if tf.executing_eagerly():
                size = self.settings.iter_size
                self.last_step = report_accumulated(int(count), size)
            return tf.constant(False)

        def update() -> tf.Tensor:
            self.update(totals, rate)
            sums.clear()
            return tf.constant(True)

        waits = self.task.waits(skip_update, count)
        known = tf.get_static_value(waits)
        if known is None:
            tf.cond(waits, keep, update)
        else:
            keep() if known else update()

    def update(self, pairs: Pairs, rate: Any) -> None:
        """Process the gradients and pass them to the optimizer."""
        settings = self.settings
        if settings.on_horovod:
            task = self.task
            pairs = reduce_gradients(pairs, True, task.model, task.reduction)
        record = summary_records.new_record()
        fits = self.fits(pairs, record)
        if settings.quirks.optimize_loss_order or fits is not False:
            pairs = self.post_process(pairs, rate, record)
        variables = [variable for _, variable in pairs]
        gradients = check_gradients([g for g, _ in pairs], variables, OWNER)
        pairs = list(zip(gradients, variables, strict=True))
        require_gradients(pairs, OWNER, map(name_of, variables))
        if fits is not False:
            step = value_of(self.global_step) + 1
            summary_records.write_summaries(record, step, fits)
        self.apply(pairs, rate)

    def apply(self, pairs: Pairs, rate: Any) -> None:
        """Update with the optimizer, at the rate of this step."""
        self.optimizer.learning_rate = rate
        present = [(g, v) for g, v in pairs if g is not None]
        self.optimizer.apply_gradients(present, self.global_step)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            inner = getattr(self.optimizer, "last_step", None)
            names = [name_of(variable) for variable in self.trained]
            absent = [name_of(v) for g, v in pairs if g is None]
            self.last_step = report_applied(inner, names, absent)

    def fits(self, pairs: Pairs, record: SummaryRecord | None) -> bool | tf.Tensor:
        """Whether gradients are finite, if a step that is not finite is skipped."""
        present = [getattr(g, "values", g) for g, _ in pairs if g is not None]
        return self.task.fits(self._skips, record is not None, present)

    def post_process(
        self, pairs: Pairs, rate: Any, record: SummaryRecord | None
    ) -> Pairs:
        """Clip or scale by LARC; record the requested summaries.

        The scales of float8 are unchanged. Keras overwrites them with their gradients.
        """
        to_do = self.task.processing(record, rate, self.optimizer, self.scaler)
        overwrites = self.optimizer._overwrite_variable_with_gradient
        kept = [overwrites(variable) for _, variable in pairs]
        others = [
            pair for pair, is_kept in zip(pairs, kept, strict=True) if not is_kept
        ]
        processed = iter(post_process(to_do, others, rate))
        both = zip(pairs, kept, strict=True)
        return [pair if is_kept else next(processed) for pair, is_kept in both]
