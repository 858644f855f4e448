"""Train with some wrappers as one rank of several processes; run as a program.

``TF_CONFIG`` says which rank this is. It prints the weights after all steps as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from lockstep import tf as ls

v1 = tf.compat.v1
INF = float("inf")
Batches = Sequence[Sequence[tuple[float, float]]]
STEPS: Batches = [[(1.0, 0.0), (2.0, 0.0)], [(1.0, 1.0), (0.0, 1.0)]]
"""What the losses of two tasks are multiplied by: step, rank, task."""
OVERFLOW: Batches = [[(1.0, 0.0), (INF, 0.0)], *STEPS]
OPTIMIZERS: dict[str, tuple[Callable[[list[Any]], Any], Batches]] = {
    "multitask": (
        lambda v: ls.MultitaskOptimizerWrapper(v1.train.AdamOptimizer(0.125)),
        STEPS,
    ),
    "rows": (
        lambda v: ls.VariableClippingOptimizer(
            v1.train.MomentumOptimizer(0.125, 0.5), {v[0].ref(): [1]}, 1.5
        ),
        STEPS,
    ),
    "scaled": (
        lambda v: ls.MixedPrecisionLossScaleOptimizer(
            v1.train.AdamOptimizer(0.125), ls.DynamicLossScale(8.0)
        ),
        OVERFLOW,
    ),
    "novograd": (lambda v: ls.NovoGrad(0.125), STEPS),
}


def variables() -> list[tf.Variable]:
    """The weights of two tasks."""
    return [tf.Variable([[1.0, 1.0], [2.0, 2.0]]), tf.Variable([1.0, 1.0])]


def step(optimizer: Any, weights: list[tf.Variable], x: Any, y: Any) -> None:
    """Take one step."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights[0]) * x + tf.reduce_sum(weights[1]) * y
    gradients = tape.gradient(loss, weights)
    optimizer.apply_gradients(list(zip(gradients, weights, strict=True)))


def trained_alone(name: str) -> list[Any]:
    """Return the weights of one process that sees the batches of both ranks."""
    make, batches = OPTIMIZERS[name]
    weights = variables()
    optimizer = make(weights)
    for ranks in batches:
        step(optimizer, weights, *(sum(task) for task in zip(*ranks, strict=True)))
    return [weight.numpy().tolist() for weight in weights]


def trained_as_rank(name: str, strategy: Any, rank: int) -> list[Any]:
    """Return the weights of one rank."""
    make, batches = OPTIMIZERS[name]
    scope: AbstractContextManager[None] = strategy.scope()
    with scope:
        weights = variables()
        optimizer = make(weights)

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor) -> None:
        strategy.run(lambda x, y: step(optimizer, weights, x, y), args=(x, y))

    for ranks in batches:
        train(*map(tf.constant, ranks[rank]))
    return [weight.numpy().tolist() for weight in weights]


def loss_step(strategy: Any, rank: int, batches: Sequence[Any], **options: Any) -> Any:
    """Return what ``optimize_loss`` made of a weight, the steps and the scale."""
    dtype = tf.float16 if "dtype" in options else tf.float32
    with strategy.scope():
        weight = tf.Variable(tf.ones([2], dtype))

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(weight, tf.float32) * x)

    with strategy.scope():
        made = ls.optimize_loss(
            loss, "SGD", {}, lambda _: 0.5, [weight], on_horovod=True, **options
        )
    train = tf.function(lambda x: strategy.run(made, args=(x,)))
    for ranks in batches:
        train(tf.constant(ranks[rank]))
    scale = None if made.scaler is None else float(made.scaler.loss_scale)
    return [weight.numpy().tolist(), int(made.global_step.numpy()), scale]


def main() -> None:
    """Train with everything as this rank."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    found = {name: trained_as_rank(name, strategy, rank) for name in OPTIMIZERS}
    halves = [[[2.0, 0.0], [4.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]]
    found["accumulated"] = loss_step(strategy, rank, halves, iter_size=2)
    overflow = [[[1.0, 0.0], [3.0, 2.0]], [[1.0, INF], [3.0, 2.0]]]
    mixed = {"dtype": "mixed", "loss_scaling": "Backoff"}
    found["mixed"] = loss_step(strategy, rank, overflow, **mixed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
