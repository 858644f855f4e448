"""The words of a step that ``optimize_loss`` made: what it refuses, what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.interface import StepReport
from lockstep.messages.errors import (
    AbsentAccumulatedError,
    LossNotCallableError,
    NoGradientsError,
    OutOfRangeError,
    UnsupportedError,
    sentence,
)
from lockstep.messages.ranges import number_of

__all__ = [
    "OWNER",
    "DecayNow",
    "absent_accumulated",
    "check_rate",
    "joined",
    "loss_and_extras",
    "loss_not_callable",
    "loss_of_others",
    "not_a_count",
    "other_iter_size",
    "other_state",
    "report_accumulated",
    "report_applied",
    "shown",
    "sparse_accumulated",
    "varying",
]

OWNER = "optimize_loss"
AT_MOST = 4
"""How many names a sentence lists."""


class DecayNow:
    """Strict: what "AdamW" leaves in the caller's dict: the rate now x the decay.

    A number: ``float`` and products have the value of the moment, as the tensor does
    that a graph has there. Called, it returns that value.

    # Quirk: docs/differences.md#optimize-loss-dict
    """

    __array_ufunc__ = None
    """NumPy leaves products to this class."""

    def __init__(self, product: Callable[[], Any]) -> None:
        self.product = product

    def __call__(self) -> Any:
        return self.product()

    def __float__(self) -> float:
        return float(self.product())

    def __mul__(self, factor: Any) -> Any:
        return self.product() * factor

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(float(self))


def check_rate(rate: Any) -> None:
    """Raise unless a rate is a finite number >= 0."""
    if not 0 <= number_of(rate) < math.inf:
        subject, expected = f"{OWNER}: learning_rate_decay_fn", "a finite rate >= 0"
        remedy = "return a number, such as lr_policies.poly_decay(global_step, ...)"
        raise OutOfRangeError(sentence(subject, expected, repr(rate), remedy))


def loss_not_callable(got: object) -> LossNotCallableError:
    """A loss that cannot be computed anew at each step."""
    expected = "a function that computes the loss"
    remedy = "each step calls it: pass lambda: ..., or a function of a batch"
    return LossNotCallableError(
        sentence(f"{OWNER}: loss", expected, f"a {type(got).__name__}", remedy)
    )


def loss_and_extras(answer: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return the loss, and what a loss that returns a tuple has besides, else None."""
    if not isinstance(answer, tuple):
        return answer, None
    if not answer:
        expected, remedy = "a loss, or a tuple that begins with one", "return the loss"
        text = sentence(f"{OWNER}: loss", expected, "an empty tuple", remedy)
        raise UnsupportedError(text)
    return answer[0], answer[1:]


def joined(loss: Any, extras: tuple[Any, ...] | None) -> Any:
    """Return what a step returns: the loss, or a tuple that begins with it."""
    return loss if extras is None else (loss, *extras)


def shown(
    optimizer: Any, variables: int, step: int, rate: Any, pipeline: Sequence[str]
) -> str:
    """Return the repr of a step object.

    Args:
        optimizer: the innermost one.
        variables: how many are trained.
        step: the steps applied so far.
        rate: that of the last call.
        pipeline: the stages, in their order.
    """
    trained = f"{variables} variable" + "s" * (variables != 1)
    now = f"step {step}, rate {float(rate):.6g}"
    stages = " -> ".join(pipeline)
    return f"{OWNER}({type(optimizer).__name__}, {trained}; {now}; {stages})"


def absent_accumulated(name: str) -> AbsentAccumulatedError:
    """Strict: an absent gradient, which the original cannot add up.

    # Quirk: docs/differences.md#optimize-loss-accumulated
    """
    remedy = "the original cannot leave it out; leave strict off"
    expected = f"a gradient for {name!r} with iter_size > 1"
    return AbsentAccumulatedError(sentence(OWNER, expected, "None", remedy))


def sparse_accumulated(name: str) -> UnsupportedError:
    """Strict: a sparse gradient, which the original cannot add up.

    # Quirk: docs/differences.md#optimize-loss-accumulated
    """
    remedy = "the original cannot add it up; leave strict off"
    expected = f"a dense gradient for {name!r} with iter_size > 1"
    return UnsupportedError(sentence(OWNER, expected, "a sparse one", remedy))


def varying(name: str) -> UnsupportedError:
    """A graph in which a gradient comes and goes: its sum has no fixed place."""
    expected = "the same gradients, dense or sparse, in each micro-batch"
    remedy = "fill in zeros where the loss does not depend on it"
    got = f"another kind for {name!r} than before"
    return UnsupportedError(sentence(f"{OWNER}: iter_size", expected, got, remedy))


def loss_of_others(names: Sequence[str]) -> NoGradientsError:
    """A loss in which none of the parameters takes part, as in a copy of a step."""
    shown = ", ".join(names[:AT_MOST]) + ", ..." * (len(names) > AT_MOST)
    expected = "a loss that depends on a parameter of this step"
    remedy = (
        "check that it does; the loss of a deepcopy may still be that of the original "
        "model: set step.loss to one of the copied parameters"
    )
    got = f"None as the gradient of every one of {shown}"
    return NoGradientsError(sentence(f"{OWNER}: loss", expected, got, remedy))


def other_state(got: str) -> UnsupportedError:
    """A saved state of something else."""
    expected = "what state_dict() of the same step object returned"
    remedy = "make the step object with the same arguments before loading"
    return UnsupportedError(sentence(f"{OWNER}: state", expected, got, remedy))


def not_a_count(name: str, got: object) -> UnsupportedError:
    """A saved counter that has not counted."""
    expected, remedy = "an int >= 0", "load what state_dict() of the step returned"
    return UnsupportedError(sentence(f"{OWNER}: {name}", expected, repr(got), remedy))


def other_iter_size(micro_step: int, iter_size: int) -> UnsupportedError:
    """Saved sums of shares that are larger or smaller than those of this step."""
    expected = "sums of the iter_size of this step"
    got = f"one of {micro_step} micro-batches with iter_size {iter_size}"
    remedy = "make the step object with the iter_size that was saved"
    subject = f"{OWNER}: iter_size"
    return UnsupportedError(sentence(subject, expected, got, remedy))


def report_accumulated(count: int, iter_size: int) -> StepReport:
    """Say that a micro-batch was added and nothing else happened."""
    return StepReport(False, f"accumulated micro-batch {count} of {iter_size}", ())


def report_applied(
    inner: StepReport | None, names: Sequence[str], absent: Sequence[str]
) -> StepReport:
    """Say what a step did: what the wrapped optimizer says of it, if it says it.

    Args:
        inner: the ``last_step`` of the optimizer, if it has one.
        names: of all variables.
        absent: of those without a gradient.
    """
    if inner is not None:
        return inner
    count = len(names) - len(absent)
    return StepReport(True, f"{count} of {len(names)} variables updated", tuple(absent))
