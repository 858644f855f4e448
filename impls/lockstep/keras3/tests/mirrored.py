"""Every wrapper under MirroredStrategy, in one process: prints what the runs end with.

Run as a program, with names of ``MAKE`` and their numbers of replicas as JSON;
TensorFlow's devices are split before it starts. A line is a JSON list: wrapper,
replicas, way, weights, state that steps count.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep import keras3 as ls

BATCH = 4
X = np.random.RandomState(0).randn(24, 4).astype(np.float32)
X[4:6, 2:] = 0  # one replica sees no gradient of the second head
X[12:16, 2:] = 0  # nobody does
Y = X[:, :1].copy()
OVERFLOWS = X.copy()
OVERFLOWS[18, 0] = np.inf  # on the second replica

WAYS = ("fit eagerly", "fit", "fit compiled", "loop eagerly", "loop")


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.0625, momentum=0.5)


def rows(inner: Any) -> Any:
    return ls.VariableClippingOptimizer(inner, {"first/kernel": [0]}, 0.5)


def worker() -> Any:
    getter = ls.AGNCustomGetter.from_config({"worker_device": "/cpu:0"})
    return ls.AGNOptimizer(momentum(), 1, getter, 2)


def scaled(inner: Any) -> Any:
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(inner, scale, clip_norm=4.0)


MAKE: dict[str, Callable[[], Any]] = {
    "multitask": lambda: ls.MultitaskOptimizerWrapper(momentum()),
    "scale": lambda: scaled(momentum()),
    "masters": lambda: ls.MixedPrecisionOptimizerWrapper(
        momentum(), ls.AutomaticLossScaler("Backoff", {"scale_max": 64.0})
    ),
    "rows": lambda: rows(momentum()),
    "worker": worker,
    "stack": lambda: ls.MultitaskOptimizerWrapper(scaled(rows(ls.AdamOptimizer(0.1)))),
    "rule": lambda: ls.NovoGrad(0.0625),
    "ftrl": lambda: ls.FtrlOptimizer(0.0625),
}
RULES = ("rule", "ftrl")
SKIPS = ("scale", "masters", "stack")


def strategy_of(count: int) -> tf.distribute.Strategy | None:
    names = ["CPU:0", "CPU:1"][:count]
    return tf.distribute.MirroredStrategy(names) if count else None


def scope(strategy: tf.distribute.Strategy | None) -> Any:
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def make_model(name: str, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = keras.Input((4,))
    dtype = "bfloat16" if name == "masters" else "float32"
    heads = [
        keras.layers.Dense(1, name=head, dtype=dtype, use_bias=False)(part)
        for head, part in (("first", x[:, :2]), ("second", x[:, 2:]))
    ]
    total = keras.layers.Add(dtype="float32")(heads)
    model = keras.Model(x, total)
    model.compile(MAKE[name](), "mse", **options)
    return model


def batches(
    x: Any, strategy: tf.distribute.Strategy | None
) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(x), BATCH):
        parts = [a[start : start + BATCH] for a in (x, Y)]
        yield tuple(spread(part, strategy) for part in parts)


def spread(part: Any, strategy: tf.distribute.Strategy | None) -> Any:
    """Return a batch, split over the replicas."""
    if strategy is None:
        return tf.constant(part)
    shares = np.split(part, strategy.num_replicas_in_sync)
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(shares[context.replica_id_in_sync_group])
    )


def run(name: str, way: str, count: int, x: Any) -> keras.Model:
    strategy = strategy_of(count)
    options = {"run_eagerly": way == "fit eagerly"}
    options["jit_compile"] = way == "fit compiled"
    with scope(strategy):
        model = make_model(name, **(options if way.startswith("fit") else {}))
    if way.startswith("fit"):
        model.fit(x, Y, batch_size=BATCH, shuffle=False, verbose=0)
        return model
    optimizer, weights = model.optimizer, model.trainable_variables

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x) - y)) / BATCH
            loss = optimizer.scale_loss(loss)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )

    def everywhere(*batch: Any) -> None:
        step(*batch) if strategy is None else strategy.run(step, args=batch)

    take = everywhere if way == "loop eagerly" else tf.function(everywhere)
    for batch in batches(x, strategy):
        take(*batch)
    return model


def counted(optimizer: Any) -> list[float]:
    """Return what counts steps or scales, of every layer of a stack."""
    found = [float(optimizer.iterations.numpy())]
    while isinstance(optimizer, ls.MultitaskOptimizerWrapper):
        optimizer = optimizer.inner_optimizer
    for name in ("loss_scale", "skipped_in_a_row", "local_step"):
        if hasattr(optimizer, name):
            found.append(float(tf.convert_to_tensor(getattr(optimizer, name))))
    return found


def check_copies(model: keras.Model) -> None:
    """Raise unless every variable has the same bits on each replica."""
    for variable in [*model.variables, *model.optimizer.variables]:
        if isinstance(variable.value, tf.distribute.DistributedValues):
            copies = [copy.numpy() for copy in variable.value.values]
            assert all(c.tobytes() == copies[0].tobytes() for c in copies), variable


def ways(name: str, count: int) -> tuple[str, ...]:
    """Return the ways to run; with two replicas XLA compiles no step of Keras'."""
    if name in RULES:
        return ("fit",)
    return (("fit", "fit compiled"), WAYS, WAYS[:2] + WAYS[3:])[count]


def main(counts: dict[str, list[int]]) -> None:
    for name, own in counts.items():
        x = OVERFLOWS if name in SKIPS else X
        for count in (0, *own):
            for way in ways(name, count):
                if way == "fit compiled" and 1 not in own:
                    continue  # Only a single replica is compared with it.
                model = run(name, way, count, x)
                check_copies(model)
                weights = np.concatenate([w.ravel() for w in model.get_weights()])
                state = counted(model.optimizer)
                line = [name, count, way, weights.astype(float).tolist(), state]
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    main(json.loads(sys.argv[1]))
