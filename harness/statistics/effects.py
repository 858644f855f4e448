"""Effects of one arm against another, and statistics of effects over the seeds."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError
from lockstep.errors import sentence

Floats: TypeAlias = npt.NDArray[np.float64]

Effect: TypeAlias = Literal["log ratio", "difference"]
"""How two arms are compared: log(a / b) or a - b."""


def paired_effects(a: npt.ArrayLike, b: npt.ArrayLike, kind: Effect) -> Floats:
    """Return the effect of each pair: log(a / b) or a - b.

    A pair with equal values has effect 0. This includes pairs in which both runs
    diverged, since neither arm is better. If only one diverged, the effect is infinite.

    Args:
        a: metric of one arm, one value per seed.
        b: metric of the other arm, seeds in the same order.
        kind: ``log ratio`` or ``difference``.

    Raises:
        HarnessError: The arms differ in length or are empty, a value is NaN, or the
            log ratio of a negative value is requested.
    """
    one, other = vector(a, "paired_effects"), vector(b, "paired_effects")
    if one.shape != other.shape:
        shapes = f"{len(one)} and {len(other)}"
        remedy = "pass only the seeds that both arms have"
        raise refusal("paired_effects", "as many values of each arm", shapes, remedy)
    with np.errstate(invalid="ignore", divide="ignore"):
        if kind == "difference":
            effects = one - other
        elif kind == "log ratio":
            if min(one.min(), other.min()) < 0:
                remedy = 'set effect = "difference"'
                got = f"{min(one.min(), other.min()):g}"
                raise refusal("log ratio", "metrics of at least 0", got, remedy)
            effects = np.log(one) - np.log(other)
        else:
            expected = "'log ratio' or 'difference'"
            raise refusal("effect", expected, repr(kind), "choose one of the two")
    return np.where(one == other, 0.0, effects)


def steps_to_target(
    steps: npt.ArrayLike,
    values: npt.ArrayLike,
    target: float,
    best: Literal["smallest", "largest"] = "smallest",
) -> float:
    """Return the first step at which the value reaches the target.

    Return infinity if no value does. NaN never does.

    Args:
        steps: optimizer steps at which a run was evaluated, ascending.
        values: metric of the run at these steps.
        target: value to reach.
        best: whether smaller or larger values are better.

    Raises:
        HarnessError: The numbers of steps and values differ.
    """
    when, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if when.shape != values.shape or when.ndim != 1:
        got = f"{when.size} steps and {values.size} values"
        remedy = "pass the series of one run"
        raise refusal("steps_to_target", "one value for each step", got, remedy)
    good = values <= target if best == "smallest" else values >= target
    return float(when[good.argmax()]) if good.any() else float("inf")


def median(values: Floats) -> Floats:
    """Return the median over the seeds, the second axis.

    Infinite values are the largest or smallest. With half of each, the median is 0.
    """
    with np.errstate(invalid="ignore"):
        middle: Floats = np.median(values, axis=1)
    opposite = np.isnan(middle) & ~np.isnan(values).any(axis=1)
    return np.where(opposite, 0.0, middle)


def ratio_of_sums(numerators: Floats, denominators: Floats) -> Floats:
    """sum numerators / sum denominators over the seeds."""
    result: Floats = numerators.sum(axis=1) / denominators.sum(axis=1)
    return result


def vector(values: npt.ArrayLike, subject: str) -> Floats:
    """Return the values as a vector.

    Raises:
        HarnessError: The array is empty or not a vector, or a value is NaN.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not array.size or np.isnan(array).any():
        got = f"shape {array.shape}" + ", NaN among them" * bool(np.isnan(array).any())
        remedy = "count a run that diverged as infinite"
        raise refusal(subject, "a vector of numbers", got, remedy)
    return array


def refusal(subject: str, expected: str, got: str, remedy: str) -> HarnessError:
    """Build an error that names expected, got and remedy."""
    return HarnessError(sentence(subject, expected, got, remedy))
