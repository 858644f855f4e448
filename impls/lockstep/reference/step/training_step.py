"""The training step of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lockstep.interface import NO_STEP, Gradient, Rows, StepReport
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import Recorder, Summaries
from lockstep.messages.step.training_step import (
    OWNER,
    check_rate,
    joined,
    loss_and_extras,
    report_accumulated,
    report_applied,
    shown,
)
from lockstep.reference.base.pairs import Pairs, check_gradient
from lockstep.reference.clipping.post_process import post_process_gradients
from lockstep.reference.optimizers.classes import base_of
from lockstep.reference.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.reference.scaling.loss_scale import is_finite
from lockstep.reference.step.micro_batches import add_share
from lockstep.reference.step.reduction import reduce_gradients
from lockstep.reference.tensors.variable import Variable

__all__ = ["TrainingStep"]


class TrainingStep:
    """The training step that ``optimize_loss`` returns; call it to take a step.

    ``step(*inputs)`` passes its arguments to the loss. With ``iter_size`` > 1 a call
    accumulates gradients, and each ``iter_size``-th call updates the variables.
    ``skip_update``, in the call or at construction, overrides this.

    Attributes:
        optimizer: the optimizer; with "mixed", the wrapper with masters.
        global_step: the number of applied steps, an int64 variable.
        learning_rate: the rate of the last call.
        last_step: the report of the last call.
        scaler: the automatic loss scaler, or None.
        accumulators: the accumulated gradient of each variable, or None.
        micro_step: the number of accumulated micro-batches.
        recorder: receives the summaries of each applied step; may be None.
    """

    recorder: Recorder | None = None
    last_step: StepReport = NO_STEP

    def __init__(
        self,
        settings: words.Settings,
        loss: Callable[..., Iterable[Gradient]],
        variables: Sequence[Variable],
        learning_rate_decay_fn: Callable[[Any], Any],
    ) -> None:
        self.settings = settings
        self.loss = loss
        self.variables = variables
        self.learning_rate_decay_fn = learning_rate_decay_fn
        self.global_step = Variable("global_step", 0, np.int64)
        self.learning_rate: Any = self.next_rate()
        self.optimizer: Any = None
        self.weight_decay: Any = None
        self.scaler: AutomaticLossScaler | None = None
        self.summaries: frozenset[str] = frozenset()
        self.skip_update_ph: Any = None
        self.model: Any = None
        self.reduction: Reduction | None = None
        self.accumulators: list[Gradient] = [None] * len(variables)
        self.micro_step = 0
        self._extras: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        """Show the optimizer, the number of steps, the rate and the stages."""
        return shown(
            base_of(self.optimizer),
            len(self.variables),
            int(self.global_step.value),
            self.learning_rate,
            self.pipeline,
        )

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        return self.settings.pipeline(self.optimizer)

    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        """Differentiate the loss and take a step, or add a micro-batch.

        Args:
            inputs: for the loss.
            skip_update: whether to accumulate without an update; None: as given at
                construction.

        Returns:
            None, because a loss of the reference returns gradients and no value. If it
            returned a tuple of a list of gradients and more: a tuple of None and the
            rest.
        """
        self._extras = None
        self.learning_rate = self.next_rate()
        loss = partial(self.gradients_of, inputs)
        pairs = self.optimizer.compute_gradients(loss, self.variables)
        if self.settings.accumulates:
            waits = self.waits(skip_update)
            pairs = self.accumulate(pairs)
            if waits:
                self.keep(pairs)
                size = self.settings.iter_size
                self.last_step = report_accumulated(self.micro_step, size)
                return joined(None, self._extras)
        self.apply(pairs)
        self.clear()
        return joined(None, self._extras)

    def gradients_of(self, inputs: Sequence[Any]) -> list[Gradient]:
        """Return the gradients from the loss; raise unless each variable has one."""
        answer = self.loss(*inputs)
        if isinstance(answer, tuple) and answer and isinstance(answer[0], list):
            answer, self._extras = loss_and_extras(answer)
        count = len(self.variables)
        # Iterating over an array or a dict would give rows or keys, not gradients.
        other = isinstance(answer, str | Mapping | np.ndarray | Rows)
        if other or not isinstance(answer, Iterable):
            raise checks.wrong_answer(answer, count)
        gradients = list(answer)
        if len(gradients) != count:
            raise checks.wrong_answer(gradients, count)
        for gradient, variable in zip(gradients, self.variables, strict=True):
            require_shape(gradient, variable)
        return gradients

    def next_rate(self) -> Any:
        """Return the learning rate for the next step."""
        rate = self.learning_rate_decay_fn(self.global_step.value.copy())
        if not self.settings.quirks.arguments_unchecked:
            check_rate(rate)
        return rate

    def accumulate(self, pairs: Pairs) -> Pairs:
        """Return the accumulated gradients with this micro-batch, in pairs.

        They are not stored yet, so that a step that raises changes nothing.
        """
        if self.settings.quirks.optimize_loss_accumulated:
            check_accumulated(pairs)
        for gradient, variable in pairs:
            check_gradient(gradient, variable, OWNER)
        everything = zip(self.accumulators, pairs, strict=True)
        return [
            (add_share(total, gradient, self.settings.iter_size), variable)
            for total, (gradient, variable) in everything
        ]

    def keep(self, pairs: Pairs) -> None:
        """Store the accumulated gradients and count their micro-batch."""
        self.accumulators = [total for total, _ in pairs]
        self.micro_step += 1

    def waits(self, skip_update: Any) -> bool:
        """Return whether this call only accumulates and does not update."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if not self.settings.quirks.arguments_unchecked:
            checks.check_flag("skip_update", flag, answered=True)
        if flag is None:
            return self.micro_step + 1 < self.settings.iter_size
        return bool(flag)

    def apply(self, pairs: Pairs) -> None:
        """Reduce and post-process the gradients, then apply them."""
        settings = self.settings
        if settings.on_horovod:
            pairs = reduce_gradients(pairs, True, self.model, self.reduction)
        if settings.quirks.optimize_loss_order or self.fits(pairs):
            pairs = self.post_process(pairs)
        self.set_hyper_parameters()
        self.optimizer.apply_gradients(pairs, self.global_step)
        names = [variable.name for variable in self.variables]
        absent = [n for n, (g, _) in zip(names, pairs, strict=True) if g is None]
        inner = getattr(self.optimizer, "last_step", None)
        self.last_step = report_applied(inner, names, absent)

    def fits(self, pairs: Pairs) -> bool:
        """Whether the gradients are finite; True if the stages have no finite check.

        This is checked before clipping, because clipping by a non-finite norm changes
        all gradients, and the optimizer reports which ones are not finite.
        """
        if "finite check" not in self.pipeline:
            return True
        return all(is_finite(gradient) for gradient, _ in pairs)

    def post_process(self, pairs: Pairs) -> Pairs:
        """Clip or scale by LARC, and record the requested summaries."""
        settings = self.settings
        summaries = Summaries(self.summaries, self.recorder)
        summaries.scalar("learning_rate", "learning_rate", self.learning_rate)
        scaled = settings.summarized_scale(self.optimizer, self.scaler)
        if scaled is not None:
            summaries.scalar("loss_scale", "loss_scale", scaled.loss_scale)
        return post_process_gradients(
            pairs,
            sorted(self.summaries),
            self.learning_rate,
            settings.clip_gradients,
            settings.larc_params,
            recorder=self.recorder,
            strict=settings.strict,
        )

    def set_hyper_parameters(self) -> None:
        """Set the base optimizer's learning rate, and AdamW's weight decay."""
        base = base_of(self.optimizer)
        name = "lr" if "lr" in base.arguments else "learning_rate"
        now = {name: self.learning_rate}
        if self.weight_decay is not None:
            now["weight_decay"] = self.decay()
        base.arguments = {**base.arguments, **now}

    def decay(self) -> Any:
        """Return AdamW's decay at this step: the rate times ``weight_decay``."""
        decay = self.weight_decay
        return np.float32(self.learning_rate) * (decay() if callable(decay) else decay)

    def clear(self) -> None:
        """Clear the accumulated gradients."""
        self.micro_step = 0
        self.accumulators = [None] * len(self.variables)


def require_shape(gradient: Gradient, variable: Variable) -> None:
    """Raise if a gradient and its variable have different shapes."""
    if gradient is None:
        return
    if isinstance(gradient, Rows):
        shape, like = gradient.values.shape[1:], variable.shape[1:]
    else:
        shape, like = np.shape(gradient), variable.shape
    if tuple(shape) != tuple(like):
        raise refusals.OTHER_SHAPE.error(
            expected=list(like), name=variable.name, got=list(shape)
        )


def check_accumulated(pairs: Pairs) -> None:
    """Raise for gradients that the original cannot accumulate."""
    for gradient, variable in pairs:
        if gradient is None:
            raise refusals.ABSENT_ACCUMULATED.error(name=variable.name)
        if isinstance(gradient, Rows):
            raise refusals.SPARSE_ACCUMULATED.error(name=variable.name)
