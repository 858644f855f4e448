"""Embeddings whose rows are held to a norm, by reference and as resource variables."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import VariableClippingOptimizer

# --- end of imports ---

OPTIMIZERS = [
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.MomentumOptimizer(0.05, 0.9),
    lambda: tf.train.AdamOptimizer(0.05),
]


def build(use_resource, base):
    start = tf.random_uniform_initializer(-1.0, 1.0, seed=5)
    with tf.variable_scope("model", use_resource=use_resource):
        users = tf.get_variable("users", [6, 3], initializer=start)
        items = tf.get_variable("items", [5, 3], initializer=start)
    who = tf.placeholder(tf.int32, [None])
    what = tf.placeholder(tf.int32, [None])
    rating = tf.placeholder(tf.float32, [None])
    rows = tf.nn.embedding_lookup(users, who) * tf.nn.embedding_lookup(items, what)
    loss = tf.reduce_sum(tf.square(tf.reduce_sum(rows, axis=1) - rating))
    dims = {users: [1], items: [1]}
    optimizer = VariableClippingOptimizer(base, dims, 1.25, name="Rows")
    step = tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")
    train = optimizer.minimize(loss, global_step=step)
    return (who, what, rating), (users, items), loss, train


for use_resource in (False, True):
    for make in OPTIMIZERS:
        tf.reset_default_graph()
        tf.set_random_seed(3)
        base = make()
        inputs, tables, loss, train = build(use_resource, base)
        data = np.random.RandomState(4)
        names = sorted(v.op.name for v in tf.global_variables())
        row = {"resource": use_resource, "optimizer": base.get_name(), "names": names}
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            losses = []
            for _ in range(12):
                # Of seven draws from five or six rows, some come twice.
                batch = data.randint(6, size=7), data.randint(5, size=7), data.randn(7)
                value, _ = session.run([loss, train], dict(zip(inputs, batch)))
                losses.append(float(value))
            row["loss"] = losses
            row["users"], row["items"] = (t.tolist() for t in session.run(tables))
        print(json.dumps(row))
