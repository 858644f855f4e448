"""Which devices TensorFlow may see."""

from __future__ import annotations

import tensorflow as tf

from lockstep.messages.errors import no_device

__all__ = ["use_device"]


def use_device(device: str) -> None:
    """Let TensorFlow see the GPUs for ``cuda`` and none of them for ``cpu``.

    Raises:
        UnsupportedError: another device, or no GPU is there.
    """
    found = tf.config.list_physical_devices("GPU")
    if device not in ("cpu", "cuda") or (device == "cuda" and not found):
        raise no_device("tf", device, "only the CPU")
    tf.config.set_visible_devices(found if device == "cuda" else [], "GPU")
