"""Shared by the families: apply gradients step by step, read the whole state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, Variable, array, gradient
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import RULES

__all__ = [
    "Training",
    "flat",
    "flat_gradient",
    "recorded_state",
    "recorded_trajectory",
]

State = Mapping[str, Array]


class Training:
    """The variables, the base optimizer and the counter of one case on one backend."""

    def __init__(self, case: Case, driver: Driver) -> None:
        name, args = case.optimizer, case.inputs["optimizer"].get("args", {})
        if name not in RULES:
            raise CannotInterpretError(f"the optimizer {name!r}")
        kind = case.inputs.get("variable_kind")
        self.driver = driver
        self.spec = RULES[name]
        self.recorded: Sequence[Variable] = case.variables
        self.variables = [driver.variable(v.name, v.value, kind) for v in self.recorded]
        self.counter = driver.counter()
        self.base = driver.optimizer(name, args, self.variables)
        self.bound = self.spec.bind((), args)
        self.steps = [
            [gradient(g, v) for g, v in zip(step, self.recorded, strict=True)]
            for step in case.inputs["gradients"]
        ]

    def run(self, optimizer: Any) -> Iterator[State]:
        """Apply the recorded gradients by ``optimizer`` and yield each state."""

        def apply(gradients: list[Any]) -> Mapping[str, Any]:
            pairs = list(zip(gradients, self.variables, strict=True))
            return {"": optimizer.apply_gradients(pairs, global_step=self.counter)}

        yield from self.run_function(optimizer, apply)

    def run_function(
        self, optimizer: Any, function: Callable[[list[Any]], Mapping[str, Any]]
    ) -> Iterator[State]:
        """Call ``function`` with the gradients of each step and yield each state.

        The tensors that ``function`` returns are added to the state under their names.
        The training operation, if the backend has one, has an empty name.
        """
        names: list[str] = []

        def results(gradients: list[Any]) -> list[Any]:
            named = function(gradients)
            names[:] = list(named)
            return list(named.values())

        step = self.driver.compile(results)
        for gradients in self.steps:
            arrays = step(gradients)
            named = dict(zip(names, arrays, strict=True))
            named.pop("")
            yield {**self.state(optimizer), **named}

    def state(self, optimizer: Any) -> State:
        """Read variables, slots, shared scalars and the step counter."""
        return self.read(optimizer, self.recorded, self.variables)

    def read(
        self, optimizer: Any, recorded_ones: Sequence[Variable], variables: list[Any]
    ) -> State:
        """Read these variables, which ``optimizer`` updates, and its whole state."""
        state = {"global_step": self.driver.read(self.counter)}
        for recorded, variable in zip(recorded_ones, variables, strict=True):
            state[f"variables/{recorded.name}"] = self.driver.read(variable)
            for slot in self.spec.active_slots(self.bound):
                value = self.driver.slot(optimizer, variable, slot.name)
                initial = self.spec.initial_value(slot, self.bound)
                shape = () if slot.scalar else recorded.shape
                dtype = np.float32 if slot.scalar else recorded.dtype
                filled = np.full(shape, initial, dtype)
                key = f"slots/{slot.name}/{recorded.name}"
                state[key] = filled if value is None else value
        for name, scalar in self.driver.shared(optimizer).items():
            state[f"non_slots/{name}"] = np.asarray(scalar, np.float32)
        return state


def recorded_trajectory(case: Case) -> Iterator[State]:
    """Yield the recorded state after each step of a case with ``steps``."""
    variables = {v.name: v for v in case.variables}
    for step in case.expected["steps"]:
        yield recorded_state(step, variables)


def recorded_state(step: Mapping[str, Any], variables: Mapping[str, Variable]) -> State:
    """Flatten one recorded state. Each quantity keeps its own dtype."""
    state: dict[str, Array] = {}
    for key, value in step.items():
        if key == "variables":
            state |= _of_variables(key, value, variables)
        elif key == "slots":
            for slot, named in value.items():
                state |= _of_variables(f"slots/{slot}", named, variables)
        elif key == "non_slots":
            for name, scalar in value.items():
                state[f"non_slots/{name}"] = array(scalar, "float32")
        elif key == "global_step":
            state[key] = array(value, "int64")
        elif key == "loss_scale":
            state[key] = array(value, "float32")
        elif key == "good_steps":
            state[key] = array(value, "int64")
        elif key == "unscaled_gradients":
            for name, entry in zip(variables, value, strict=True):
                state |= flat_gradient(name, gradient(entry, variables[name]))
        elif key == "global_norm":
            dtype = str(next(iter(variables.values())).dtype)
            state[key] = array(value, dtype)
        else:
            raise CannotInterpretError(f"the recorded quantity {key!r}")
    return state


def flat_gradient(name: str, gradient: Gradient) -> State:
    """Flatten an unscaled gradient."""
    return flat(f"unscaled_gradients/{name}", gradient)


def flat(key: str, gradient: Gradient) -> State:
    """Flatten a gradient under ``key``. An absent one becomes the text ``absent``."""
    if isinstance(gradient, Rows):
        indices = np.asarray(gradient.indices, np.int64)
        return {f"{key}/indices": indices, f"{key}/values": gradient.values}
    return {key: np.array("absent") if gradient is None else gradient}


def _of_variables(
    prefix: str, named: Mapping[str, Any], variables: Mapping[str, Variable]
) -> State:
    return {
        f"{prefix}/{name}": array(
            value, str(variables[name].dtype), variables[name].shape
        )
        for name, value in named.items()
    }
