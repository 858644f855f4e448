"""The arguments of ``optimize_loss``, checked, for TensorFlow and Keras."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import tensorflow as tf

from lockstep.messages.nouns import Nouns
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.optimizer import check_maker, rate_argument
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import Summaries, SummaryRecord
from lockstep.messages.step.training_step import check_rate
from lockstep.tf.shared.clipping import LarcPolicy, Processing, larc_policy
from lockstep.tf.shared.gradients import finite_flags

__all__ = ["Makers", "Task", "find_trained"]


@dataclass(frozen=True)
class Task:
    """The checked arguments of ``optimize_loss`` that a step uses or passes on.

    Attributes:
        settings: the arguments that are plain values.
        loss: a function; in a graph also a tensor.
        optimizer, optimizer_params: create the optimizer.
        learning_rate_decay_fn: steps applied so far -> rate, or a rate.
        summaries: the summaries to record.
        skip_update_ph, model, reduction: see ``optimize_loss``.
        process: makes the clipping or LARC of a step.

    Raises:
        RateFunctionError: ``learning_rate_decay_fn`` cannot be called with the steps.
        OutOfRangeError: a flag, a mapping or an engine of the wrong type.
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
    process: Callable[..., Processing] = Processing

    def __post_init__(self) -> None:
        checks.check_given(
            self.settings.quirks.arguments_unchecked,
            learning_rate_decay_fn=self.learning_rate_decay_fn,
            optimizer_params=self.optimizer_params,
            loss_scaling_params=self.settings.loss_scaling_params,
            skip_update_ph=self.skip_update_ph,
            reduction=self.reduction,
        )

    @cached_property
    def larc_policy(self) -> LarcPolicy | None:
        """The checked parameters of LARC, or None without LARC."""
        params, is_strict = self.settings.larc_params, self.settings.strict
        return None if params is None else larc_policy(params, not is_strict)

    @cached_property
    def rate_at(self) -> Callable[[tf.Tensor], Any]:
        """The function that returns the rate for a number of applied steps."""
        unchecked = self.settings.quirks.arguments_unchecked
        return checks.rate_function(self.learning_rate_decay_fn, unchecked)

    def rate(self, global_step: tf.Tensor) -> Any:
        """Return the rate after ``global_step`` steps; check it if it is known."""
        rate = self.rate_at(global_step)
        known = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
        unchecked = self.settings.quirks.arguments_unchecked
        if (known is not None or rate is None) and not unchecked:
            check_rate(known)
        return rate

    def waits(self, skip_update: Any, count: tf.Tensor) -> tf.Tensor:
        """Whether the sums of ``count`` micro-batches wait for more: bool."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if not self.settings.quirks.arguments_unchecked:
            checks.check_flag("skip_update", flag, answered=True)
        if flag is None:
            return count < self.settings.iter_size
        return tf.convert_to_tensor(flag, tf.bool)

    def fits(
        self, skips: bool, is_told: bool, gradients: Sequence[Any]
    ) -> bool | tf.Tensor:
        """Whether all gradients are finite; True if the check is not needed.

        ``skips``: a step that is not finite is skipped. ``is_told``: summaries are
        recorded, but not those of a skipped step. In eager mode the optimizer names the
        non-finite gradients; clipping first would make the others non-finite too. In a
        graph without summaries no check is needed: clipped gradients are not finite
        either, so the step is skipped as well.
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
        """Return how gradients are processed; record the rate and the loss scale."""
        settings, asked = self.settings, Summaries(self.summaries, record)
        asked.scalar("learning_rate", "learning_rate", rate)
        if asked.wants("loss_scale"):
            scaled = settings.summarized_scale(optimizer, scaler)
            if scaled is not None:
                asked.scalar("loss_scale", "loss_scale", scaled.loss_scale)
        return self.process(asked, settings.clip_gradients, self.larc_policy)


@dataclass(frozen=True)
class Makers:
    """The optimizer classes of a backend.

    Attributes:
        classes: name -> class.
        kind: the base class of all optimizers.
        nouns: the backend's words for that class.
    """

    classes: Mapping[str, Callable[..., Any]]
    kind: type[Any]
    nouns: Nouns

    def make(
        self, optimizer: Any, rate: Any, arguments: Mapping[str, Any], strict: bool
    ) -> Any:
        """Create an optimizer from its name, its class or a function.

        Raises:
            NotAnOptimizerError: a TypeError; the argument creates no optimizer.
        """
        make = self.maker_of(optimizer, strict)
        if not callable(make):
            raise refusals.NOT_AN_OPTIMIZER.error(
                nouns=self.nouns, got=type(optimizer).__name__
            )
        check_maker(make)
        base = make(**{rate_argument(make): rate}, **arguments)
        if not isinstance(base, self.kind):
            raise refusals.NOT_AN_OPTIMIZER.error(
                nouns=self.nouns, got=type(base).__name__
            )
        return base

    def maker_of(self, optimizer: Any, strict: bool) -> Any:
        """Return the class for a name; return other arguments unchanged."""
        if not isinstance(optimizer, str):
            return optimizer
        make = self.classes[optimizer]
        # TensorFlow's own classes are the originals, so they have no ``strict``.
        has_modes = "strict" in inspect.signature(make).parameters
        return partial(make, strict=True) if strict and has_modes else make


def find_trained(
    var_list: Any,
    model: Any,
    default: Any,
    kind: Any,
    as_variable: Callable[[Any], Any],
) -> list[Any]:
    """Return the variables to train: those listed, of the model, or by default.

    Args:
        var_list: a nest of variables, or None.
        model: an object with ``trainable_variables``, or another one.
        default: the variables that are trained without ``var_list`` and ``model``.
        kind: the classes of variables.
        as_variable: returns the variable that a backend's object wraps.

    Raises:
        VarListError: not a nest of variables.
        UnsupportedError: no variables to train.
        OutOfRangeError: variables are listed and the model is a number or a text.
    """
    if var_list is not None:
        checks.check_model("model", model)
    chosen = var_list
    if chosen is None:
        chosen = getattr(model, "trainable_variables", None)
    if chosen is None:
        chosen = default
    if not isinstance(as_variable(chosen), kind | Mapping):
        chosen = checks.listed(chosen, tf.Tensor)
    variables = [as_variable(entry) for entry in tf.nest.flatten(chosen)]
    for entry in variables:
        if not isinstance(entry, kind):
            raise checks.not_a_variable("variables", entry)
    if not variables and var_list is None and model is not None:
        expected = "a model with trainable variables"
        raise checks.untrainable(model, expected, "trainable_variables")
    if not variables:
        got = "neither" if var_list is None else "an empty list"
        raise refusals.NO_VARIABLES.error(
            expected="variables, or a model that has some", got=got
        )
    return variables
