"""Steps of ``optimize_loss`` that train one weight, and what they are given."""

from __future__ import annotations

import tensorflow as tf

from lockstep import tf as ls

v1 = tf.compat.v1
START = [0.5, -1.0, 2.0]


def rate(global_step):
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def weight_in(dtype=tf.float32) -> tf.Variable:
    return tf.Variable(START, dtype=dtype, name="weight")


def step_of(weight: tf.Variable, /, names=ls, **options):
    def loss(batch):
        return tf.reduce_mean(tf.linalg.matvec(batch, tf.cast(weight, tf.float32)))

    given = {"optimizer": "Momentum", "optimizer_params": {"momentum": 0.5}}
    given |= {"learning_rate_decay_fn": rate, "var_list": [weight]}
    return names.optimize_loss(loss, **{**given, **options})
