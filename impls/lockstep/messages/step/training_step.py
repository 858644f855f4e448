"""Checks, messages and reports of the training step of ``optimize_loss``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.checks import number_of
from lockstep.interface import StepReport
from lockstep.messages.step import refusals

__all__ = [
    "OWNER",
    "DecayNow",
    "check_rate",
    "joined",
    "loss_and_extras",
    "report_accumulated",
    "report_applied",
    "shown",
]

OWNER = "optimize_loss"


class DecayNow:
    """Strict: the entry of "AdamW" in the caller's dict: current rate x weight decay.

    It behaves like a number with the current value in ``float`` and in products, as the
    tensor in a graph does. Calling it returns this value.

    Quirk ``optimize_loss_dict``.
    """

    __array_ufunc__ = None
    """Makes NumPy use this class's methods for products."""

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
        raise refusals.BAD_RATE.error(got=rate)


def loss_and_extras(answer: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return the loss and the rest of a returned tuple; without a tuple, None."""
    if not isinstance(answer, tuple):
        return answer, None
    if not answer:
        raise refusals.EMPTY_ANSWER.error()
    return answer[0], answer[1:]


def joined(loss: Any, extras: tuple[Any, ...] | None) -> Any:
    """Return the result of a step: the loss, or a tuple that begins with it."""
    return loss if extras is None else (loss, *extras)


def shown(
    optimizer: Any, variables: int, step: int, rate: Any, pipeline: Sequence[str]
) -> str:
    """Return the repr of a step object.

    Args:
        optimizer: the innermost optimizer.
        variables: the number of trained variables.
        step: the number of steps applied so far.
        rate: the learning rate of the last call.
        pipeline: the stages, in order.
    """
    trained = f"{variables} variable" + "s" * (variables != 1)
    now = f"step {step}, rate {float(rate):.6g}"
    stages = " -> ".join(pipeline)
    return f"{OWNER}({type(optimizer).__name__}, {trained}; {now}; {stages})"


def report_accumulated(count: int, iter_size: int) -> StepReport:
    """Return the report of a call that only accumulated a micro-batch."""
    return StepReport(False, f"accumulated micro-batch {count} of {iter_size}", ())


def report_applied(
    inner: StepReport | None, names: Sequence[str], absent: Sequence[str]
) -> StepReport:
    """Return the report of a step: the optimizer's own report, if it has one.

    Args:
        inner: the ``last_step`` of the optimizer, if it has one.
        names: the names of all variables.
        absent: the names of those without a gradient.
    """
    if inner is not None:
        return inner
    count = len(names) - len(absent)
    return StepReport(True, f"{count} of {len(names)} variables updated", tuple(absent))
