"""A stack of wrappers on any backend, and what is known of it.

A stack is valid if each step has the bits of the pipeline in
:mod:`harness.composition.by_hand`: unscale, zero filter, finite check, norm, clip,
update, row clip. If the order of two wrappers changes the result, a note says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.composition.layers import BASES, Model
from harness.composition.wrappers import LAYERS, NESTINGS
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array

__all__ = ["build", "has_masters", "model_of", "notes_of", "refusal_of", "skips"]


def model_of(stack: str, driver: Driver, named: Mapping[str, Array]) -> Model:
    """Create variables with these names and values, as ``stack`` needs them."""
    wrappers = [LAYERS[layer].wrapper for layer in stack.split()[:-1]]
    if "AGNOptimizer" not in wrappers:
        return Model([driver.variable(name, value) for name, value in named.items()])
    (worker,) = driver.workers(named, 1)
    return Model(worker.variables, worker)


def build(stack: str, driver: Driver, model: Model) -> Any:
    """Return the optimizer described by ``stack``, for this model."""
    *layers, base = stack.split()
    optimizer = driver.optimizer(base, BASES[base], model.variables)
    for layer in reversed(layers):
        optimizer = LAYERS[layer].wrap(driver, optimizer, model)
    return optimizer


def has_masters(stack: str) -> bool:
    """Return whether half-precision variables are trained through masters."""
    return "masters" in stack


def skips(stack: str) -> bool:
    """Return whether steps with non-finite gradients are skipped."""
    wrappers = {LAYERS[layer].wrapper for layer in stack.split()[:-1]}
    return any(wrapper.startswith("MixedPrecision") for wrapper in wrappers)


def pairs_of(stack: str) -> list[tuple[str, str]]:
    """Return every (outer, inner) pair of a stack's wrappers, adjacent or not."""
    layers = stack.split()[:-1]
    return [(o, i) for k, o in enumerate(layers) for i in layers[k + 1 :]]


def refusal_of(stack: str, backend: str, mode: str = "") -> str | None:
    """Return part of the error of this stack, or None if it can be built."""
    for pair in reversed(pairs_of(stack)):
        if not NESTINGS[pair].refused.isdisjoint({backend, f"{backend} {mode}"}):
            return NESTINGS[pair].sentence
    return None


def notes_of(stack: str) -> frozenset[str]:
    """Return how a stack differs from the listed order of the stages."""
    return frozenset(NESTINGS[p].note for p in pairs_of(stack)) - {""}
