"""The transformer in TensorFlow, with the same computations as ``torch_model``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from harness.tasks.byte_transformer.data import Shape

Weights = Mapping[str, tf.Tensor]

EPSILON = 1e-5
"""The constant that is added to a variance; PyTorch's default."""


def loss_of(shape: Shape, weights: Weights, windows: tf.Tensor) -> tf.Tensor:
    """Return the mean cross-entropy in nats of windows [batch, context + 1].

    Norms, softmax and loss are in float32, everything else in the weights' dtype.
    """
    hidden = tf.gather(weights["bytes"], windows[:, :-1]) + weights["positions"]
    for k in range(shape.layers):
        layer = f"layer {k}"
        hidden += attention(shape, hidden, weights, f"{layer}/attention")
        hidden += mlp(hidden, weights, f"{layer}/mlp")
    logits = norm(hidden, weights["last norm"]) @ weights["logits"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        windows[:, 1:], tf.cast(logits, tf.float32)
    )
    return tf.reduce_mean(losses)


def attention(
    shape: Shape, hidden: tf.Tensor, weights: Weights, name: str
) -> tf.Tensor:
    """Return the output of causal self-attention for each position."""
    batch, context, width = hidden.shape
    heads = (batch, context, 3, shape.heads, width // shape.heads)
    mixed = norm(hidden, weights[f"{name}/norm"]) @ weights[f"{name}/input"]
    parts = tf.transpose(tf.reshape(mixed, heads), (2, 0, 3, 1, 4))
    query, key, value = tf.unstack(parts)
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    earlier = tf.linalg.band_part(tf.ones((context, context), tf.bool), -1, 0)
    scores = tf.where(earlier, scores / math.sqrt(heads[-1]), -math.inf)
    taken = tf.cast(tf.nn.softmax(scores), hidden.dtype) @ value
    joined = tf.reshape(tf.transpose(taken, (0, 2, 1, 3)), (batch, context, width))
    return joined @ weights[f"{name}/output"]


def mlp(hidden: tf.Tensor, weights: Weights, name: str) -> tf.Tensor:
    """Return the output of the feed-forward layers for each position."""
    wide = norm(hidden, weights[f"{name}/norm"]) @ weights[f"{name}/input"]
    return tf.nn.gelu(wide) @ weights[f"{name}/output"]


def norm(hidden: tf.Tensor, gain: tf.Tensor) -> tf.Tensor:
    """Return vectors normalised to mean 0 and deviation 1, times the gain."""
    wide = tf.cast(hidden, tf.float32)
    mean, variance = tf.nn.moments(wide, -1, keepdims=True)
    whole = (wide - mean) * tf.math.rsqrt(variance + EPSILON)
    return tf.cast(whole * tf.cast(gain, tf.float32), hidden.dtype)
