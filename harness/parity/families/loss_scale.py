"""Families ``loss_scale_fixed`` and ``loss_scale_dynamic``: scales and the wrapper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, array
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import (
    Training,
    recorded_state,
    recorded_trajectory,
    scalar,
)

FAMILIES = ("loss_scale_fixed", "loss_scale_dynamic")
INPUTS = (
    "mode optimizer loss_scale variables variable_kind gradients second_gradient_entry "
    "loss_scale_value initial_loss_scale increment_period multiplier argument"
).split()
EXPECTED = (
    "initial steps raises config repr dtype loss_scale good_steps update_should_apply "
    "should_apply_gradients loss_scale_class name"
).split()

# Inputs with which error cases that omit them were recorded: see FORMAT.md.
ASSUMED: Mapping[str, Any] = {
    "optimizer": {"name": "GradientDescent", "args": {"learning_rate": 0.1}},
    "variables": [{"name": "w", "dtype": "float32", "shape": [2], "value": [1, 2]}],
    "gradients": [[[1, 1]]],
    "mode": "minimize",
}
ADAM = {**ASSUMED, "optimizer": {"name": "Adam", "args": {}}}


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Train, update a scale, or create one, depending on the case."""
    special = SPECIAL.get(case.kind)
    mode = case.inputs.get("mode", "minimize" if "raises" in case.expected else None)
    with np.errstate(all="ignore"):
        if special is not None:
            yield special(case, driver)
        elif mode == "update_only":
            yield from _update_only(case, driver)
        elif mode in ("minimize", "apply_only"):
            apply_only = mode == "apply_only" or case.kind.endswith("_no_gradients")
            yield from _trained(case.assuming(ASSUMED), driver, not apply_only)
        else:
            raise CannotInterpretError(f"the mode {mode!r}")


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded trajectory, or the recorded result of a construction."""
    if "steps" not in case.expected:
        yield recorded_state(case.expected, {})
    elif "variables" in case.inputs:
        yield from recorded_trajectory(case)
    else:
        config = {"config": case.expected["config"]}
        for step in case.expected["steps"]:
            yield recorded_state({**config, **step}, {})


def loss_scaled(optimizer: Any, case: Case, driver: Driver) -> Any:
    """Wrap ``optimizer`` with the loss scale of the case (by default dynamic)."""
    scale = _scale(case, driver) if "loss_scale" in case.inputs else "dynamic"
    return driver.names.MixedPrecisionLossScaleOptimizer(optimizer, scale)


def scale_state(scaled: Any, driver: Driver) -> State:
    """Read the scale of a wrapper."""
    return _scale_read(scaled.loss_scale, scaled.scale_object, driver)


def _scale_read(value: Any, scale: Any, driver: Driver) -> State:
    values = {"loss_scale": value, "good_steps": scale.good_steps}
    return {name: scalar(name, driver.read(v)) for name, v in values.items()}


def _scale(case: Case, driver: Driver) -> Any:
    """Create the loss scale of a case."""
    arguments = dict(case.inputs["loss_scale"])
    classes = {"fixed": "FixedLossScale", "dynamic": "DynamicLossScale"}
    kind = arguments.pop("kind")
    if kind not in classes:
        raise CannotInterpretError(f"the loss scale {kind!r}")
    return getattr(driver.names, classes[kind])(**arguments)


def _trained(case: Case, driver: Driver, from_loss: bool) -> Iterator[State]:
    """Train with the wrapper: from a loss, or with the given gradients."""
    training = Training(case, driver)
    optimizer = loss_scaled(training.base, case, driver)
    variables = training.variables

    def step(gradients: list[Any]) -> Mapping[str, Any]:
        unscaled = {}
        pairs = list(zip(gradients, variables, strict=True))
        if from_loss:
            loss = driver.linear_loss(variables, gradients)
            pairs = optimizer.compute_gradients(loss, var_list=variables)
            named = zip(training.recorded, pairs, strict=True)
            unscaled = {f"unscaled_gradients/{v.name}": g for v, (g, _) in named}
        applied = optimizer.apply_gradients(pairs, global_step=training.counter)
        return {"": applied, **unscaled}

    for state in training.run_function(optimizer, step):
        yield {**state, **scale_state(optimizer, driver)}


def _update_only(case: Case, driver: Driver) -> Iterator[State]:
    scale = _scale(case, driver)
    entries = case.inputs["second_gradient_entry"]
    steps = [[array([1.0, entry], "float32"), None] for entry in entries]
    for state in _updated(scale, driver, steps):
        yield {**state, **_config(scale)}


def _updated(scale: Any, driver: Driver, steps: Sequence[Any]) -> Iterator[State]:
    """Update ``scale`` with the gradients of each step and yield its state."""
    update = driver.compile(lambda gradients: list(scale.update(gradients)))
    for gradients in steps:
        flag = np.asarray(update(gradients)[1])
        state = _scale_read(scale(), scale, driver)
        yield {**state, "should_apply_gradients": flag}


def _update_with_none(case: Case, driver: Driver) -> State:
    names = ("initial_loss_scale", "increment_period", "multiplier")
    arguments = {name: case.inputs[name] for name in names}
    scale = driver.names.DynamicLossScale(**arguments)
    return next(_updated(scale, driver, [case.inputs["gradients"]]))


def _fixed_scale(case: Case, driver: Driver) -> State:
    """Create a fixed scale with this value and read all its properties."""
    value = case.inputs["loss_scale_value"]
    if value in ("nan", "inf", "-inf"):
        value = float(value)
    scale = driver.names.FixedLossScale(value)
    current = np.asarray(driver.read(scale()))
    (state,) = _updated(scale, driver, [[np.ones(1, np.float32)]])
    return {
        "loss_scale": current,
        "dtype": np.array(str(current.dtype)),
        "repr": np.array(repr(scale)),
        "update_should_apply": state["should_apply_gradients"],
        **_config(scale),
    }


def _defaults(case: Case, driver: Driver) -> State:
    scale = driver.names.DynamicLossScale()
    # Recorded in a graph. Where the state can be read, the repr begins with it.
    shown = re.sub(r"current_loss_scale=\S+ num_good_steps=\d+, ", "", repr(scale))
    return {"repr": np.array(shown), **_config(scale)}


def _wrapped(case: Case, driver: Driver) -> State:
    """Pass an argument to the wrapper around Adam."""
    training = Training(case.assuming(ADAM), driver)
    wrapper = driver.names.MixedPrecisionLossScaleOptimizer
    optimizer = wrapper(training.base, case.inputs["loss_scale"])
    scale = optimizer.scale_object
    return {
        "loss_scale_class": np.array(type(scale).__name__),
        "name": np.array(driver.name_of_optimizer(optimizer)),
        **_config(scale),
    }


def _not_an_optimizer(case: Case, driver: Driver) -> State:
    """Pass a wrapper around Adam to the wrapper, which the original refuses."""
    argument = case.inputs["argument"]
    if argument != "MultitaskOptimizerWrapper(Adam)":
        raise CannotInterpretError(f"the argument {argument!r}")
    training = Training(case.assuming(ADAM), driver)
    wrapped = driver.names.MultitaskOptimizerWrapper(training.base)
    driver.names.MixedPrecisionLossScaleOptimizer(wrapped, 2.0)
    return {}


SPECIAL: Mapping[str, Callable[[Case, Driver], State]] = {
    "bad_value": _fixed_scale,
    "good_value": _fixed_scale,
    "constructor_argument": _wrapped,
    "not_an_optimizer": _not_an_optimizer,
    "update_with_no_gradients": _update_with_none,
    "defaults": _defaults,
}


def _config(scale: Any) -> State:
    return recorded_state({"config": scale.get_config()}, {})
