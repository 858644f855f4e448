"""Replicas of a MirroredStrategy end as one process with the joined batch does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.tests.script_process import Request
from harness.tests.shared_processes import TWO_DEVICES, Processes
from lockstep.keras3.tests import mirrored
from lockstep.keras3.tests.mirrored import MAKE, RULES, ways

CASES = [(k, n) for k in MAKE for n in (1, 2) if n == 2 or k not in RULES]


RULED = ("scale", "masters")
"""Wrappers that skip a step that overflows."""
# The stack has all wrappers.
PARAMETERS = [
    pytest.param(*case, marks=[pytest.mark.slow] * (case[0] != "stack"))
    for case in CASES
]


@pytest.fixture(scope="module")
def runs(
    pytestconfig: pytest.Config, processes: Processes
) -> dict[tuple[str, int, str], Any]:
    everything = "not slow" not in pytestconfig.getoption("markexpr")
    chosen: dict[str, list[int]] = {}
    for name, count in CASES:
        if everything or name == "stack":
            chosen.setdefault(name, []).append(count)
    request = Request(str(Path(mirrored.__file__)), [json.dumps(chosen)])
    printed = processes.output_of(TWO_DEVICES, ["tensorflow", "keras"], request)
    found = [json.loads(line) for line in printed.splitlines()]
    return {
        (n, count, way): (weights, state) for n, count, way, weights, state in found
    }


@pytest.mark.parametrize(("name", "count"), PARAMETERS)
def test_replicas_end_as_the_joined_batch(runs: Any, name: str, count: int) -> None:
    for way in ways(name, count):
        weights, state = runs[name, count, way]
        alone = "fit compiled" if way == "fit compiled" else "fit"
        expected, counted = runs[name, 0, alone]
        assert np.all(np.isfinite(weights)) and state == counted, way
        # Sums of two shares are rounded once more; bfloat16 has 8 bits.
        bound = {1: 0.0, 2: 2**-7 if name == "masters" else 1e-6}[count]
        np.testing.assert_allclose(weights, expected, bound, bound, way)


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.slow) for n in RULED), "stack"]
)
def test_a_step_that_overflows_on_one_replica_is_skipped_on_both(
    runs: Any, name: str
) -> None:
    scale = 32.0 if name == "masters" else 16.0
    for way in ways(name, 2):
        # Of six steps one did not happen, and the scale was lowered once.
        assert runs[name, 2, way][1][:2] == [5.0, scale], way


PREAMBLE = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import keras3 as ls

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def copies(variable):
    found = [copy.numpy().tolist() for copy in variable.value.values]
    assert found[0] == found[1], found
    return found[0]

def made(make):
    with strategy.scope():
        momentum = keras.optimizers.SGD(0.5, momentum=0.5)
        w = keras.Variable([1.0, 1.0], name="w")
        v = keras.Variable([[1.0], [1.0]], name="v")
        return w, v, make(momentum)

def refused(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])

def replica():
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))
"""

ABSENT = """
w, v, opt = made(ls.MultitaskOptimizerWrapper)

def step(here, there):
    given = (here, there)[replica()]
    opt.apply_gradients(list(zip(given, (w, v))))

one, rows = tf.constant([1.0, 0.0]), tf.constant([[1.0], [3.0]])
named = tf.IndexedSlices(rows, tf.constant([0, 0]), tf.constant([2, 1]))
strategy.run(step, args=((one, None), (None, None)))
print("one share", copies(w), copies(v), opt.last_step.reason)
strategy.run(step, args=((None, named), (-one, named)))
print("rows of both", copies(w), copies(v))
tf.function(strategy.run)(step, args=((one, named), (-one, rows)))
print("cancelled, and dense", copies(w), copies(v))
refused(lambda: strategy.run(step, args=((None, None), (None, None))))
with strategy.scope():
    opt.apply_gradients([(one, w)])
print("in a scope", copies(w))
"""


def test_a_gradient_is_absent_or_zero_only_if_it_is_on_every_replica(
    elsewhere: Callable[..., list[str]],
) -> None:
    assert elsewhere(PREAMBLE + ABSENT, kind=TWO_DEVICES) == [
        "one share [0.5, 1.0] [[1.0], [1.0]] of 2 gradients 1 absent",
        "rows of both [0.75, 1.0] [[-3.0], [1.0]]",
        "cancelled, and dense [0.75, 1.0] [[-7.5], [-0.5]]",
        "NoGradientsError MultitaskOptimizerWrapper: expected a gradient for at least "
        "one variable, got None for every one of w, v; check that the loss depends on "
        "these variables.",
        "in a scope [0.375, 1.0]",
    ]


ROWS = """
w, v, opt = made(lambda sgd: ls.VariableClippingOptimizer(sgd, {"v": [1]}, 2.5))

def step(indices):
    rows = tf.constant([[-4.0], [-2.0]])
    gradient = tf.IndexedSlices(rows, indices, tf.constant([2, 1]))
    opt.apply_gradients([(gradient, v)])

same, both = tf.constant([0, 0]), tf.constant([0, 1])
strategy.run(step, args=(same,))
print(copies(v), opt.last_step.reason)
for _ in range(2):
    tf.function(strategy.run)(step, args=(both,))
print(copies(v))
"""


def test_rows_of_a_sparse_gradient_are_clipped_on_every_replica(
    elsewhere: Callable[..., list[str]],
) -> None:
    assert elsewhere(PREAMBLE + ROWS, kind=TWO_DEVICES) == [
        "[[2.5], [1.0]] every gradient was present; 1 of 1 rows clipped",
        "[[2.5], [2.5]]",
    ]


LOSSES = """
def trained(make, dtype="float32"):
    w, v, opt = made(make)
    with strategy.scope():
        w = keras.Variable([1.0, 1.0], dtype=dtype, name="w")
    # Adds the weight itself to the gradient of a master.
    w.regularizer = ls.mp_regularizer_wrapper(keras.regularizers.L2(0.5))
    counter = keras.Variable(0, dtype="int64", trainable=False)

    def step(x):
        loss = lambda: tf.reduce_sum(tf.cast(w.value, "float32") * x) * 0.5
        pairs = opt.compute_gradients(loss, [w])
        opt.apply_gradients(pairs, counter)

    for x in ([1.0, 0.5], [1.0, 0.25], [np.inf, 0.5]):
        given = [tf.constant(x), tf.constant([1.0, 0.25])]
        pick = lambda context: given[context.replica_id_in_sync_group]
        batch = strategy.experimental_distribute_values_from_function(pick)
        strategy.run(step, args=(batch,))
    return copies(w), int(counter), float(opt.loss_scale), opt.last_step.reason

print(*trained(lambda o: ls.MixedPrecisionLossScaleOptimizer(o, "dynamic")))
print(*trained(lambda o: ls.MixedPrecisionOptimizerWrapper(o, "dynamic"), "float16"))
"""


def test_gradients_of_a_loss_are_unscaled_once_on_each_replica(
    elsewhere: Callable[..., list[str]],
) -> None:
    assert elsewhere(PREAMBLE + LOSSES, kind=TWO_DEVICES) == [
        "[-0.25, 0.59375] 2 16384.0 skipped, not finite: w; loss scale 32768 -> 16384",
        "[-1.0, -0.3125] 2 16384.0 skipped, not finite: w; loss scale 32768 -> 16384",
    ]


STEP = """
with strategy.scope():
    w = keras.Variable([1.0, 1.0], name="w")

def loss(x):
    return tf.reduce_mean(tf.linalg.matvec(x, w))

def make(**options):
    return ls.optimize_loss(
        loss, "Momentum", {"momentum": 0.5}, lambda step: 0.5, [w], "mixed",
        loss_scaling="Backoff", **options
    )

def run(step, *batches):
    for batch in batches:
        parts = tf.split(tf.constant(batch), 2)
        pick = lambda context: parts[context.replica_id_in_sync_group]
        given = strategy.experimental_distribute_values_from_function(pick)
        found = strategy.run(step, args=(given,))
    return [float(part) for part in strategy.experimental_local_results(found)]

X = [[1.0, 0.0], [3.0, 2.0]]
step = make(on_horovod=True, clip_gradients=100.0)
print(run(step, X), copies(w), int(step.global_step))
run(step, [[1.0, 0.0], [np.inf, 2.0]])
print(copies(w), int(step.global_step), step.last_step.applied)
step = make(on_horovod=True, iter_size=2)
run(tf.function(step), X, X)
print(copies(w), int(step.global_step))
refused(lambda: run(make(), X))
"""


def test_a_training_step_averages_over_replicas(
    elsewhere: Callable[..., list[str]],
) -> None:
    assert elsewhere(PREAMBLE + STEP, kind=TWO_DEVICES) == [
        "[1.0, 5.0] [0.0, 0.5] 1",
        "[0.0, 0.5] 1 False",
        "[-1.0, 0.0] 1",
        "UnsupportedError optimize_loss: expected on_horovod with several replicas, "
        "got 2 of them; pass on_horovod=True, so that their gradients are averaged.",
    ]
