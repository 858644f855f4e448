"""Parameters in Keras 3."""

from __future__ import annotations

import keras

from harness.tasks.overhead.shapes import arrays


def keras_variables(model: str, dtype: str = "float32") -> list[keras.Variable]:
    """Return the parameters of a model."""
    return [keras.Variable(value, dtype=dtype) for value in arrays(model, seed=0)]
