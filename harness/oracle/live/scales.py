"""Families of ``tf.train.experimental``: loss scales and the optimizer around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live.golden import Case, array
from harness.oracle.live.training import Training, session
from harness.oracle.live.wrappers import SGD, VARIABLE, scale_state, trajectory

__all__ = ["loss_scale"]

experimental = tf.train.experimental


def loss_scale(case: Case) -> dict[str, Any]:
    """Train, update a scale, or create one, depending on the case."""
    special = SPECIAL.get(case.kind)
    if special is not None:
        return special(case)
    mode = case.inputs.get("mode", "minimize" if "raises" in case.expected else None)
    if mode == "update_only":
        return moved(case)
    if mode not in ("minimize", "apply_only"):
        raise NotImplementedError(f"the mode {mode!r}")
    return trained(assumed(case, SGD), mode)


def trained(case: Case, mode: str) -> dict[str, Any]:
    """Train from the loss, or with the given gradients."""
    training = Training(case)
    arguments = case.inputs.get("loss_scale", {"kind": "dynamic"})
    scale = make_scale(arguments)
    wrapper = experimental.MixedPrecisionLossScaleOptimizer(training.base, scale)

    def step(gradients: list[Any]) -> dict[str, Any]:
        pairs = list(zip(gradients, training.variables))
        fetched: dict[str, Any] = {}
        if mode == "minimize":
            pairs = wrapper.compute_gradients(linear(pairs), training.variables)
            # A session can fetch neither None nor an empty list.
            present = {str(k): g for k, (g, _) in enumerate(pairs) if g is not None}
            fetched["unscaled_gradients"] = present
        fetched[""] = wrapper.apply_gradients(pairs, global_step=training.counter)
        return fetched

    states = trajectory(training.run(step, scale_state(scale)))
    for state in states["steps"] if mode == "minimize" else []:
        got = state["unscaled_gradients"]
        positions = range(len(training.variables))
        state["unscaled_gradients"] = [plain(got.get(str(k))) for k in positions]
    return states


def linear(pairs: list[Any]) -> Any:
    """Return the loss whose gradients these are: sum of variable * gradient."""
    terms = []
    for gradient, variable in pairs:
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.gather(variable, gradient.indices)
            terms.append(tf.reduce_sum(rows * gradient.values))
        elif gradient is not None:
            terms.append(tf.reduce_sum(variable * gradient))
    return tf.add_n(terms)


def plain(gradient: Any) -> Any:
    """Convert an evaluated gradient to the form of a recording."""
    if not hasattr(gradient, "indices"):
        return gradient
    indices = np.asarray(gradient.indices, np.int64)
    shape = gradient.dense_shape
    known = None if shape is None else np.asarray(shape, np.int64)
    return {"indices": indices, "values": gradient.values, "dense_shape": known}


def make_scale(arguments: dict[str, Any]) -> Any:
    """Create the loss scale that a case describes."""
    options = {key: value for key, value in arguments.items() if key != "kind"}
    kinds = {
        "fixed": experimental.FixedLossScale,
        "dynamic": experimental.DynamicLossScale,
    }
    return kinds[arguments["kind"]](**options)


def moved(case: Case) -> dict[str, Any]:
    """Update a scale, in each step with the gradients [[1, x], absent]."""
    scale = make_scale(case.inputs["loss_scale"])
    entry = tf.placeholder(tf.float32, [])
    update, should_apply = scale.update([tf.stack([1.0, entry]), None])
    steps = []
    with session() as running:
        running.run(tf.global_variables_initializer())
        for value in case.inputs["second_gradient_entry"]:
            feeds = {entry: array(value, np.float32)}
            _, applied = running.run((update, should_apply), feeds)
            state = running.run(scale_state(scale))
            steps.append({**state, "should_apply_gradients": applied})
    return {"config": config_of(scale), "steps": steps}


def config_of(scale: Any) -> dict[str, Any]:
    """Return the configuration. NaN and infinity are strings, as in recordings."""
    return {
        name: value if np.isfinite(value) else str(value)
        for name, value in scale.get_config().items()
    }


def moved_by_nothing(case: Case) -> dict[str, Any]:
    """Update a scale with gradients that are all absent."""
    names = ("initial_loss_scale", "increment_period", "multiplier")
    scale = experimental.DynamicLossScale(*(case.inputs[name] for name in names))
    update, should_apply = scale.update(case.inputs["gradients"])
    with session() as running:
        running.run(tf.global_variables_initializer())
        _, applied = running.run((update, tf.convert_to_tensor(should_apply)))
        return {**running.run(scale_state(scale)), "should_apply_gradients": applied}


def fixed(case: Case) -> dict[str, Any]:
    """Create a fixed scale with this value and read all its properties."""
    value = case.inputs["loss_scale_value"]
    if value in ("nan", "inf", "-inf"):
        value = float(value)
    scale = experimental.FixedLossScale(value)
    _, should_apply = scale.update([tf.ones([1])])
    with session() as running:
        current = running.run(scale())
    return {
        "loss_scale": current,
        "dtype": scale().dtype.name,
        "config": config_of(scale),
        "repr": repr(scale),
        "update_should_apply": should_apply,
    }


def wrapped(case: Case) -> dict[str, Any]:
    """Pass an argument to the wrapper around Adam."""
    argument = case.inputs["loss_scale"]
    base = tf.train.AdamOptimizer()
    wrapper = experimental.MixedPrecisionLossScaleOptimizer(base, argument)
    scale = wrapper._loss_scale
    kind, name = type(scale).__name__, wrapper.get_name()
    return {"loss_scale_class": kind, "config": config_of(scale), "name": name}


def not_an_optimizer(case: Case) -> dict[str, Any]:
    """Wrap an object that is not an optimizer."""
    inner = tf.contrib.opt.MultitaskOptimizerWrapper(tf.train.AdamOptimizer())
    arguments = {"MultitaskOptimizerWrapper(Adam)": inner, "int": 3, "None": None}
    argument = arguments[case.inputs["argument"]]
    experimental.MixedPrecisionLossScaleOptimizer(argument, 2.0)
    return {}


def defaults(case: Case) -> dict[str, Any]:
    """Create a dynamic scale without arguments."""
    scale = experimental.DynamicLossScale()
    return {"config": config_of(scale), "repr": repr(scale)}


def nothing_to_apply(case: Case) -> dict[str, Any]:
    """Apply gradients that are all absent."""
    return trained(assumed(case, SGD), "apply_only")


def assumed(case: Case, optimizer: dict[str, Any]) -> Case:
    """Add the inputs that an error case omits, as in FORMAT.md."""
    size = len(case.inputs.get("variables", [VARIABLE]))
    ones = [[[1.0, 1.0]] * size]
    filled = {"optimizer": optimizer, "variables": [VARIABLE], "gradients": ones}
    case.inputs = {**filled, **case.inputs}
    return case


SPECIAL = {
    "bad_value": fixed,
    "good_value": fixed,
    "constructor_argument": wrapped,
    "not_an_optimizer": not_an_optimizer,
    "update_with_no_gradients": moved_by_nothing,
    "optimizer_with_no_gradients": nothing_to_apply,
    "defaults": defaults,
}
