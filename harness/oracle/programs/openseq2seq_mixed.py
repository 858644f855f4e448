"""A float16 model with float32 masters, an automatic scale and a regularizer."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from open_seq2seq.optimizers.automatic_loss_scaler import AutomaticLossScaler
from open_seq2seq.optimizers.mp_wrapper import MixedPrecisionOptimizerWrapper
from open_seq2seq.optimizers.mp_wrapper import mp_regularizer_wrapper

# --- end of imports ---


def l2(weight):
    return 0.5 * tf.nn.l2_loss(weight)


x = tf.placeholder(tf.float16, [None, 2], "x")
kernel = tf.get_variable(
    "kernel",
    dtype=tf.float16,
    initializer=tf.constant([[1.0], [2.0]], tf.float16),
    regularizer=mp_regularizer_wrapper(l2),
)
loss = tf.cast(tf.reduce_sum(tf.matmul(x, kernel)), tf.float32)
scaler = AutomaticLossScaler("Backoff", {"scale_max": 32.0, "step_window": 3})
base = tf.train.MomentumOptimizer(0.5, 0.5)
optimizer = MixedPrecisionOptimizerWrapper(base, loss_scale=scaler)
step = tf.train.get_or_create_global_step()
pairs = optimizer.compute_gradients(loss)
train = optimizer.apply_gradients(pairs, global_step=step)
[(gradient, master)] = pairs
print(json.dumps({"master": master.op.name, "dtype": master.dtype.base_dtype.name}))
copies = tf.get_collection("FP32_MASTER_COPIES")
print(json.dumps({"collection": [v.op.name for v in copies]}))
print(json.dumps({"name": optimizer.get_name(), "algorithms": scaler.SUPPORTED_ALGOS}))

rows = []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(7):
        # Sums of the third batch overflow float16 once they are scaled.
        size = 60000.0 if k == 2 else 1.0
        feed = {x: np.full([1, 2], size)}
        weight = session.run(master)
        found, _ = session.run([gradient, train], feed)
        state = session.run([master, kernel, step, scaler.loss_scale])
        rows.append((weight, found) + tuple(state))

expected = [[1.0 + 0.5 * w for w in row[0].ravel().tolist()] for row in rows]
laws = {
    "gradients are unscaled and hold the penalty": all(
        row[1].ravel().tolist() == want
        for k, (row, want) in enumerate(zip(rows, expected))
        if k < 2
    ),
    "the model is the master in half precision": all(
        (row[2].astype(np.float16) == row[3]).all() for row in rows
    ),
    "a step that overflows is left out": int(rows[2][4]) == int(rows[1][4])
    and bool((rows[2][2] == rows[2][0]).all()),
}
print(json.dumps(laws))
scales = [float(row[5]) for row in rows]
print(json.dumps({"steps": [int(row[4]) for row in rows], "scales": scales}))
