"""Mutants of ``optimize_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import Mutant, constant, instead, of_class

__all__ = ["mutants"]

STEP = ("optimize_loss",)


def rate_of_the_next_step(right: Any) -> Any:
    """Make ``next_rate`` return the rate of the step after."""
    return lambda self: self.learning_rate_decay_fn(self.global_step.value + 1)


def first_rate_for_ever(right: Any) -> Any:
    """Make ``next_rate`` return the rate of the first step in all steps."""

    def next_rate(self: Any) -> Any:
        return vars(self).setdefault("first", right(self))

    return next_rate


def decay_without_rate(right: Any) -> Any:
    """Make ``decay`` return the weight decay without the learning rate."""
    return lambda self: self.weight_decay


def warned_of(right: Any) -> Any:
    """Make a function raise Warning in place of any other exception."""

    def arguments_for(*arguments: Any) -> Any:
        try:
            return right(*arguments)
        except Exception as error:
            raise Warning(str(error)) from error

    return arguments_for


def counted_though_skipped(right: Any) -> Any:
    """Make ``apply`` advance the global step even if the step is skipped."""

    def apply(self: Any, pairs: Any) -> None:
        before = self.global_step.value
        right(self, pairs)
        self.global_step.value = before + 1

    return apply


def counted_though_accumulated(right: Any) -> Any:
    """Make ``accumulate`` advance the global step, except the first time in a sum."""

    def accumulate(self: Any, pairs: Any) -> Any:
        if self.micro_step:
            self.global_step.value = self.global_step.value + 1
        return right(self, pairs)

    return accumulate


def whole_gradient(right: Any) -> Any:
    """Make ``add_share`` add the whole gradient, not 1 / ``iter_size`` of it."""
    return lambda total, gradient, iter_size: right(total, gradient, 1)


def last_one_only(right: Any) -> Any:
    """Make ``add_share`` forget the sum so far."""

    def add(total: Any, gradient: Any, iter_size: int) -> Any:
        return right(None, gradient, iter_size)

    return add


def mean_of_those_there(right: Any) -> Any:
    """Make ``apply`` divide by the number of micro-batches in the sum."""

    def apply(self: Any, pairs: Any) -> None:
        if self.settings.accumulates:
            factor = self.settings.iter_size / self.micro_step
            pairs = [(g * np.asarray(factor, g.dtype), v) for g, v in pairs]
        right(self, pairs)

    return apply


def unprocessed(pairs: Any, *rest: Any, **options: Any) -> Any:
    """Return the pairs as they are."""
    return pairs


def processed_twice(right: Any) -> Any:
    """Make ``post_process_gradients`` run twice."""

    def process(pairs: Any, *rest: Any, **options: Any) -> Any:
        return right(right(pairs, *rest, **options), *rest, **options)

    return process


def without_masters(step: Any, base: Any, loss_scaling: Any) -> Any:
    """Return the base optimizer without masters."""
    return base


def unchecked(optimizer: Any, optimizer_params: Any, *rest: Any) -> Any:
    """Return a copy of the parameters of the optimizer, unchecked."""
    return dict(optimizer_params)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of ``optimize_loss``."""
    from lockstep import reference

    default = instead(reference.optimize_loss)
    module, step = "step.optimize_loss", "step.training_step.TrainingStep"
    words, process = f"{module}.words", "step.training_step.post_process_gradients"
    rate, apply = f"{step}.next_rate", f"{step}.apply"
    share, no_scaler = "step.training_step.add_share", constant(None)
    functions = (f"{module}.instance", "scaling.automatic_scaler.words._unknown")
    rows = (
        f"{words}.refusals.NO_FLAG",
        f"{words}.clipping_refusals.CLIP_AND_LARC",
        f"{words}.masters_refusals.UNUSABLE",
        "step.training_step.refusals.ABSENT_ACCUMULATED",
        "step.training_step.refusals.SPARSE_ACCUMULATED",
    )
    return (
        Mutant(rate, "that of the next step", rate_of_the_next_step, STEP),
        Mutant(rate, "that of the first step", first_rate_for_ever, STEP),
        Mutant(f"{step}.decay", "without the rate", decay_without_rate, STEP),
        Mutant(f"{step}.set_hyper_parameters", "forgotten", constant(None), STEP),
        Mutant(apply, "forgotten", constant(None), STEP),
        Mutant(apply, "a skipped step counts", counted_though_skipped, STEP),
        Mutant(apply, "mean of those there", mean_of_those_there, STEP),
        Mutant(f"{step}.accumulate", "counted", counted_though_accumulated, STEP),
        Mutant(f"{step}.waits", "never", constant(False), STEP),
        Mutant(f"{step}.waits", "always", constant(True), STEP),
        Mutant(f"{step}.clear", "forgotten", constant(None), STEP),
        Mutant(share, "not divided", whole_gradient, STEP),
        Mutant(share, "last one only", last_one_only, STEP),
        Mutant(process, "forgotten", instead(unprocessed), STEP),
        Mutant(process, "twice", processed_twice, STEP),
        Mutant(f"{module}.with_masters", "forgotten", instead(without_masters), STEP),
        Mutant(f"{module}.AutomaticLossScaler", "not made", no_scaler, STEP),
        Mutant(f"{module}.check_summaries", "no check", constant(frozenset()), STEP),
        Mutant(f"{module}.arguments_for", "no check", instead(unchecked), STEP),
        Mutant(f"{module}.arguments_for", "another error", warned_of, STEP),
        Mutant("strict.optimize_loss", "not strict", default, STEP),
        *(Mutant(error, "no error", instead(Warning), STEP) for error in functions),
        *(Mutant(error, "no error", of_class(Warning), STEP) for error in rows),
    )
