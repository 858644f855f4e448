"""Stacks of wrappers on any backend, built by its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from harness.parity.drivers.protocol import Driver, Worker
from lockstep.interface import Array
from lockstep.pipeline import base_of
from lockstep.tests.wrappers import BASES, LAYERS, Parts, lacks


class Model(NamedTuple):
    """The variables that are trained.

    Attributes:
        variables: the first is a matrix, whose rows may be clipped.
        worker: owner of the variables, if they belong to a worker.
    """

    variables: Sequence[Any]
    worker: Worker | None = None


def model_of(stack: str, driver: Driver, named: Mapping[str, Array]) -> Model:
    """Create variables with these names and values, as ``stack`` needs them."""
    if "agn" not in stack:
        return Model([driver.variable(name, value) for name, value in named.items()])
    (worker,) = driver.workers(named, 1)
    return Model(worker.variables, worker)


def build(stack: str, driver: Driver, model: Model) -> Any:
    """Return the optimizer described by ``stack``, for this model."""
    if lacks(driver.names, stack):
        pytest.skip(f"{driver.names.__name__} does not have all of {stack}")
    *layers, base = stack.split()
    optimizer = driver.optimizer(base, BASES[base], model.variables)
    return wrapped(layers, driver, model, optimizer)


def wrapped(layers: Sequence[str], driver: Driver, model: Model, optimizer: Any) -> Any:
    """Return an optimizer with these layers around it."""
    axes = {driver.key(model.variables[0]): [1]}
    getter = None if model.worker is None else model.worker.getter
    for layer in reversed(layers):
        optimizer = LAYERS[layer](Parts(driver.names, optimizer, axes, getter))
    return optimizer


def slot_names(driver: Driver, optimizer: Any) -> list[str]:
    """Return the sorted names of the slots of an optimizer."""
    if driver.backend == "reference":
        base = base_of(optimizer)
        return sorted(slot.name for slot in base.spec.active_slots(base.arguments))
    return sorted(optimizer.get_slot_names())
