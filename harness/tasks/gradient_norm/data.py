"""Lists of gradients: the recorded inputs of the original, and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from harness.parity.cases import GOLDEN, Case, array, read_cases
from harness.tasks.gradient_norm.settings import Settings
from lockstep.interface import Array

__all__ = ["GradientList", "lists_of", "recorded_lists"]

FAMILY = "multitask_clip"

SMALLEST, LARGEST = 16, 4096
"""The range of the number of elements of a random tensor."""


@dataclass(frozen=True)
class GradientList:
    """The gradients of one step.

    Attributes:
        gradients: one per tensor.
        clip_norm: the limit of their global norm.
        norm: the original's global norm; None if it was not recorded.
    """

    gradients: Sequence[Array]
    clip_norm: float
    norm: Array | None = None


def lists_of(settings: Settings, seed: int) -> list[GradientList]:
    """Return the lists of a run: random ones, or the recorded one of a seed."""
    if settings.is_random:
        stream = np.random.default_rng(seed)
        return [_random(settings, stream) for _ in range(settings.lists)]
    recorded = recorded_lists()
    return [recorded[seed % len(recorded)]]


@cache
def recorded_lists() -> list[GradientList]:
    """Return the recorded lists with a tensor of zeros and a finite norm above zero."""
    cases = read_cases(GOLDEN, [FAMILY])
    return [
        recorded
        for case in cases
        if "raises" not in case.expected and case.inputs.get("dtype") != "float16"
        for recorded in _of_case(case)
        if recorded.norm is not None and np.isfinite(recorded.norm)
        if recorded.norm > 0 and any(not g.any() for g in recorded.gradients)
    ]


def _of_case(case: Case) -> Iterator[GradientList]:
    """Yield the list of a case, or of each of its steps, without None gradients."""
    inputs, results = [case.inputs["gradients"]], [case.expected]
    if "steps" in case.expected:
        inputs, results = case.inputs["gradients"], case.expected["steps"]
    for values, expected in zip(inputs, results, strict=True):
        present = [array(value, "float32") for value in values if value is not None]
        norm = array(expected["global_norm"], "float32")
        yield GradientList(present, float(case.inputs["clip_norm"]), norm)


def _random(settings: Settings, stream: np.random.Generator) -> GradientList:
    """Draw tensors of many sizes and magnitudes; half of the elements are zero."""
    low, high = np.log(SMALLEST), np.log(LARGEST)
    sizes = np.exp(stream.uniform(low, high, settings.tensors)).astype(int)
    magnitudes = 10.0 ** stream.uniform(-3, 0, settings.tensors)
    gradients = [
        magnitude * stream.normal(size=size) * stream.integers(0, 2, size)
        for size, magnitude in zip(sizes, magnitudes, strict=True)
    ]
    for position in stream.permutation(settings.tensors)[: settings.zeros]:
        gradients[position] = np.zeros(sizes[position])
    typed = [gradient.astype(np.float32) for gradient in gradients]
    return GradientList(typed, settings.clip_norm)
