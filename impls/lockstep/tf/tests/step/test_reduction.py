"""Gradients averaged over replicas, and losses of a graph by scope."""

from __future__ import annotations

import pytest
import tensorflow as tf

from harness.tests.shared_processes import TWO_DEVICES
from lockstep.tf import get_regularization_loss, reduce_gradients

v1 = tf.compat.v1


def test_losses_of_a_v1_graph_are_found_by_scope():
    with tf.Graph().as_default():
        for scope in ("encoder", "decoder"):
            with v1.variable_scope(scope):
                v1.get_variable("w", [2], regularizer=tf.nn.l2_loss)
        total = get_regularization_loss("encoder")
        collected = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        assert total.op.name == "total_regularization_loss"
        assert len(collected) == 2


def test_eagerly_losses_have_to_be_handed_over():
    with pytest.raises(ValueError, match=r"expected losses=.*pass losses=\{name:"):
        get_regularization_loss()
    assert float(get_regularization_loss(losses=[tf.constant(1.5), None])) == 1.5


def test_without_horovod_there_is_nothing_to_reduce_with():
    one = [(tf.ones([2]), tf.Variable([3.0, 4.0]))]
    with pytest.raises(NotImplementedError, match="expected on_horovod=True"):
        reduce_gradients(one, on_horovod=False)
    assert reduce_gradients(one, on_horovod=True)[0][0] is one[0][0]


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
