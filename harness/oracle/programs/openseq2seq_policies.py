"""Rates of training by the policies of OpenSeq2Seq, read from a step counter."""

import json

# --- imports ---
import tensorflow as tf
from open_seq2seq.optimizers.lr_policies import cosine_decay
from open_seq2seq.optimizers.lr_policies import exp_decay
from open_seq2seq.optimizers.lr_policies import piecewise_constant
from open_seq2seq.optimizers.lr_policies import poly_decay
from open_seq2seq.optimizers.lr_policies import transformer_policy

# --- end of imports ---

step = tf.train.get_or_create_global_step()
rates = {
    "poly": poly_decay(step, 1.0, decay_steps=8, power=2.0, min_lr=0.0),
    "exp": exp_decay(step, 1.0, 4, 0.5, use_staircase_decay=True),
    "cosine": cosine_decay(step, 1.0, decay_steps=8),
    "piecewise": piecewise_constant(step, 1.0, [2, 5], [0.5, 0.25]),
    "transformer": transformer_policy(step, 2.0, d_model=16, warmup_steps=4),
}
variable = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
optimizer = tf.train.GradientDescentOptimizer(rates["poly"])
train = optimizer.minimize(-tf.reduce_sum(variable), global_step=step)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    found, moved = [], []
    for _ in range(10):
        found.append(session.run(rates))
        before = session.run(variable)
        session.run(train)
        moved.append(float((session.run(variable) - before)[0]))

poly = [float(row["poly"]) for row in found]
laws = {
    "poly is a parabola that ends at zero": poly
    == [(1 - min(k, 8) / 8) ** 2 for k in range(10)],
    "exp halves at every fourth step": [float(row["exp"]) for row in found]
    == [0.5 ** (k // 4) for k in range(10)],
    "cosine starts at the rate and ends at zero": float(found[0]["cosine"]) == 1.0
    and float(found[8]["cosine"]) == 0.0,
    "a boundary step still has the old rate": [
        float(row["piecewise"]) for row in found[:8]
    ]
    == [1.0] * 3 + [0.5] * 3 + [0.25] * 2,
    "transformer peaks where the warm-up ends": max(
        range(10), key=lambda k: found[k]["transformer"]
    )
    == 3,
    "a step moves by the rate before it": all(
        abs(a - b) < 1e-6 for a, b in zip(moved, poly)
    ),
}
print(json.dumps(laws))
