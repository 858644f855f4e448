"""All families but ``agn``: bare optimizers, the wrappers, and loss scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from harness.oracle.live.cases import Case, array
from harness.oracle.live.training import Training, session, tensor

contrib = tf.contrib.opt
experimental = tf.train.experimental


def base_optimizers(case: Case) -> dict[str, Any]:
    """Apply the gradients with the bare optimizer."""
    training = Training(case)
    return applied(training, training.base)


def multitask(case: Case) -> dict[str, Any]:
    """Apply the gradients with the wrapper, alone or in a chain with row clipping."""
    if case.kind == "not_an_optimizer":
        inner = contrib.MultitaskOptimizerWrapper(tf.train.MomentumOptimizer(0.1, 0.9))
        contrib.MultitaskOptimizerWrapper(inner)
    training = Training(case)
    optimizer: Any = training.base
    if case.kind == "chain_multitask_over_clip":
        optimizer = clipping(optimizer, case.inputs, training)
    optimizer = contrib.MultitaskOptimizerWrapper(optimizer)
    if case.kind == "chain_clip_over_multitask":
        optimizer = clipping(optimizer, case.inputs, training)
    if case.kind == "side_effect_on_wrapped":
        optimizer = training.base
    return applied(training, optimizer)


def multitask_clip(case: Case) -> dict[str, Any]:
    """Clip once, or clip and apply at every step."""
    if case.kind != "clip_then_apply":
        return clipped_once(case)
    training = Training(case)
    wrapper = contrib.MultitaskOptimizerWrapper(training.base)
    limit = float(case.inputs["clip_norm"])

    def step(pairs: list[Any]) -> dict[str, Any]:
        clipped, norm = contrib.clip_gradients_by_global_norm(pairs, limit)
        done = wrapper.apply_gradients(clipped, global_step=training.counter)
        return {"global_norm": norm, "_done": done}

    return training.run(step)


def clipped_once(case: Case) -> dict[str, Any]:
    """Clip one list of gradients without variables."""
    recorded = case.inputs["gradients"]
    dtypes = [case.inputs.get("dtype", "float32")] * len(recorded)
    dtypes = case.inputs.get("dtypes", dtypes)
    gradients = [tensor(g, dtype) for g, dtype in zip(recorded, dtypes)]
    pairs = [(gradient, f"v{k}") for k, gradient in enumerate(gradients)]
    limit = {"clip_norm": float(case.inputs.get("clip_norm", 0.0))}
    if case.inputs.get("clip_norm_omitted"):
        limit = {}
    clipped, norm = contrib.clip_gradients_by_global_norm(pairs, **limit)
    results = {"clipped": fetched(clipped), "global_norm": norm}
    with session() as running:
        return {**running.run(results), "global_norm_dtype": norm.dtype.name}


def variable_clipping(case: Case) -> dict[str, Any]:
    """Build the layers from the inside out, and apply with the outermost one."""
    training, scale, extra = Training(case), None, {}
    optimizer: Any = training.base
    if "loss_scale" in case.inputs:
        scale = make_scale(case.inputs["loss_scale"])
        extra = scale_state(scale)
    if case.kind == "clip_over_loss_scale":
        optimizer = experimental.MixedPrecisionLossScaleOptimizer(optimizer, scale)
    named = {name: case.inputs.get("dims", [0]) for name in training.variables}
    assumed = [{"vars_to_clip_dims": named, "max_norm": 1.0}]
    for layer in case.inputs.get("layers", assumed):
        optimizer = clipping(optimizer, layer, training)
    if case.kind == "loss_scale_over_clip":
        optimizer = experimental.MixedPrecisionLossScaleOptimizer(optimizer, scale)
    once = "grads_and_vars_given_as" in case.inputs
    return applied(training, optimizer, iter if once else list, extra)


def applied(
    training: Training, optimizer: Any, given_as: Any = list, extra: Any = None
) -> dict[str, Any]:
    """Apply the gradients of every step, as a list or as a one-shot iterator."""

    def step(pairs: list[Any]) -> dict[str, Any]:
        counter = training.counter
        return {"_": optimizer.apply_gradients(given_as(pairs), global_step=counter)}

    return training.run(step, extra)


def clipping(inner: Any, layer: dict[str, Any], training: Training) -> Any:
    """Wrap ``inner`` so that the variables of this layer are clipped."""
    dims = layer["vars_to_clip_dims"]
    listed = {training.variables[name]: axes for name, axes in dims.items()}
    return contrib.VariableClippingOptimizer(inner, listed, layer["max_norm"])


def make_scale(arguments: dict[str, Any]) -> Any:
    """Create the loss scale that a case describes."""
    options = {key: value for key, value in arguments.items() if key != "kind"}
    if arguments["kind"] == "fixed":
        return experimental.FixedLossScale(**options)
    return experimental.DynamicLossScale(**options)


def scale_state(scale: Any) -> dict[str, Any]:
    """Return the state of a loss scale. A fixed one has no step count."""
    state = {"loss_scale": scale()}
    if isinstance(scale, experimental.DynamicLossScale):
        state["good_steps"] = scale._num_good_steps
    return state


def fetched(pairs: list[Any]) -> list[Any]:
    """Return what a session fetches for the gradients: None for absent ones."""
    return [tf.no_op() if gradient is None else gradient for gradient, _ in pairs]


def loss_scale(case: Case) -> dict[str, Any]:
    """Train, update a scale, or create one, depending on the case."""
    if case.kind in CREATED:
        return CREATED[case.kind](case)
    if case.inputs.get("mode") == "update_only":
        return updated(case)
    return trained(case)


def trained(case: Case) -> dict[str, Any]:
    """Train from a loss, or with the given gradients."""
    training = Training(case)
    scale = make_scale(case.inputs.get("loss_scale", {"kind": "dynamic"}))
    wrapper = experimental.MixedPrecisionLossScaleOptimizer(training.base, scale)

    def step(pairs: list[Any]) -> dict[str, Any]:
        results = {}
        if case.inputs.get("mode") != "apply_only":
            variables = [variable for _, variable in pairs]
            pairs = wrapper.compute_gradients(linear(pairs), variables)
            results["unscaled_gradients"] = fetched(pairs)
        done = wrapper.apply_gradients(pairs, global_step=training.counter)
        return {**results, "_done": done}

    return training.run(step, scale_state(scale))


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


def updated(case: Case) -> dict[str, Any]:
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
    return {"config": scale.get_config(), "steps": steps}


def updated_by_nothing(case: Case) -> dict[str, Any]:
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
    scale = experimental.FixedLossScale(float(value) if value == "nan" else value)
    _, should_apply = scale.update([tf.ones([1])])
    with session() as running:
        current = running.run(scale())
    return {
        "loss_scale": current,
        "dtype": scale().dtype.name,
        "config": scale.get_config(),
        "repr": repr(scale),
        "update_should_apply": should_apply,
    }


def wrapped(case: Case) -> dict[str, Any]:
    """Pass an argument to the wrapper around Adam."""
    base, argument = tf.train.AdamOptimizer(), case.inputs["loss_scale"]
    wrapper = experimental.MixedPrecisionLossScaleOptimizer(base, argument)
    scale = wrapper._loss_scale
    kind, name = type(scale).__name__, wrapper.get_name()
    return {"loss_scale_class": kind, "config": scale.get_config(), "name": name}


def not_an_optimizer(case: Case) -> dict[str, Any]:
    """Wrap an object that is not an optimizer."""
    inner = tf.contrib.opt.MultitaskOptimizerWrapper(tf.train.AdamOptimizer())
    experimental.MixedPrecisionLossScaleOptimizer(inner, 2.0)
    return {}


def defaults(case: Case) -> dict[str, Any]:
    """Create a dynamic scale without arguments."""
    scale = experimental.DynamicLossScale()
    return {"config": scale.get_config(), "repr": repr(scale)}


CREATED = {
    "bad_value": fixed,
    "good_value": fixed,
    "constructor_argument": wrapped,
    "not_an_optimizer": not_an_optimizer,
    "update_with_no_gradients": updated_by_nothing,
    "defaults": defaults,
}
"""Kind -> what creates a scale and does not train."""
