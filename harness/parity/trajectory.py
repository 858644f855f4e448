"""Shared by the families: apply gradients step by step, read the whole state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, Variable, array, gradient
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import RULES, OptimizerSpec

State = Mapping[str, Array]

ABSENT = np.array("absent")
"""What stands for a gradient that is None."""
COUNTERS = ("iteration", "last_overflow_iteration")
"""The quantities of an automatic loss scaler that are whole numbers."""
EARLY = (
    "learning_rate_used",
    "masters",
    "gradient_accumulators",
    "gradients_for_apply",
    "scaler",
)
"""Quantities that are compared before the others of a step, in this order."""
SCALARS = {
    "learning_rate_used": "float32",
    "global_step": "int64",
    "local_step": "int64",
    "loss_scale": "float32",
    "good_steps": "int64",
}


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

        The gradients that ``function`` returns are added to the state under their
        names. The training operation, if the backend has one, has an empty name.
        """
        names: list[str] = []

        def results(gradients: list[Any]) -> list[Any]:
            named = function(gradients)
            names[:] = list(named)
            return list(named.values())

        step = self.driver.compile(results)
        for gradients in self.steps:
            arrays = step(gradients)
            state = dict(self.state(optimizer))
            for name, value in zip(names, arrays, strict=True):
                state |= flat(name, value) if name else {}
            yield state

    def state(self, optimizer: Any) -> State:
        """Read variables, slots, shared scalars and the step counter."""
        return self.read(optimizer, self.recorded, self.variables)

    def read(
        self, optimizer: Any, recorded_ones: Sequence[Variable], variables: list[Any]
    ) -> State:
        """Read these variables, which ``optimizer`` updates, and its whole state."""
        driver = self.driver
        state = {"global_step": driver.read(self.counter)}
        rule = optimizer, self.spec, self.bound
        for recorded, variable in zip(recorded_ones, variables, strict=True):
            state[f"variables/{recorded.name}"] = driver.read(variable)
            state |= slots_of(driver, variable, recorded, *rule)
        for name, scalar in driver.shared(optimizer).items():
            state[f"non_slots/{name}"] = np.asarray(scalar, np.float32)
        return state


def slots_of(
    driver: Driver,
    variable: Any,
    recorded: Variable,
    optimizer: Any,
    spec: OptimizerSpec,
    bound: Mapping[str, Any],
) -> dict[str, Array]:
    """Read the slots of one variable. One that is not created has its first value."""
    state = {}
    for slot in spec.active_slots(bound):
        value = driver.slot(optimizer, variable, slot.name)
        shape = () if slot.scalar else recorded.shape
        dtype = np.float32 if slot.scalar else recorded.dtype
        filled = np.full(shape, spec.initial_value(slot, bound), dtype)
        state[f"slots/{slot.name}/{recorded.name}"] = (
            filled if value is None else np.asarray(value)
        )
    return state


def scaler_state(values: Mapping[str, Any]) -> dict[str, Array]:
    """Return the state of an automatic loss scaler as quantities."""
    return {
        f"scaler/{name}": array(
            np.asarray(value).tolist(), "int64" if name in COUNTERS else "float32"
        )
        for name, value in values.items()
    }


def recorded_trajectory(case: Case) -> Iterator[State]:
    """Yield the recorded state after each step of a case with ``steps``."""
    variables = {v.name: v for v in case.variables}
    for step in case.expected["steps"]:
        yield recorded_state(step, variables)


def recorded_state(
    step: Mapping[str, Any],
    variables: Mapping[str, Variable],
    wide: Mapping[str, Variable] | None = None,
) -> State:
    """Flatten one recorded state. Each quantity keeps its own dtype.

    ``wide``: the variables with the dtype of their masters, slots and sums, if they
    have masters; the model then comes last.
    """
    state: dict[str, Array] = {}
    late = () if wide is None else ("variables", "model")
    wide = variables if wide is None else wide
    for key in sorted(step, key=lambda k: (k in late, (*EARLY, k).index(k))):
        value = step[key]
        if key in SCALARS:
            state[key] = array(value, SCALARS[key])
        elif key in ("variables", "model"):
            state |= of_variables(key, value, variables)
        elif key in ("masters", "gradient_accumulators", "accumulators"):
            state |= of_variables(key, value, wide)
        elif key == "slots":
            for slot, named in value.items():
                state |= of_variables(f"slots/{slot}", named, wide)
        elif key == "non_slots":
            for name, scalar in value.items():
                state[f"non_slots/{name}"] = array(scalar, "float32")
        elif key == "ema_variable":
            for name, scalar in value.items():
                state[f"slots/second_moment/{name}"] = array(scalar, "float32")
        elif key == "scaler":
            state |= scaler_state(value)
        elif key in ("unscaled_gradients", "gradients_for_apply"):
            for name, entry in zip(wide, value, strict=True):
                state |= flat(f"unscaled_gradients/{name}", gradient(entry, wide[name]))
        elif key == "global_norm":
            state[key] = array(value, str(next(iter(variables.values())).dtype))
        elif key == "raises":
            state[key] = np.array(value)
        else:
            raise CannotInterpretError(f"the recorded quantity {key!r}")
    return state


def of_variables(
    prefix: str, named: Mapping[str, Any], variables: Mapping[str, Variable]
) -> State:
    """Decode recorded values of variables, each in its variable's dtype and shape."""
    return {
        f"{prefix}/{name}": array(
            value, str(variables[name].dtype), variables[name].shape
        )
        for name, value in named.items()
    }


def flat(key: str, gradient: Gradient) -> State:
    """Flatten a gradient under ``key``. An absent one becomes the text ``absent``."""
    if isinstance(gradient, Rows):
        indices = np.asarray(gradient.indices, np.int64)
        return {f"{key}/indices": indices, f"{key}/values": gradient.values}
    return {key: ABSENT if gradient is None else gradient}


def flat_list(key: str, gradients: Sequence[Gradient]) -> dict[str, Array]:
    """Flatten gradients under ``key`` and their positions."""
    state: dict[str, Array] = {}
    for position, value in enumerate(gradients):
        state |= flat(f"{key}/{position}", value)
    return state


def lone_gradients(values: Any, dtypes: Any) -> list[Gradient]:
    """Decode gradients without variables: each has its own shape."""
    return [_lone(*entry) for entry in zip(values, dtypes, strict=True)]


def _lone(value: Any, dtype: str | None) -> Gradient:
    if value is None or dtype is None:
        return None
    if not isinstance(value, dict):
        return array(value, dtype)
    # Without rows and without a dense shape, the length of a row is unknown.
    rows = array(value["values"], dtype)
    shape = value.get("dense_shape") or [0, *rows.shape[1:]]
    return gradient(value, Variable("", np.empty(shape, dtype), tuple(shape)))


def has_master(dtype: str) -> bool:
    """Whether variables of this dtype are trained through float32 masters."""
    return dtype in ("float16", "bfloat16")


def in_float32(variable: Variable) -> Variable:
    """Return a variable with the initial value of its master."""
    return replace(variable, value=variable.value.astype(np.float32))
