"""The rule of row clipping: its large tensors in a graph, and one quirk of strict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorflow as tf

from lockstep.quirks import STRICT
from lockstep.tf.shared.clipping.clip_rows import clip_rows, excess

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


def test_without_one_of_its_quirks_strict_leaves_rows_below_the_norm_alone() -> None:
    quirks = replace(STRICT, row_clip_below=False)
    # Of the second row, w max_norm / max_norm is not w.
    values = tf.constant([[0.1, 0.3], [1.6, 0.0], [6.0, 8.0]])
    below, equal, above = excess(values, [1], 1.6, quirks).numpy()
    assert below.tolist() == equal.tolist() == [0, 0]
    assert above.tolist() == pytest.approx([5.04, 6.72])


def test_without_another_quirk_strict_takes_the_norm_of_half_rows_in_float32() -> None:
    quirks = replace(STRICT, row_clip_float16=False)
    # In float16 the sum of squares overflows, and the row would be lost.
    rows = tf.constant([[300.0, 400.0]], tf.float16)
    assert excess(rows, [1], 100.0, quirks).numpy().tolist() == [[240, 320]]
