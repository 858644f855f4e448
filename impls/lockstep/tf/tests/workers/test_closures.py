"""Rounds as closures of a ClusterCoordinator, as the page on AGN has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import reference

RATE, MOMENTUM, PERIOD = 0.25, 0.5, 2
ROUNDS = [[[0.1 * k - 0.7, 0.3], [0.2, 0.05 * k]] for k in range(6)]
"""The gradients of the steps of each round."""

CLUSTER = """
import json
from lockstep import tf as ls
from lockstep.tf.tests.addresses import free_addresses

tf.get_logger().setLevel("ERROR")
jobs = dict(ps=free_addresses(1), worker=free_addresses(2))
cluster = tf.train.ClusterSpec(jobs)
config = v1.ConfigProto(inter_op_parallelism_threads=8)
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    for job in jobs for task in range(len(jobs[job]))
]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    cluster, rpc_layer="grpc"
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def push(rule, *arguments, **options):
    strategy.run(lambda: rule.apply_gradients(*arguments, **options))
"""

ROUNDS_AND_PUSHES = """
with strategy.scope():
    center = tf.Variable([1.0, -2.0])
    slot = tf.Variable([0.0, 0.0], per_worker_variable=True)
    count = tf.Variable(0, per_worker_variable=True)
    momentum = ls.MomentumOptimizer(RATE, MOMENTUM, use_locking=True)

@tf.function
def train_round(gradients):
    weight, velocity = center.read_value(), slot.read_value()
    gathered = tf.zeros_like(weight)
    for gradient in tf.unstack(gradients):
        velocity = MOMENTUM * velocity + gradient
        weight = weight - RATE * velocity
        gathered = gathered + gradient
    slot.assign(velocity)
    count.assign_add(1)
    push(momentum, [(gathered / PERIOD, center)])
    return weight

turns, states = [], []
for gradients in json.loads(sys.argv[1]):
    before = count.read_all() if turns else [0, 0]
    local = coordinator.schedule(train_round, args=(tf.constant(gradients),))
    coordinator.join()
    turns.append(int(count.read_all()[1] - before[1]))
    states.append([local.fetch().tolist(), center.numpy().tolist()])
print(json.dumps([turns, states]))

with strategy.scope():
    rounds = tf.Variable(0)
    inner = ls.GradientDescentOptimizer(0.25, use_locking=True)
    rule = ls.MultitaskOptimizerWrapper(inner)

@tf.function
def push_ones():
    push(rule, [(tf.ones([2]), center)], global_step=rounds)

start = center.numpy()
for k in range(200):
    coordinator.schedule(push_ones)
coordinator.join()
print(json.dumps([(start - center.numpy()).tolist(), int(rounds)]))
"""


def replayed(turns: list[int]) -> list[list[Any]]:
    """Return the weights of worker and center after each round on the reference."""
    workers: list[Any] = []
    for _ in range(2):
        shared = workers[0][2].custom_getter.center if workers else None
        weight = reference.Variable("w", np.float32([1.0, -2.0]))
        getter = reference.AGNCustomGetter("cpu", center=shared)
        getter([weight])
        rule = reference.MomentumOptimizer(RATE, MOMENTUM)
        optimizer = reference.AGNOptimizer(rule, 2, getter, PERIOD)
        workers.append((weight, getter, optimizer))
    states = []
    for turn, gradients in zip(turns, ROUNDS, strict=True):
        weight, getter, optimizer = workers[turn]
        # A closure begins with the shared weights as they are then.
        optimizer.get_init_op(turn)
        velocity, local = optimizer.get_slot(weight, "momentum"), weight.value
        velocity = np.zeros(2, np.float32) if velocity is None else velocity
        for gradient in np.float32(gradients):
            velocity = np.float32(MOMENTUM) * velocity + gradient
            local = local - np.float32(RATE) * velocity
            optimizer.apply_gradients([(gradient, weight)])
        states.append([local.tolist(), getter._global_map[weight].value.tolist()])
    return states


REFUSED = """
with strategy.scope():
    weight = tf.Variable([1.0, -2.0])
getter = ls.AGNCustomGetter("/cpu:0")
getter([("w", weight)])

def make():
    sgd = ls.GradientDescentOptimizer(0.5)
    return ls.AGNOptimizer(sgd, 2, getter, communication_period=2)

def make_in_scope():
    with strategy.scope():
        make()

optimizer = make()
pairs = [(tf.ones([2]), weight)]
step = tf.function(lambda: optimizer.apply_gradients(pairs))
step_as_replica = tf.function(lambda: push(optimizer, pairs))

for call in (
    make_in_scope,
    lambda: coordinator.schedule(step),
    lambda: coordinator.schedule(step_as_replica),
):
    try:
        call()
        coordinator.join()
        print("no error")
    except ValueError as error:
        print(type(error).__name__, str(error).splitlines()[-1])
os._exit(0)
"""


@pytest.fixture
def printed(child: Callable[..., str]) -> list[str]:
    """What a cluster prints, in a process of its own."""
    constants = f"RATE, MOMENTUM, PERIOD = {RATE}, {MOMENTUM}, {PERIOD}\n"
    script = CLUSTER + constants + ROUNDS_AND_PUSHES + REFUSED
    return child(script, json.dumps(ROUNDS)).splitlines()


@pytest.mark.slow
def test_rounds_are_the_references_and_the_wrapper_cannot_do_them(
    printed: list[str],
) -> None:
    turns, states = json.loads(printed[0])
    # A product and a sum may be one operation, which rounds once.
    np.testing.assert_allclose(states, replayed(turns), rtol=0, atol=1e-6)
    # Of pushes that overlap none is lost.
    assert json.loads(printed[1]) == [[50.0, 50.0], 200]

    assert len(printed[2:]) == 3
    for line in printed[2:]:
        assert line.startswith(
            "UnsupportedError AGNOptimizer: expected variables of th"
        )
