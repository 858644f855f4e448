"""The rule of row clipping in a graph: how much of it is as large as the rows."""

from __future__ import annotations

import pytest
import tensorflow as tf

from lockstep.tf.shared.clipping.clip_rows import clip_rows

ROWS = [512, 64]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 7), ("bfloat16", 11)])
def test_few_tensors_are_as_large_as_the_rows(dtype: str, most: int) -> None:
    """Two products and two sums of squares, a selection, and what casts these take."""

    @tf.function(autograph=False)
    def clip(rows: tf.Tensor) -> tf.Tensor:
        return clip_rows(rows, (1,), 1.0)[0]

    graph = clip.get_concrete_function(tf.TensorSpec(ROWS, dtype)).graph
    made = [op for op in graph.get_operations() if op.type != "Placeholder"]
    large = [
        op.type
        for op in made
        if op.type != "Identity" and op.outputs and op.outputs[0].shape == ROWS
    ]
    assert len(large) <= most, large
