"""The two functions in TensorFlow: the multitask one and its own."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.interface import Array
from lockstep.tf import strict

__all__ = ["multitask_clip", "stock_clip"]


def multitask_clip(
    gradients: Sequence[Array], clip_norm: float, device: str
) -> tuple[list[Array], Array]:
    """Clip as ``tf.contrib.opt.clip_gradients_by_global_norm`` does."""
    pairs = [(gradient, None) for gradient in _tensors(gradients, device)]
    clipped, norm = strict.clip_gradients_by_global_norm(pairs, clip_norm)
    return [gradient.numpy() for gradient, _ in clipped], norm.numpy()


def stock_clip(
    gradients: Sequence[Array], clip_norm: float, device: str
) -> tuple[list[Array], Array]:
    """Clip as TensorFlow does, zeros included."""
    clipped, norm = tf.clip_by_global_norm(_tensors(gradients, device), clip_norm)
    return [gradient.numpy() for gradient in clipped], norm.numpy()


def _tensors(gradients: Sequence[Array], device: str) -> list[tf.Tensor]:
    place = {"cuda": "gpu"}.get(device, device)
    with tf.device(f"/{place}:0"):
        return [tf.constant(gradient) for gradient in gradients]
