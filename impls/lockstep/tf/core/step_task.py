"""What a training step asks at each call: the rate, and whether a sum has to wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from lockstep.spec import optimize_loss as words
from lockstep.spec import step_arguments as border
from lockstep.spec.reduction import Reduction

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """The arguments of ``optimize_loss`` that a step asks or hands on.

    Attributes:
        settings: those that are plain values.
        loss: a function; in a graph a tensor too.
        learning_rate_decay_fn: steps applied so far -> rate.
        summaries: what is to be told.
        skip_update_ph, model, reduction: see ``optimize_loss``.
    """

    settings: words.Settings
    loss: Any
    learning_rate_decay_fn: Callable[[tf.Tensor], Any]
    summaries: frozenset[str]
    skip_update_ph: Any = None
    model: Any = None
    reduction: Reduction | None = None

    def rate(self, global_step: tf.Tensor) -> Any:
        """Return the rate after ``global_step`` steps, checked if it is known now."""
        rate = self.learning_rate_decay_fn(global_step)
        known = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        if (known is not None or rate is None) and not self.settings.strict:
            words.check_rate(known)
        return rate

    def waits(self, skip_update: Any, count: tf.Tensor) -> tf.Tensor:
        """Say whether sums of ``count`` micro-batches have to wait for more: bool."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if not self.settings.strict:
            border.check_flag("skip_update", flag, answered=True)
        if flag is None:
            return count < self.settings.iter_size
        return tf.convert_to_tensor(flag, tf.bool)

    def fits_asked(self, pipeline: tuple[str, ...], is_told: bool) -> bool:
        """Say whether gradients are to be looked at before they are clipped.

        Eagerly the optimizer then names those that are not finite; clipping would spoil
        the others. And what a skipped step finds is not told.
        """
        settings = self.settings
        changes = not (settings.clip_gradients is None and settings.larc_params is None)
        asked = is_told or (changes and tf.executing_eagerly())
        return asked and "finite check" in pipeline
