"""The main steps on every backend, with two variables and gradients without zeros.

On PyTorch a step is ``optimizer.step()`` after the backward pass. On other backends it
is ``optimizer.minimize(loss)``, which computes the gradients too. A framework is
imported when its steps are requested.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from harness.layout.calls import Calls, Step, count_calls
from lockstep.registry import BACKENDS, find, load

__all__ = ["call_counts", "steps_of"]

RATE, SLOPE, LIMIT = 0.125, 0.0078125, 1.0
LARC = {"larc_eta": 0.001}
MIXED = {"dtype": "mixed", "loss_scaling": "Backoff"}


class Parts(NamedTuple):
    """The functions that build the steps of one backend.

    Attributes:
        variables: creates a matrix and a vector; float16 if its argument is true.
        loss: returns the function that computes the loss of variables.
        pairs: variables -> pairs of gradient and variable.
        optimizer: creates a base optimizer for variables.
        key: variable -> its key in ``vars_to_clip_dims``.
        step: creates a step from a wrapped optimizer, its variables and their loss.
    """

    variables: Callable[[bool], list[Any]]
    loss: Callable[[list[Any]], Callable[[], Any]]
    pairs: Callable[[list[Any]], list[tuple[Any, Any]]]
    optimizer: Callable[[list[Any]], Any]
    key: Callable[[Any], Any]
    step: Callable[[Any, list[Any], Callable[[], Any]], Step]


def call_counts() -> dict[str, dict[str, Calls]]:
    """Return name of a step -> backend -> calls during the step."""
    counts: dict[str, dict[str, Calls]] = {}
    for backend in BACKENDS:
        for name, step in steps_of(backend).items():
            counts.setdefault(name, {})[backend] = count_calls(step)
    return counts


def steps_of(backend: str) -> dict[str, Step]:
    """Return name -> step of a backend. Its framework must be installed."""
    steps = _common_steps(load(backend), PARTS[find(backend).name]())
    if backend == "tf":
        steps["optimize_loss with a clip, building the graph"] = Step(_build_graph)
    return steps


def _common_steps(module: Any, parts: Parts) -> dict[str, Step]:
    """Return the steps that every backend has."""
    weights = parts.variables(False)
    first = parts.key(weights[0])
    scale = module.FixedLossScale(1024.0)
    scaled = partial(module.MixedPrecisionLossScaleOptimizer, loss_scale=scale)
    masters = partial(module.MixedPrecisionOptimizerWrapper, loss_scale="dynamic")
    rows = partial(
        module.VariableClippingOptimizer,
        vars_to_clip_dims={first: [1]},
        max_norm=LIMIT,
    )
    pairs = parts.pairs(weights)

    def wrapped(wrapper: Callable[..., Any], trained: list[Any]) -> Step:
        optimizer = wrapper(parts.optimizer(trained))
        return parts.step(optimizer, trained, parts.loss(trained))

    def training(half: bool = False, **settings: Any) -> Step:
        trained = parts.variables(half)
        arguments = "Momentum", {"momentum": 0.5}, lambda step: RATE
        loss, variables = parts.loss(trained), trained
        return Step(
            module.optimize_loss(loss, *arguments, var_list=variables, **settings)
        )

    return {
        "multitask wrapper": wrapped(module.MultitaskOptimizerWrapper, weights),
        "row clipping": wrapped(rows, weights),
        "loss scaling with a clip": wrapped(partial(scaled, clip_norm=LIMIT), weights),
        "float16 with masters, loss scaling and a clip": wrapped(
            partial(masters, clip_norm=LIMIT), parts.variables(True)
        ),
        "LARC": Step(
            lambda: module.post_process_gradients(pairs, [], RATE, None, LARC)
        ),
        "optimize_loss with LARC": training(larc_params=LARC),
        "optimize_loss, mixed precision with Backoff and a clip": training(
            half=True, clip_gradients=LIMIT, **MIXED
        ),
    }


def _minimize(optimizer: Any, trained: list[Any], loss: Callable[[], Any]) -> Step:
    return Step(lambda: optimizer.minimize(loss, var_list=trained))


# -- what the backends are made of -----------------------------------------------------


def _reference() -> Parts:
    import numpy as np

    from lockstep import reference

    def variables(half: bool) -> list[Any]:
        dtype = np.float16 if half else np.float32
        shapes = {"w": (2, 2), "b": (2,)}
        return [reference.Variable(n, np.ones(s), dtype) for n, s in shapes.items()]

    def gradients(trained: list[Any]) -> list[Any]:
        return [np.full_like(variable.value, SLOPE) for variable in trained]

    return Parts(
        variables,
        lambda trained: lambda: gradients(trained),
        lambda trained: list(zip(gradients(trained), trained, strict=True)),
        lambda trained: reference.MomentumOptimizer(RATE, momentum=0.5),
        lambda variable: variable,
        _minimize,
    )


def _pytorch() -> Parts:
    import torch

    def variables(half: bool) -> list[Any]:
        dtype = torch.float16 if half else torch.float32
        return [torch.nn.Parameter(torch.ones(s, dtype=dtype)) for s in ((2, 2), (2,))]

    def loss(trained: list[Any]) -> Any:
        return sum(SLOPE * variable.float().sum() for variable in trained)

    def pairs(trained: list[Any]) -> list[tuple[Any, Any]]:
        return [(torch.full_like(v, SLOPE).detach(), v) for v in trained]

    def step(optimizer: Any, trained: list[Any], loss: Callable[[], Any]) -> Step:
        def backward() -> None:
            optimizer.zero_grad()
            scaled = getattr(optimizer, "scale_loss", lambda value: value)
            scaled(loss()).backward()

        return Step(optimizer.step, backward)

    return Parts(
        variables,
        lambda trained: lambda: loss(trained),
        pairs,
        lambda trained: torch.optim.SGD(trained, lr=RATE, momentum=0.5),
        lambda variable: variable,
        step,
    )


def _tf() -> Parts:
    import tensorflow as tf

    def variables(half: bool) -> list[Any]:
        dtype = tf.float16 if half else tf.float32
        return [tf.Variable(tf.ones(shape, dtype)) for shape in ((2, 2), (2,))]

    def loss(trained: list[Any]) -> Any:
        return sum(SLOPE * tf.reduce_sum(tf.cast(v, tf.float32)) for v in trained)

    return Parts(
        variables,
        lambda trained: lambda: loss(trained),
        lambda trained: [(tf.fill(v.shape, SLOPE), v) for v in trained],
        lambda trained: tf.compat.v1.train.MomentumOptimizer(RATE, momentum=0.5),
        lambda variable: variable.ref(),
        _minimize,
    )


def _keras3() -> Parts:
    import keras

    def variables(half: bool) -> list[Any]:
        dtype = "float16" if half else "float32"
        make = partial(keras.Variable, dtype=dtype)
        return [make([[1.0, 1.0]] * 2, name="w"), make([1.0, 1.0], name="b")]

    def loss(trained: list[Any]) -> Any:
        ops = keras.ops
        return sum(SLOPE * ops.sum(ops.cast(v, "float32")) for v in trained)

    return Parts(
        variables,
        lambda trained: lambda: loss(trained),
        lambda trained: [(keras.ops.full(v.shape, SLOPE), v) for v in trained],
        lambda trained: keras.optimizers.SGD(RATE, momentum=0.5),
        lambda variable: variable.path,
        _minimize,
    )


PARTS: dict[str, Callable[[], Parts]] = {
    "reference": _reference,
    "pytorch": _pytorch,
    "tf": _tf,
    "keras3": _keras3,
}


def _build_graph() -> None:
    """Build the training step in a new graph, as TensorFlow 1 does once."""
    import tensorflow as tf

    optimize_loss = importlib.import_module("lockstep.tf").optimize_loss
    with tf.Graph().as_default():
        ones = tf.compat.v1.ones_initializer()
        get_variable = partial(tf.compat.v1.get_variable, initializer=ones)
        weights = [get_variable("w", (2, 2)), get_variable("b", (2,))]
        tf.compat.v1.train.get_or_create_global_step()
        loss = sum(tf.reduce_sum(SLOPE * weight) for weight in weights)
        arguments = "Momentum", {"momentum": 0.5}, lambda step: RATE
        optimize_loss(loss, *arguments, clip_gradients=LIMIT)
