"""Gradients clipped by the norm of those that are not all zero, then applied."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper
from tensorflow.contrib.opt import clip_gradients_by_global_norm

# --- end of imports ---

start = tf.random_normal_initializer(seed=61)
shared = tf.get_variable("shared", [3, 4], initializer=start)
heads = [tf.get_variable("head%d" % k, [4], initializer=start) for k in range(3)]
x = tf.placeholder(tf.float32, [None, 3], "x")
weights = tf.placeholder(tf.float32, [3], "weights")
hidden = tf.matmul(x, shared)
terms = [tf.reduce_sum(tf.square(hidden * head)) for head in heads]
loss = tf.add_n([weights[k] * terms[k] for k in range(3)])

optimizer = MultitaskOptimizerWrapper(tf.train.MomentumOptimizer(0.02, 0.9))
pairs = optimizer.compute_gradients(loss, var_list=[shared] + heads)
clipped, norm = clip_gradients_by_global_norm(pairs, 2.0)
_, default = clip_gradients_by_global_norm(pairs)
step = tf.train.get_or_create_global_step()
train = optimizer.apply_gradients(clipped, global_step=step, name="train")
print(json.dumps({"clipped": [v.op.name for _, v in clipped], "train": train.name}))

data = np.random.RandomState(62)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(12):
        on = [float((k + j) % 3 > 0) for j in range(3)]
        feed = {x: data.randn(5, 3), weights: on}
        norms = session.run([norm, default], feed)
        gradients = session.run([g for g, _ in clipped], feed)
        session.run(train, feed)
        row = {"norm": [float(value) for value in norms]}
        row["gradients"] = [gradient.tolist() for gradient in gradients]
        row["variables"] = [session.run(v).tolist() for v in [shared] + heads]
        print(json.dumps(row))
    print(json.dumps({"step": int(session.run(step))}))
