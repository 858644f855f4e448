"""A dynamic loss scale saved with tf.train.Checkpoint; the halves may change hosts."""

import json
import sys

import numpy as np

# --- imports ---
import tensorflow as tf

experimental = tf.train.experimental

# --- end of imports ---

HALF = 5
phase = sys.argv[1]

start = tf.random_uniform_initializer(-1.0, 1.0, seed=81)
kernel = tf.get_variable("kernel", [3], initializer=start, use_resource=True)
x = tf.placeholder(tf.float32, [3])
loss = tf.reduce_sum(tf.square(x * kernel))
scale = experimental.DynamicLossScale(16.0, increment_period=2, multiplier=2.0)
base = tf.train.AdamOptimizer(0.05)
optimizer = experimental.MixedPrecisionLossScaleOptimizer(base, scale)
step = tf.train.get_or_create_global_step()
train = optimizer.minimize(loss, global_step=step)
state = {"kernel": kernel, "step": step, "scale": scale()}
state.update(m=base.get_slot(kernel, "m"), v=base.get_slot(kernel, "v"))
state.update(zip(("beta1_power", "beta2_power"), base._get_beta_accumulators()))
checkpoint = tf.train.Checkpoint(optimizer=optimizer, kernel=kernel, step=step)

data = np.random.RandomState(82)
batches = [data.randn(3) for _ in range(2 * HALF)]
batches[2][0] = batches[6][0] = 1e30
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    if phase == "second":
        status = checkpoint.restore(tf.train.latest_checkpoint("."))
        status.assert_consumed().run_restore_ops(session)
    begin, end = {"first": (0, HALF), "second": (HALF, 2 * HALF)}[phase]
    for k in range(begin, end):
        session.run(train, {x: batches[k]})
        row = {name: value.tolist() for name, value in session.run(state).items()}
        print(json.dumps(dict(row, k=k), sort_keys=True))
    if phase == "first":
        path = checkpoint.save("./objects", session)
        shapes = tf.train.NewCheckpointReader(path).get_variable_to_shape_map()
        shapes.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
        print(json.dumps({"checkpoint": shapes}, sort_keys=True))
