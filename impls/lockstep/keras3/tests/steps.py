"""Steps of ``optimize_loss`` that train one weight, and what they are given."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from lockstep import keras3 as ls

INPUTS = np.random.default_rng(7).integers(-4, 5, (32, 3)).astype(np.float32)
"""Whole numbers: their sums and means over powers of two are exact."""
PARTS = np.split(INPUTS, 4)
START = [0.5, -1.0, 2.0]
HOW = {"eager": lambda step: step, "function": tf.function}


def rate(global_step):
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def variable(value, name: str, dtype: str = "float32") -> keras.Variable:
    return keras.Variable(value, dtype=dtype, name=name)


def weight_in(dtype="float32") -> keras.Variable:
    return variable(START, "weight", dtype)


def step_of(weight: keras.Variable, /, names=ls, **options):
    def loss(batch):
        return ops.mean(ops.matmul(batch, ops.cast(weight, "float32")))

    given = {"optimizer": "Momentum", "optimizer_params": {"momentum": 0.5}}
    given |= {"learning_rate_decay_fn": rate, "var_list": [weight]}
    return names.optimize_loss(loss, **{**given, **options})
