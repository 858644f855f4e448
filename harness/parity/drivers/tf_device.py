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
    devices = tf.config.list_physical_devices("GPU")
    if device not in ("cpu", "cuda") or (device == "cuda" and not devices):
        raise no_device("tf", device, "only the CPU")
    tf.config.set_visible_devices(devices if device == "cuda" else [], "GPU")
