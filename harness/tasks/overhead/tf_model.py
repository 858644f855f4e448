"""Steps in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.errors import unknown_name

COMPILERS: Mapping[str, bool | None] = {"": None, "xla": True}
"""The setting of a row -> ``jit_compile`` of ``tf.function``."""


def traced(step: Callable[[], Any], jit: str = "") -> Callable[[], Any]:
    """Return ``step`` as a ``tf.function`` without autograph.

    Args:
        jit: ``xla``, or empty for TensorFlow's own executor.

    Raises:
        UnknownNameError: there is no such compiler.
    """
    if jit not in COMPILERS:
        raise unknown_name("compiler", jit, COMPILERS)
    return tf.function(step, autograph=False, jit_compile=COMPILERS[jit])
