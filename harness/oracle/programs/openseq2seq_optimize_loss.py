"""Training as OpenSeq2Seq writes it: one call with a schedule, clipping and a scale."""

import json

import numpy as np

# --- imports ---
import tensorflow as tf
from open_seq2seq.optimizers import optimize_loss
from open_seq2seq.optimizers.lr_policies import poly_decay

# --- end of imports ---

x = tf.placeholder(tf.float32, [None, 2], "x")
kernel = tf.get_variable("kernel", initializer=tf.constant([[1.0], [-2.0]]))
loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel)))
step = tf.train.get_or_create_global_step()
train = optimize_loss(
    loss=loss,
    optimizer="Momentum",
    optimizer_params={"momentum": 0.0},
    learning_rate_decay_fn=lambda s: poly_decay(s, 0.5, decay_steps=4, power=1.0),
    dtype="mixed",
    loss_scaling="Backoff",
    loss_scaling_params={"scale_max": 16.0},
    clip_gradients=1.0,
    summaries=["learning_rate", "loss_scale"],
)

data = np.random.RandomState(91)
rates, scales, lengths, steps = [], [], [], []
summaries = tf.summary.merge_all()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(6):
        feed = {x: data.randn(4, 2) * 100.0}
        before = session.run(kernel)
        found = tf.Summary.FromString(session.run(summaries, feed))
        rates += [v.simple_value for v in found.value if v.tag == "learning_rate"]
        scales += [v.simple_value for v in found.value if v.tag == "loss_scale"]
        session.run(train, feed)
        lengths.append(float(np.linalg.norm(session.run(kernel) - before)))
        steps.append(int(session.run(step)))

laws = {
    "the rate is read before the step": rates == [0.5, 0.375, 0.25, 0.125, 0.0, 0.0],
    "a clipped step has the length of the rate": all(
        abs(length - rate) < 1e-5 for length, rate in zip(lengths, rates)
    ),
    "the scale starts at its maximum and stays": scales == [16.0] * 6,
    "every step counts": steps == [1, 2, 3, 4, 5, 6],
}
print(json.dumps(laws))
