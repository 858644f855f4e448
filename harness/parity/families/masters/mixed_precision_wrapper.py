"""Family ``mixed_precision_wrapper``: float16 variables and their float32 masters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.parity.cases import (
    CannotInterpretError,
    Case,
    Variable,
    array,
    gradient,
)
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import Training, flat_gradient, recorded_state
from lockstep.interface import Array

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("mixed_precision_wrapper",)

State = Mapping[str, Array]

KINDS = frozenset(
    {
        "static_scale",
        "no_scale",
        "sparse",
        "absent_float32",
        "float32_only",
        "small_updates_kept_in_master",
        "saturate",
        "saturate_infinite_master",
        "scaled_gradient_overflows_float16",
        "scale_beyond_float16",
        "underflow_rescued",
        "auto_backoff_overflow",
        "auto_logmax",
        "auto_scaled_gradient_overflows",
        "auto_zero_gradients",
        "auto_float32_only",
        "regularizer",
        "regularizer_sparse",
        "regularizer_tiny",
        "regularizer_auto",
        "bad_loss_scale_type",
        "absent_float16",
        "auto_scale_with_float16_loss",
    }
)
INPUTS = (
    "optimizer",
    "loss_scale",
    "loss_scale_is",
    "stage",
    "variables",
    "gradients",
)
MASTER = "FP32-master-copy"
"""The first part of a master's name."""
EXPECTED = ("initial", "steps", "master_names", "master_dtypes", "raises")
COUNTERS = ("iteration", "last_overflow_iteration")

# Inputs with which error cases that omit them were recorded: see FORMAT.md.
ASSUMED: Mapping[str, Any] = {
    "optimizer": {"name": "GradientDescent", "args": {"learning_rate": 0.1}},
    "variables": [{"name": "w", "dtype": "float16", "shape": [2], "value": [1, 2]}],
    "gradients": [[[1, 1]]],
    "loss_scale": 8.0,
}
BACKOFF = {"loss_scale": {"algorithm": "Backoff", "params": None}}


def has_master(dtype: str) -> bool:
    """Whether variables of this dtype are trained through float32 masters."""
    return dtype in ("float16", "bfloat16")


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Train with the wrapper, from a float32 loss."""
    case.require_known(INPUTS, EXPECTED)
    if "raises" in case.expected:
        yield from _failing(case, driver)
        return
    training = _Masters(case, driver)
    with np.errstate(all="ignore"):
        yield from training.run_steps(training.step)


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded states, with the names and dtypes of the masters."""
    variables = case.variables
    masters = {v.name: _in_float32(v) for v in variables}
    for step in case.expected["steps"]:
        state = {
            **_kinds(case.expected["master_names"], case.expected["master_dtypes"]),
            **_recorded_state(step, masters),
        }
        for variable in variables:
            value = step["model"][variable.name]
            state[f"model/{variable.name}"] = array(
                value, str(variable.dtype), variable.shape
            )
        yield state


class _Masters(Training):
    """A training with a wrapped optimizer. The base optimizer updates the masters."""

    def __init__(self, case: Case, driver: Driver) -> None:
        super().__init__(case, driver)
        names = driver.names
        self.optimizer = names.MixedPrecisionOptimizerWrapper(
            self.base, _loss_scale(case, driver)
        )
        self.penalties: dict[int, Callable[[Any], Any]] = {}
        for position, recorded in enumerate(case.inputs["variables"]):
            self._regularize(position, recorded)

    def _regularize(self, position: int, recorded: Mapping[str, Any]) -> None:
        """Add a variable's regularizer to the wrapper, or to the loss."""
        if "l2" not in recorded:
            return
        l2 = self.driver.regularizer(recorded["l2"])
        wrapped = self.driver.names.mp_regularizer_wrapper(l2)
        if not has_master(recorded["dtype"]):
            self.penalties[position] = wrapped
            return
        penalty = wrapped(self.variables[position])
        # Keras adds up the results of regularizers, so there it is 0 and not None.
        if penalty is not None and np.any(self.driver.read(penalty)):
            raise ValueError("a half-precision weight is penalised in the loss")

    def step(self, gradients: list[Any]) -> Mapping[str, Any]:
        """Differentiate the loss and apply the gradients."""
        loss = self.driver.linear_loss(self.variables, gradients, self.penalties)
        return self.apply(loss)

    def step_from_half(self, gradients: list[Any]) -> Mapping[str, Any]:
        """Do the same with a float16 loss."""
        return self.apply(self.driver.half_loss(self.variables, gradients))

    def apply(self, loss: Any) -> Mapping[str, Any]:
        """Apply the gradients of a loss. Return them by the variables' names."""
        pairs = self.optimizer.compute_gradients(loss, var_list=self.variables)
        applied = self.optimizer.apply_gradients(pairs, global_step=self.counter)
        unscaled = [gradient for gradient, _ in pairs]
        named = zip(self.recorded, unscaled, strict=True)
        return {"": applied, **{variable.name: g for variable, g in named}}

    def run_steps(
        self, function: Callable[[list[Any]], Mapping[str, Any]]
    ) -> Iterator[State]:
        """Yield the state after each step, including gradients."""
        for state in self.run_function(self.optimizer, function):
            flat_state = dict(state)
            for variable in self.recorded:
                unscaled = flat_state.pop(variable.name)
                flat_state.update(flat_gradient(variable.name, unscaled))
            yield flat_state

    def state(self, optimizer: Any) -> State:
        """Read the masters, the base optimizer's state, and the model."""
        masters = [optimizer.master(variable) for variable in self.variables]
        wide = [_in_float32(variable) for variable in self.recorded]
        state = dict(self.read(optimizer, wide, masters))
        names, dtypes = {}, {}
        for recorded, master in zip(self.recorded, masters, strict=True):
            value = state[f"masters/{recorded.name}"] = state.pop(
                f"variables/{recorded.name}"
            )
            dtypes[recorded.name] = str(value.dtype)
            names[recorded.name] = _name_of(master, recorded)
        for recorded, variable in zip(self.recorded, self.variables, strict=True):
            state[f"model/{recorded.name}"] = self.driver.read(variable)
        scaler = getattr(optimizer.scale_object, "state", {})
        for name, value in scaler.items():
            state[f"scaler/{name}"] = _scaler_entry(name, self.driver.read(value))
        return {**state, **_kinds(names, dtypes)}


def _name_of(master: Any, recorded: Variable) -> str:
    """Return a master's name as recorded. In some backends tensors have no names."""
    name = getattr(master, "name", None)
    if not isinstance(name, str):
        own = has_master(str(recorded.dtype))
        return f"{MASTER}/{recorded.name}" if own else recorded.name
    return name.removesuffix(":0")


def _failing(case: Case, driver: Driver) -> Iterator[State]:
    """Repeat what failed in the recording. In default mode it may succeed."""
    more = BACKOFF if case.kind == "auto_scale_with_float16_loss" else {}
    inputs = {**ASSUMED, **more, **case.inputs}
    training = _Masters(
        Case(case.family, case.id, case.kind, inputs, case.expected), driver
    )
    step = training.step
    if case.kind == "absent_float16":
        training.steps = [[None]]
    elif case.kind == "auto_scale_with_float16_loss":
        step = training.step_from_half
    elif case.kind != "bad_loss_scale_type":
        raise CannotInterpretError(f"the failure of kind {case.kind!r}")
    yield from training.run_steps(step)


def _loss_scale(case: Case, driver: Driver) -> Any:
    """Create the loss scale of a case."""
    scale, kind = case.inputs["loss_scale"], case.inputs.get("loss_scale_is")
    if kind == "integer":
        return int(scale)
    if isinstance(scale, Mapping):
        return driver.names.AutomaticLossScaler(scale["algorithm"], scale["params"])
    if kind not in (None, "string", "null"):
        raise CannotInterpretError(f"a loss scale that is {kind!r}")
    return scale


def _in_float32(variable: Variable) -> Variable:
    """Return a variable with the initial value of its master."""
    return replace(variable, value=variable.value.astype(np.float32))


def _recorded_state(
    step: Mapping[str, Any], masters: Mapping[str, Variable]
) -> dict[str, Array]:
    """Flatten one recorded state, without the model."""
    rest = dict(step)
    del rest["model"]
    state: dict[str, Array] = {}
    for name, value in rest.pop("masters").items():
        state[f"masters/{name}"] = array(value, "float32", masters[name].shape)
    for name, entry in zip(masters, rest.pop("gradients_for_apply"), strict=True):
        state |= flat_gradient(name, gradient(entry, masters[name]))
    for name, value in rest.pop("scaler", {}).items():
        state[f"scaler/{name}"] = _scaler_entry(name, value)
    return {**state, **recorded_state(rest, masters)}


def _scaler_entry(name: str, value: Any) -> Array:
    dtype = "int64" if name in COUNTERS else "float32"
    return array(np.asarray(value).tolist(), dtype)


def _kinds(names: Mapping[str, str], dtypes: Mapping[str, str]) -> State:
    """Return the names and dtypes of the masters as quantities."""
    called = {f"name/{k}": np.array(v.removesuffix(":0")) for k, v in names.items()}
    return {**called, **{f"dtype/{k}": np.array(v) for k, v in dtypes.items()}}
