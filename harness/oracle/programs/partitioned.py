"""Partitioned variables through both wrappers, nested as the originals allow it."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper
from tensorflow.contrib.opt import VariableClippingOptimizer

# --- end of imports ---

for use_resource in (False, True):
    tf.reset_default_graph()
    split = tf.fixed_size_partitioner(3)
    start = tf.random_normal_initializer(stddev=0.8, seed=7)
    with tf.variable_scope("net", partitioner=split, use_resource=use_resource):
        table = tf.get_variable("table", [7, 2], initializer=start)
        kernel = tf.get_variable("kernel", [6, 2], initializer=start)
    ids = tf.placeholder(tf.int32, [None])
    x = tf.placeholder(tf.float32, [None, 6])
    weight = tf.placeholder(tf.float32, [])
    looked_up = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
    product = tf.matmul(x, tf.convert_to_tensor(kernel))
    loss = tf.reduce_sum(tf.square(looked_up - 1.0)) + weight * tf.reduce_sum(product)

    base = tf.train.MomentumOptimizer(0.05, 0.9)
    dims = {part: [1] for part in list(table) + list(kernel)}
    optimizer = VariableClippingOptimizer(MultitaskOptimizerWrapper(base), dims, 1.0)
    pairs = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(pairs)
    print(json.dumps({"pairs": [v.op.name for _, v in pairs]}))

    data = np.random.RandomState(8)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for k in range(9):
            # Without weight the kernel's parts have zero gradients and wait.
            feed = {ids: data.randint(7, size=4), x: data.randn(3, 6), weight: k % 3}
            session.run(train, feed)
        values = [session.run(part).tolist() for part in list(table) + list(kernel)]
        slots = [optimizer.get_slot(part, "momentum") for part in dims]
        moments = {s.op.name: session.run(s).tolist() for s in slots}
        tf.train.Saver().save(session, "./model.ckpt")
    shapes = tf.train.NewCheckpointReader("./model.ckpt").get_variable_to_shape_map()
    row = {"resource": use_resource, "values": values, "momentum": moments}
    print(json.dumps(row, sort_keys=True))
    print(json.dumps({"checkpoint": shapes}, sort_keys=True))
