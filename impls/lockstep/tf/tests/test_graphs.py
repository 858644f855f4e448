"""Graphs of a step: not traced anew, and of no more operations than they have today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.tf import (
    AdamOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    NovoGrad,
    VariableClippingOptimizer,
    post_process_gradients,
)

COUNT = 20
"""Variables of a step."""

LIMITS = {
    "multitask": 655,
    "rows": 696,
    "scaling": 707,
    "masters": 1271,
    "NovoGrad": 623,
    "larc": 292,
}
"""Operations of a step today, those of the functions that it calls included."""

OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "multitask": lambda weights: MultitaskOptimizerWrapper(AdamOptimizer(1e-3)),
    "rows": lambda weights: VariableClippingOptimizer(
        AdamOptimizer(1e-3), {w.ref(): [1] for w in weights}, 1.0
    ),
    "scaling": lambda weights: MixedPrecisionLossScaleOptimizer(
        AdamOptimizer(1e-3), DynamicLossScale(8.0), clip_norm=1.0
    ),
    "masters": lambda weights: MixedPrecisionOptimizerWrapper(
        AdamOptimizer(1e-3), DynamicLossScale(8.0), clip_norm=1.0
    ),
    "NovoGrad": lambda weights: NovoGrad(1e-3),
}


def weights_of(name: str) -> list[tf.Variable]:
    dtype = tf.float16 if name == "masters" else tf.float32
    return [tf.Variable(tf.ones([4, 3], dtype), name=f"w{n}") for n in range(COUNT)]


def step_of(name: str, weights: list[tf.Variable]) -> Callable[..., Any]:
    if name == "larc":
        larc = {"larc_eta": 0.1}
        return lambda gradients: post_process_gradients(
            list(zip(gradients, weights, strict=True)), [], 0.1, None, larc
        )
    optimizer = OPTIMIZERS[name](weights)

    def step(gradients: list[tf.Tensor]) -> None:
        if name in ("scaling", "masters"):
            pairs = optimizer.compute_gradients(lambda: loss(gradients), weights)
        else:
            pairs = list(zip(gradients, weights, strict=True))
        optimizer.apply_gradients(pairs)

    def loss(gradients: list[tf.Tensor]) -> tf.Tensor:
        products = zip(weights, gradients, strict=True)
        return tf.add_n([tf.reduce_sum(w * g) for w, g in products])

    return step


def operations(graph: tf.Graph) -> int:
    """Return how many operations a graph and the functions of its library have."""
    definition = graph.as_graph_def()
    functions = definition.library.function
    return len(definition.node) + sum(len(each.node_def) for each in functions)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*OPTIMIZERS, "larc"])
def test_no_step_is_traced_anew_and_the_graph_does_not_grow(name: str) -> None:
    weights = weights_of(name)
    step = tf.function(step_of(name, weights), autograph=False)
    dtype = tf.float16 if name == "masters" else tf.float32
    traced = []
    for value in (1.0, 0.5, 0.0, np.inf, 2.0):
        step([tf.fill([4, 3], tf.cast(value, dtype))] * COUNT)
        traced.append(step.experimental_get_tracing_count())
    # tf.function traces twice where the first call makes variables.
    assert traced == [traced[0]] * len(traced)
    assert traced[0] <= 2
    shapes = [tf.TensorSpec([4, 3], dtype)] * COUNT
    count = operations(step.get_concrete_function(shapes).graph)
    assert count <= LIMITS[name], f"{count} operations; {LIMITS[name]} before"
