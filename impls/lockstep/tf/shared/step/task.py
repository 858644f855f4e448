"""What a training step asks at each call: the rate, and whether a sum has to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from lockstep.messages.step import arguments as border
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import Summaries, SummaryRecord
from lockstep.messages.step.training_step import check_rate
from lockstep.tf.shared.clipping.post_process import Processing
from lockstep.tf.shared.tensors.finite import finite_flags

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """The arguments of ``optimize_loss`` that a step asks or hands on, checked.

    Attributes:
        settings: those that are plain values.
        loss: a function; in a graph a tensor too.
        optimizer, optimizer_params: what the optimizer is made of.
        learning_rate_decay_fn: steps applied so far -> rate, or a rate.
        summaries: what is to be told.
        skip_update_ph, model, reduction: see ``optimize_loss``.

    Raises:
        RateFunctionError: ``learning_rate_decay_fn`` cannot be called with the steps.
        OutOfRangeError: a flag, a mapping or an engine that is none.
    """

    settings: words.Settings
    loss: Any
    optimizer: Any
    optimizer_params: Any
    learning_rate_decay_fn: Callable[[tf.Tensor], Any]
    summaries: frozenset[str]
    skip_update_ph: Any = None
    model: Any = None
    reduction: Reduction | None = None

    def __post_init__(self) -> None:
        border.check_given(
            self.settings.quirks.arguments_unchecked,
            learning_rate_decay_fn=self.learning_rate_decay_fn,
            optimizer_params=self.optimizer_params,
            loss_scaling_params=self.settings.loss_scaling_params,
            skip_update_ph=self.skip_update_ph,
            reduction=self.reduction,
        )

    @cached_property
    def rate_at(self) -> Callable[[tf.Tensor], Any]:
        """The function that returns the rate after so many steps."""
        unchecked = self.settings.quirks.arguments_unchecked
        return border.rate_function(self.learning_rate_decay_fn, unchecked)

    def rate(self, global_step: tf.Tensor) -> Any:
        """Return the rate after ``global_step`` steps, checked if it is known now."""
        rate = self.rate_at(global_step)
        known = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        unchecked = self.settings.quirks.arguments_unchecked
        if (known is not None or rate is None) and not unchecked:
            check_rate(known)
        return rate

    def waits(self, skip_update: Any, count: tf.Tensor) -> tf.Tensor:
        """Whether sums of ``count`` micro-batches have to wait for more: bool."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if not self.settings.quirks.arguments_unchecked:
            border.check_flag("skip_update", flag, answered=True)
        if flag is None:
            return count < self.settings.iter_size
        return tf.convert_to_tensor(flag, tf.bool)

    def fits(
        self, skips: bool, is_told: bool, gradients: Sequence[Any]
    ) -> bool | tf.Tensor:
        """Whether gradients are finite, where a step that is not ``skips`` the update.

        Eagerly the optimizer names those that are not finite; clipping would spoil the
        others. And what a skipped step finds is not told. Where nobody needs to know,
        clipping leaves something that is not finite, so the step is skipped as well.
        """
        settings = self.settings
        changes = not (settings.clip_gradients is None and settings.larc_params is None)
        asked = is_told or (changes and tf.executing_eagerly())
        if not asked or not skips:
            return True
        finite = tf.reduce_all(finite_flags(gradients))
        return bool(finite) if tf.executing_eagerly() else finite

    def processing(
        self, record: SummaryRecord | None, rate: Any, optimizer: Any, scaler: Any
    ) -> Processing:
        """Return what is to be done with gradients; record the rate and the scale."""
        settings, asked = self.settings, Summaries(self.summaries, record)
        asked.scalar("learning_rate", "learning_rate", rate)
        if asked.wants("loss_scale"):
            scaled = settings.summarized_scale(optimizer, scaler)
            if scaled is not None:
                asked.scalar("loss_scale", "loss_scale", scaled.loss_scale)
        limit, policy = settings.clip_gradients, settings.larc_policy
        return Processing(asked, limit, policy, settings.quirks)
