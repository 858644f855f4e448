"""Family ``mixed_precision_wrapper``: float16 variables and their float32 masters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State
from harness.parity.drivers.protocol import Driver
from harness.parity.families.loss_scale import ASSUMED as OF_FLOAT32
from harness.parity.trajectory import (
    Training,
    has_master,
    in_float32,
    recorded_state,
    scalars,
)

FAMILIES = ("mixed_precision_wrapper",)
INPUTS = "optimizer loss_scale loss_scale_is stage variables gradients".split()
EXPECTED = "initial steps master_names master_dtypes raises".split()

# Inputs with which error cases that omit them were recorded: see FORMAT.md.
ASSUMED: Mapping[str, Any] = {
    "optimizer": OF_FLOAT32["optimizer"],
    "variables": [{"name": "w", "dtype": "float16", "shape": [2], "value": [1, 2]}],
    "gradients": [[[1, 1]]],
    "loss_scale": 8.0,
}
BACKOFF = {**ASSUMED, "loss_scale": {"algorithm": "Backoff", "params": None}}


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Train with the wrapper, from a float32 loss.

    What failed in the recording may succeed in default mode.
    """
    from_half = case.kind == "auto_scale_with_float16_loss"
    if "raises" in case.expected:
        case = case.assuming(BACKOFF if from_half else ASSUMED)
    training = _Masters(case, driver)
    if case.kind == "absent_float16":
        training.steps = [[None]]
    step = partial(training.step, half=from_half)
    with np.errstate(all="ignore"):
        yield from training.run_function(training.optimizer, step)


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded states, with the names and dtypes of the masters."""
    variables = {v.name: v for v in case.variables}
    masters = {name: in_float32(v) for name, v in variables.items()}
    kinds = _kinds(case.expected["master_names"], case.expected["master_dtypes"])
    for step in case.expected["steps"]:
        yield {**kinds, **recorded_state(step, variables, masters)}


class _Masters(Training):
    """A training with a wrapped optimizer. The base optimizer updates the masters."""

    def __init__(self, case: Case, driver: Driver) -> None:
        super().__init__(case, driver)
        wrapper = driver.names.MixedPrecisionOptimizerWrapper
        self.optimizer = wrapper(self.base, _loss_scale(case, driver))
        self.penalties: dict[int, Callable[[Any], Any]] = {}
        for position, recorded in enumerate(case.inputs["variables"]):
            if "l2" in recorded:
                self.regularize(position, recorded)

    def regularize(self, position: int, recorded: Mapping[str, Any]) -> None:
        """Add a variable's regularizer to the wrapper, or to the loss."""
        l2 = self.driver.regularizer(recorded["l2"])
        wrapped = self.driver.names.mp_regularizer_wrapper(l2)
        if not has_master(recorded["dtype"]):
            self.penalties[position] = wrapped
            return
        penalty = wrapped(self.variables[position])
        # Keras adds up the results of regularizers, so there it is 0 and not None.
        if penalty is not None and np.any(self.driver.read(penalty)):
            raise ValueError("a half-precision weight is penalised in the loss")

    def step(self, gradients: list[Any], half: bool) -> Mapping[str, Any]:
        """Differentiate a loss, apply its gradients and return them by quantity."""
        terms = self.variables, gradients, self.penalties
        loss = self.driver.linear_loss(*terms, half=half)
        pairs = self.optimizer.compute_gradients(loss, var_list=self.variables)
        applied = self.optimizer.apply_gradients(pairs, global_step=self.counter)
        named = zip(self.recorded, pairs, strict=True)
        unscaled = {f"unscaled_gradients/{v.name}": g for v, (g, _) in named}
        return {"": applied, **unscaled}

    def state(self, optimizer: Any) -> State:
        """Read the masters, the base optimizer's state, and the model."""
        driver = self.driver
        masters = [optimizer.master(variable) for variable in self.variables]
        wide = [in_float32(variable) for variable in self.recorded]
        state = dict(self.read(optimizer, wide, masters))
        names, dtypes = {}, {}
        for k, recorded in enumerate(self.recorded):
            name = recorded.name
            value = state[f"masters/{name}"] = state.pop(f"variables/{name}")
            state[f"model/{name}"] = driver.read(self.variables[k])
            called = getattr(masters[k], "name", None)
            if not isinstance(called, str):
                # In some backends tensors have no names.
                half = has_master(str(recorded.dtype))
                called = f"FP32-master-copy/{name}" if half else name
            names[name], dtypes[name] = called, str(value.dtype)
        scaler = getattr(optimizer.scale_object, "state", {})
        state |= scalars("scaler", {name: driver.read(v) for name, v in scaler.items()})
        return {**state, **_kinds(names, dtypes)}


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


def _kinds(names: Mapping[str, str], dtypes: Mapping[str, str]) -> State:
    """Return the names and dtypes of the masters as quantities."""
    called = {f"name/{k}": np.array(v.removesuffix(":0")) for k, v in names.items()}
    return {**called, **{f"dtype/{k}": np.array(v) for k, v in dtypes.items()}}
