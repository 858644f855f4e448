"""Families of ``tf.train`` and of the two wrappers: plain, multitask, row clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from harness.oracle.live.golden import Case, array
from harness.oracle.live.training import Training, session

__all__ = ["base_optimizers", "multitask", "multitask_clip", "variable_clipping"]

SGD = {"name": "GradientDescent", "args": {"learning_rate": 0.1}}
VARIABLE = {"name": "w", "dtype": "float32", "shape": [2], "value": [1.0, 2.0]}


def base_optimizers(case: Case) -> dict[str, Any]:
    """Apply the gradients with the bare optimizer."""
    training = Training(case)
    return applied(training, training.base)


def multitask(case: Case) -> dict[str, Any]:
    """Build the wrappers named by ``wrapper`` and apply the gradients with them."""
    if "argument" in case.inputs:
        inner = tf.contrib.opt.MultitaskOptimizerWrapper(
            tf.train.MomentumOptimizer(0.1, 0.9)
        )
        arguments = {"MultitaskOptimizerWrapper": inner, "int": 3, "None": None}
        tf.contrib.opt.MultitaskOptimizerWrapper(arguments[case.inputs["argument"]])
        return {}
    training = Training(case)
    spelled = case.inputs.get("wrapper", "MultitaskOptimizerWrapper")
    nest, _, rest = spelled.partition(" built, then ")
    if rest not in ("", "'optimizer' itself applied"):
        raise NotImplementedError(f"the wrapper {spelled!r}")
    wrapper = nested(nest, case, training)
    return applied(training, training.base if rest else wrapper)


def multitask_clip(case: Case) -> dict[str, Any]:
    """Clip once, or clip and apply at every step."""
    clip = tf.contrib.opt.clip_gradients_by_global_norm
    if "optimizer" not in case.inputs:
        return clipped_once(case, clip)
    training = Training(case)
    wrapper = tf.contrib.opt.MultitaskOptimizerWrapper(training.base)

    def step(gradients: list[Any]) -> dict[str, Any]:
        pairs = list(zip(gradients, training.variables))
        clipped, norm = clip(pairs, float(case.inputs["clip_norm"]))
        done = wrapper.apply_gradients(clipped, global_step=training.counter)
        return {"global_norm": norm, "": done}

    return trajectory(training.run(step))


def variable_clipping(case: Case) -> dict[str, Any]:
    """Build the layers from the inside out, and apply with the outermost one."""
    assumed = {"optimizer": SGD, "variables": [VARIABLE], "gradients": [[[1.0, 1.0]]]}
    case.inputs = {**(assumed if "raises" in case.expected else {}), **case.inputs}
    training = Training(case)
    scale = case.inputs.get("loss_scale")
    optimizer: Any = training.base
    if scale and case.kind == "clip_over_loss_scale":
        optimizer = scaled = dynamic(optimizer, scale)
    for layer in case.inputs.get("layers", [bad_layer(case)]):
        dims = layer["vars_to_clip_dims"]
        optimizer = clipping(optimizer, dims, layer["max_norm"], training)
    if scale and case.kind == "loss_scale_over_clip":
        optimizer = scaled = dynamic(optimizer, scale)
    once = case.inputs.get("grads_and_vars_given_as") == "one-shot iterator"
    extra = {} if scale is None else scale_state(scaled._loss_scale)
    return applied(training, optimizer, once, extra)


def applied(
    training: Training, optimizer: Any, once: bool = False, extra: Any = None
) -> dict[str, Any]:
    """Apply the gradients of every step. If ``once``, pass the pairs as an iterator."""

    def step(gradients: list[Any]) -> dict[str, Any]:
        pairs = list(zip(gradients, training.variables))
        argument = iter(pairs) if once else pairs
        return {"": optimizer.apply_gradients(argument, global_step=training.counter)}

    return trajectory(training.run(step, extra))


def trajectory(states: Any) -> dict[str, Any]:
    """Convert states to the form of a recording."""
    initial, *steps = list(states)
    return {"initial": initial, "steps": steps}


def nested(spelled: str, case: Case, training: Training) -> Any:
    """Build the nested wrappers that ``spelled`` names, around the optimizer."""
    if spelled == "optimizer":
        return training.base
    name, _, rest = spelled.partition("(")
    inner = nested(rest[:-1] or "optimizer", case, training)
    if name == "MultitaskOptimizerWrapper":
        return tf.contrib.opt.MultitaskOptimizerWrapper(inner)
    if name != "VariableClippingOptimizer":
        raise NotImplementedError(f"the wrapper {spelled!r}")
    dims = case.inputs.get("vars_to_clip_dims", {})
    return clipping(inner, dims, case.inputs["max_norm"], training)


def clipping(inner: Any, dims: Any, max_norm: float, training: Training) -> Any:
    """Wrap ``inner`` so that the variables with these names are clipped."""
    named = dict(zip((v.name for v in training.recorded), training.variables))
    listed = {named[name]: axes for name, axes in dims.items()}
    return tf.contrib.opt.VariableClippingOptimizer(inner, listed, max_norm)


def bad_layer(case: Case) -> dict[str, Any]:
    """Return the layer of an error case, which lists its only variable."""
    name = case.inputs.get("variables", [VARIABLE])[0]["name"]
    return {
        "vars_to_clip_dims": {name: case.inputs.get("dims", [0])},
        "max_norm": 1.0,
    }


def dynamic(optimizer: Any, arguments: dict[str, Any]) -> Any:
    """Wrap ``optimizer`` with a dynamic loss scale."""
    options = {key: value for key, value in arguments.items() if key != "kind"}
    scale = tf.train.experimental.DynamicLossScale(**options)
    return tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, scale)


def scale_state(scale: Any) -> dict[str, Any]:
    """Return the state of a loss scale. A fixed one has no step count."""
    state = {"loss_scale": scale()}
    if isinstance(scale, tf.train.experimental.DynamicLossScale):
        state["good_steps"] = scale._num_good_steps
    return state


def clipped_once(case: Case, clip: Callable[..., Any]) -> dict[str, Any]:
    """Clip one list of gradients without variables."""
    recorded = case.inputs["gradients"]
    one = case.inputs.get("dtype", "float32")
    dtypes = case.inputs.get("dtypes", [one] * len(recorded))
    pairs = [
        (constant(g, d), f"v{k}") for k, (g, d) in enumerate(zip(recorded, dtypes))
    ]
    omitted = case.inputs.get("clip_norm_omitted", False)
    options = {} if omitted else {"clip_norm": float(case.inputs["clip_norm"])}
    clipped, norm = clip(pairs, **options)
    present = {str(k): g for k, (g, _) in enumerate(clipped) if g is not None}
    with session() as running:
        values, norm_value = running.run((present, norm))
    results = [values.get(str(k)) for k in range(len(clipped))]
    dtype = norm.dtype.name
    return {"clipped": results, "global_norm": norm_value, "global_norm_dtype": dtype}


def constant(gradient: Any, dtype: str) -> Any:
    """Create a gradient without a variable."""
    if gradient is None:
        return None
    if not isinstance(gradient, dict):
        return tf.constant(array(gradient, dtype))
    values = tf.constant(array(gradient["values"], dtype))
    indices = tf.constant(gradient["indices"], tf.int64)
    return tf.IndexedSlices(values, indices, tf.constant(gradient["dense_shape"]))
