"""A trunk with two heads; in some batches one of the heads, or both, has no labels."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper

# --- end of imports ---

STEPS = 40


def dense(inputs, units, name, seed):
    with tf.variable_scope(name):
        shape = [inputs.shape[1].value, units]
        start = tf.truncated_normal_initializer(stddev=0.5, seed=seed)
        kernel = tf.get_variable("kernel", shape, initializer=start)
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return tf.matmul(inputs, kernel) + bias


def masked(outputs, labels, mask):
    return tf.reduce_sum(tf.square(outputs - labels) * mask[:, tf.newaxis])


tf.set_random_seed(1)
features = tf.placeholder(tf.float32, [None, 4], "features")
labels = tf.placeholder(tf.float32, [2, None, 2], "labels")
mask = tf.placeholder(tf.float32, [2, None], "mask")
trunk = tf.nn.relu(dense(features, 5, "trunk", 11))
left = masked(dense(trunk, 2, "left", 12), labels[0], mask[0])
right = masked(dense(trunk, 2, "right", 13), labels[1], mask[1])
loss = left + right

adam = tf.train.AdamOptimizer(0.01)
optimizer = MultitaskOptimizerWrapper(adam)
step = tf.train.get_or_create_global_step()
train = optimizer.minimize(loss, global_step=step)
slots = {
    slot + "/" + v.op.name: optimizer.get_slot(v, slot)
    for slot in optimizer.get_slot_names()
    for v in tf.trainable_variables()
}
print(json.dumps({"names": sorted(v.op.name for v in tf.global_variables())}))
print(json.dumps({"name": optimizer.get_name()}))

data = np.random.RandomState(2)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(STEPS):
        there = np.ones([2, 8])
        if k % 2:
            there[1] = 0
        if k % 5 == 4:
            there[0] = 0
        batch = {features: data.randn(8, 4), labels: data.randn(2, 8, 2), mask: there}
        value, _ = session.run([loss, train], batch)
        if k % 10 == 9:
            row = {"step": int(session.run(step)), "loss": float(value)}
            for v in tf.trainable_variables():
                row[v.op.name] = session.run(v).tolist()
            print(json.dumps(row))
    found = {name: value.tolist() for name, value in session.run(slots).items()}
    powers = [float(power) for power in session.run(adam._get_beta_accumulators())]
    print(json.dumps({"slots": found, "powers": powers}))
