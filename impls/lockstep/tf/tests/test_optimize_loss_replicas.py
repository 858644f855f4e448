"""Replicas of one process as ranks: they average, and agree on what is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.tests.shared_processes import TWO_DEVICES

pytestmark = pytest.mark.slow

REPLICAS = """
import contextlib
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    shared, head = (tf.Variable([1.0, 1.0], name=n) for n in ("shared", "head"))
    half = tf.Variable([1.0, 1.0], dtype=tf.float16, name="half")
    table = tf.Variable([4.0, 4.0, 4.0])

def multitask(learning_rate):
    momentum = v1.train.MomentumOptimizer(learning_rate, 0.5)
    return ls.MultitaskOptimizerWrapper(momentum)

def loss(x, task):
    if x.dtype == tf.int32:
        return tf.reduce_sum(tf.gather(table, x))
    total = tf.reduce_sum(shared * x) + tf.cast(tf.reduce_sum(half), tf.float32) * x[0]
    return total + (tf.reduce_sum(head) * task)

def per_replica(*values):
    given = [tf.constant(value) for value in values]
    pick = lambda context: given[context.replica_id_in_sync_group]
    return strategy.experimental_distribute_values_from_function(pick)

def copies(variable):
    found = strategy.experimental_local_results(variable)
    values = [copy.numpy().tolist() for copy in found]
    assert values[0] == values[1]
    return values[0]

def make(optimizer=multitask, trained=(shared, head, half), in_scope=True, **options):
    with strategy.scope() if in_scope else contextlib.nullcontext():
        return ls.optimize_loss(
            loss, optimizer, None, lambda step: 0.5, trained, on_horovod=True, **options
        )

def function_of(step):
    return tf.function(lambda *given: strategy.run(step, args=given))

step = make(dtype="mixed", loss_scaling="Backoff", clip_gradients=100.0)
train = function_of(step)
zero = per_replica(0.0, 0.0)
train(per_replica([1.0, 0.0], [3.0, 2.0]), zero)
print("mean", copies(shared), copies(half), copies(head))
train(per_replica([1.0, float("inf")], [3.0, 2.0]), zero)
scale = copies(step.scaler.state["loss_scale"])
print("overflow", copies(shared), copies(half), scale, copies(step.global_step))
train(per_replica([0.0, 0.0], [0.0, 0.0]), per_replica(0.0, 2.0))
print("one task", copies(shared), copies(half), copies(head))
print(", ".join(step.pipeline))

step = make(iter_size=2)
train = function_of(step)
train(per_replica([2.0, 0.0], [4.0, 2.0]), zero)
train(per_replica([0.0, 0.0], [0.0, 0.0]), zero)
print("two micro-batches", copies(shared), copies(head), copies(step.global_step))

step = make("SGD", [table], iter_size=2)
rows = per_replica([0, 1], [0, 0])
for _ in range(2):
    strategy.run(step, args=(rows, zero))  # Eagerly.
print("sparse", copies(table))

def refused(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__)

with strategy.scope():
    refused(lambda: step(tf.ones([2]), 0.0))
    alone = ls.optimize_loss(loss, "SGD", {}, lambda step: 0.5, [shared])
    with tf.Graph().as_default():
        refused(make)
refused(lambda: strategy.run(alone, args=(tf.ones([2]), 0.0)))
own = tf.Variable([1.0, 1.0], name="own")
for alone in make("SGD", [own, shared]), make("SGD", [shared], in_scope=False):
    refused(lambda: strategy.run(alone, args=(tf.ones([2]), 0.0)))
"""


def test_replicas_average_and_agree_on_every_skip(shared: Callable[..., str]) -> None:
    assert shared(TWO_DEVICES, REPLICAS).splitlines() == [
        "mean [0.0, 0.5] [0.0, 0.0] [1.0, 1.0]",
        "overflow [0.0, 0.5] [0.0, 0.0] 8192.0 1",
        "one task [0.0, 0.5] [0.0, 0.0] [0.5, 0.5]",
        "unscale, reduce, zero filter, finite check, norm, clip, update",
        "two micro-batches [-0.75, 0.25] [0.5, 0.5] 1",
        "sparse [3.25, 3.75, 4.0]",
        "ValueError",
        "UnsupportedError",
        "UnsupportedError",
        "UnsupportedError",
        "UnsupportedError",
    ]


ONE_REPLICA = """
import contextlib
from lockstep import tf as ls
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
nothing = contextlib.nullcontext()

def trained(mode, used, in_scope, **options):
    half = tf.float16 if "dtype" in options else tf.float32
    with used.scope() if used else nothing:
        weight = tf.Variable(tf.constant([1.0, 2.0], half))

    def loss():
        return tf.reduce_sum(tf.square(tf.cast(weight, tf.float32)))

    def make():
        rate = lambda step: 0.125
        return ls.optimize_loss(loss, "Adam", {}, rate, [weight], **options)

    if mode == "graph":
        done = used.run(make) if used else make()
        done = used.experimental_local_results(done)[0] if used else done
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(4):
                session.run(done)
            read = used.experimental_local_results(weight)[0] if used else weight
            return session.run(read).tolist()
    with used.scope() if in_scope else nothing:
        step = make()
    def call():
        used.run(step) if used else step()
    call = tf.function(call, autograph=False) if mode == "function" else call
    for _ in range(4):
        call()
    return weight.numpy().tolist(), int(step.global_step.numpy())

for options in ({}, {"dtype": "mixed", "loss_scaling": "Backoff", "iter_size": 2}):
    for mode in ("eager", "function", "graph"):
        found = []
        for used, in_scope in ((None, False), (strategy, False), (strategy, True)):
            with tf.Graph().as_default() if mode == "graph" else nothing:
                found.append(trained(mode, used, in_scope, **options))
        print(mode, found[0] == found[1] == found[2], found[0])
"""


def test_one_replica_trains_like_none(shared: Callable[..., str]) -> None:
    lines = shared("eager, first", ONE_REPLICA).splitlines()
    assert len(lines) == 6
    for line in lines:
        assert " True " in line
    # It trains: the weights began at 1 and 2.
    assert "[1.0, 2.0]" not in "".join(lines)


# -- reduce_gradients ---------------------------------------------------------------


TWO_REPLICAS = """
import tensorflow as tf
from lockstep.tf import reduce_gradients

cpus = tf.config.list_physical_devices("CPU")
logical = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpus[0], [logical, logical])
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    shapes = [2], [3, 1], [1], [4]
    weights = [tf.Variable(tf.zeros(shape)) for shape in shapes]


@tf.function
def step():
    here = tf.distribute.get_replica_context().replica_id_in_sync_group
    first = tf.get_static_value(here) == 0
    rows = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 0]))
    rank = tf.cast(here, tf.float32)
    gradients = [tf.ones([2]) + rank, rows, tf.ones([1]) if first else None, None]
    pairs = reduce_gradients(zip(gradients, weights), on_horovod=True)
    assert pairs[3][0] is None
    return [gradient for gradient, _ in pairs[:3]]


found = strategy.run(step)
for gradient in found:
    results = strategy.experimental_local_results(gradient)
    print([value.numpy().tolist() for value in results])
try:
    with strategy.scope():
        reduce_gradients(list(zip([None] * 4, weights)), on_horovod=True)
except RuntimeError as error:
    print(error)
"""


def test_two_replicas_get_the_mean_and_agree_on_what_is_absent(shared):
    dense, rows, absent, refused = shared(TWO_DEVICES, TWO_REPLICAS).splitlines()
    assert dense == "[[1.5, 1.5], [1.5, 1.5]]"
    assert rows == "[[[2.0], [0.0], [0.0]], [[2.0], [0.0], [0.0]]]"
    assert absent == "[[0.5], [0.5]]"
    assert "call it inside strategy.run" in refused
