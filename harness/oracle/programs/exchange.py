"""Training in two halves, a checkpoint between them; the halves may change hosts."""

import json
import sys

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper
from tensorflow.contrib.opt import VariableClippingOptimizer

experimental = tf.train.experimental

# --- end of imports ---

HALF = 6
phase = sys.argv[1]


def clipped(variables):
    base = MultitaskOptimizerWrapper(tf.train.AdamOptimizer(0.05))
    return VariableClippingOptimizer(base, {variables[0]: [1]}, 1.0)


def nested(variables):
    base = tf.train.AdamOptimizer(0.05)
    inner = VariableClippingOptimizer(base, {variables[0]: [1]}, 1.0)
    return VariableClippingOptimizer(inner, {variables[1]: [0]}, 0.5, name="Outer")


def scaled(variables):
    scale = experimental.DynamicLossScale(16.0, 2, 2.0)
    base = tf.train.MomentumOptimizer(0.05, 0.9)
    return experimental.MixedPrecisionLossScaleOptimizer(base, scale)


for make in (clipped, nested, scaled):
    tf.reset_default_graph()
    start = tf.random_uniform_initializer(-1.0, 1.0, seed=51)
    table = tf.get_variable("table", [5, 2], initializer=start)
    bias = tf.get_variable("bias", [2], initializer=start)
    ids = tf.placeholder(tf.int32, [None])
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) + bias - 0.5))
    optimizer = make([table, bias])
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)
    saver = tf.train.Saver()
    path = "./%s.ckpt" % make.__name__
    data = np.random.RandomState(52)
    batches = [data.randint(5, size=6) for _ in range(2 * HALF)]
    with tf.Session() as session:
        if phase == "second":
            saver.restore(session, path)
        else:
            session.run(tf.global_variables_initializer())
        begin, end = {"first": (0, HALF), "second": (HALF, 2 * HALF)}[phase]
        for k in range(begin, end):
            session.run(train, {ids: batches[k]})
            found = session.run({v.op.name: v for v in tf.global_variables()})
            row = {"optimizer": make.__name__, "step": k}
            row["state"] = {name: value.tolist() for name, value in found.items()}
            print(json.dumps(row, sort_keys=True))
        if phase == "first":
            saver.save(session, path)
            shapes = tf.train.NewCheckpointReader(path).get_variable_to_shape_map()
            print(json.dumps({"checkpoint": shapes}, sort_keys=True))
