"""Shared by the families: apply gradients step by step, read the whole state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from harness.parity.cases import (
    CannotInterpretError,
    Case,
    State,
    Variable,
    array,
    gradient,
    lone_gradient,
)
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import RULES, OptimizerSpec

ABSENT = np.array("absent")
"""What stands for a gradient that is None."""
COUNTERS = (
    "global_step local_step good_steps iteration last_overflow_iteration "
    "update_op_value"
).split()
"""Scalars that are int64; the others are float32."""
FLOATS = ("learning_rate_used", "loss_scale")
FACTS = (
    "dtype loss_scale_class name raises repr should_apply_gradients update_should_apply"
).split()
"""Texts and flags."""
EARLY = (
    "learning_rate_used",
    "masters",
    "gradient_accumulators",
    "gradients_for_apply",
    "scaler",
)
"""Quantities that are compared before the others of a step, in this order."""


class Rule(NamedTuple):
    """The rule of a base optimizer, and its arguments with defaults."""

    spec: OptimizerSpec
    arguments: Mapping[str, Any]


class Training:
    """The variables, the base optimizer and the counter of one case on one backend."""

    def __init__(self, case: Case, driver: Driver) -> None:
        name, args = case.optimizer, case.inputs["optimizer"].get("args", {})
        if name not in RULES:
            raise CannotInterpretError(f"the optimizer {name!r}")
        kind = case.inputs.get("variable_kind")
        self.driver = driver
        self.rule = Rule(RULES[name], RULES[name].bind((), args))
        self.recorded: Sequence[Variable] = case.variables
        self.variables = [driver.variable(v.name, v.value, kind) for v in self.recorded]
        self.counter = driver.counter()
        self.base = driver.optimizer(name, args, self.variables)
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
        step = self.driver.compile(function)
        for gradients in self.steps:
            results = step(gradients)
            state = dict(self.state(optimizer))
            for name, value in results.items():
                state |= flat(name, value) if name else {}
            yield state

    def state(self, optimizer: Any) -> State:
        """Read variables, slots, shared scalars and the step counter."""
        return self.read(optimizer, self.recorded, self.variables)

    def read(
        self, optimizer: Any, recorded: Sequence[Variable], variables: list[Any]
    ) -> State:
        """Read these variables, which ``optimizer`` updates, and its whole state."""
        return {
            "global_step": self.driver.read(self.counter),
            **trained_state(self.driver, optimizer, self.rule, recorded, variables),
            **scalars("non_slots", self.driver.shared(optimizer)),
        }


def trained_state(
    driver: Driver,
    optimizer: Any,
    rule: Rule,
    recorded: Sequence[Variable],
    variables: Sequence[Any],
) -> State:
    """Read variables and their slots."""
    state: State = {}
    for one, variable in zip(recorded, variables, strict=True):
        state[f"variables/{one.name}"] = driver.read(variable)
        state |= slots_of(driver, optimizer, rule, one, variable)
    return state


def slots_of(
    driver: Driver, optimizer: Any, rule: Rule, recorded: Variable, variable: Any
) -> State:
    """Read the slots of one variable. One that is not created has its first value."""
    state = {}
    for slot in rule.spec.active_slots(rule.arguments):
        value = driver.slot(optimizer, variable, slot.name)
        if value is None:
            shape = () if slot.scalar else recorded.shape
            dtype = np.float32 if slot.scalar else recorded.dtype
            first = rule.spec.initial_value(slot, rule.arguments)
            value = np.full(shape, first, dtype)
        state[f"slots/{slot.name}/{recorded.name}"] = np.asarray(value)
    return state


def scalar(name: str, value: Any) -> Array:
    """Return a scalar in the dtype that goes with its name."""
    return array(np.asarray(value).tolist(), "int64" if name in COUNTERS else "float32")


def scalars(prefix: str, values: Mapping[str, Any]) -> State:
    """Return scalars as quantities."""
    return {f"{prefix}/{name}": scalar(name, value) for name, value in values.items()}


# -- what was recorded -----------------------------------------------------------------


def recorded_trajectory(case: Case) -> Iterator[State]:
    """Yield the recorded state after each step of a case with ``steps``."""
    variables = {v.name: v for v in case.variables}
    for step in case.expected["steps"]:
        yield recorded_state(step, variables)


def recorded_state(
    step: Mapping[str, Any],
    variables: Mapping[str, Variable],
    masters: Mapping[str, Variable] | None = None,
) -> State:
    """Flatten one recorded state. Each quantity keeps its own dtype.

    ``masters``: the variables with the dtype of their masters, slots and sums, if they
    have masters; the model then comes last.
    """
    last = () if masters is None else ("variables", "model")
    first = [key for key in EARLY if key in step]
    others = [key for key in step if key not in (*first, *last)]
    state: State = {}
    for key in (*first, *others, *(key for key in last if key in step)):
        state |= _decoded(key, step[key], variables, masters or variables)
    return state


def _decoded(
    key: str,
    value: Any,
    variables: Mapping[str, Variable],
    masters: Mapping[str, Variable],
) -> State:
    """Return the quantities of one key of a recorded state."""
    state: State = {}
    match key:
        case "variables" | "model":
            return of_variables(key, value, variables)
        case "masters" | "gradient_accumulators" | "accumulators":
            return of_variables(key, value, masters)
        case "slots":
            for slot, named in value.items():
                state |= of_variables(f"slots/{slot}", named, masters)
        case "non_slots" | "scaler":
            return scalars(key, value)
        case "ema_variable":
            return scalars("slots/second_moment", value)
        case "config":
            for name, entry in value.items():
                number = float(entry) if isinstance(entry, str) else entry
                state[f"config/{name}"] = np.asarray(number)
        case "unscaled_gradients" | "gradients_for_apply":
            for name, entry in zip(masters, value, strict=True):
                one = gradient(entry, masters[name])
                state |= flat(f"unscaled_gradients/{name}", one)
        case "global_norm":
            state[key] = array(value, str(next(iter(variables.values())).dtype))
        case _ if key in (*COUNTERS, *FLOATS):
            state[key] = scalar(key, value)
        case _ if key in FACTS:
            state[key] = np.asarray(value)
        case _:
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


def flat_list(key: str, gradients: Sequence[Gradient]) -> State:
    """Flatten gradients under ``key`` and their positions."""
    state: State = {}
    for position, value in enumerate(gradients):
        state |= flat(f"{key}/{position}", value)
    return state


def lone_gradients(values: Any, dtypes: Any) -> list[Gradient]:
    """Decode gradients without variables; one without a dtype is absent."""
    pairs = zip(values, dtypes, strict=True)
    return [lone_gradient(value, dtype) if dtype else None for value, dtype in pairs]


def has_master(dtype: str) -> bool:
    """Whether variables of this dtype are trained through float32 masters."""
    return dtype in ("float16", "bfloat16")


def in_float32(variable: Variable) -> Variable:
    """Return a variable with the initial value of its master."""
    return replace(variable, value=variable.value.astype(np.float32))
