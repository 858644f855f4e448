"""What code for TensorFlow 1.15's loss scales reads of them: values, names, reprs."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from lockstep.tf import strict

v1 = tf.compat.v1
INF, NAN = float("inf"), float("nan")
GRADIENTS = [1.0, 1.0, INF, 1.0, 1.0, 1.0, NAN, NAN, 1.0]


def test_the_update_in_a_graph_has_the_values_of_tensorflow() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        gradient = v1.placeholder(tf.float32, [])
        scales = [
            strict.DynamicLossScale(4.0, 2, 2.0),
            v1.mixed_precision.DynamicLossScale(4.0, 2, 2.0),
        ]
        updates = [scale.update([gradient]) for scale in scales]
        session.run(v1.global_variables_initializer())
        for value in GRADIENTS:
            ours, theirs = session.run(
                [(tf.identity(op), finite) for op, finite in updates],
                {gradient: value},
            )
            assert ours == theirs
            first, second = session.run([scale() for scale in scales])
            assert first == second


def test_the_update_in_a_function_is_a_flag() -> None:
    scale = strict.DynamicLossScale(4.0, 1, 2.0)

    @tf.function
    def update(gradient: tf.Tensor) -> Any:
        op, _ = scale.update([gradient])
        return tf.identity(op)

    assert bool(update(tf.constant(1.0))) and float(scale()) == 8.0
    assert not bool(update(tf.constant(INF))) and float(scale()) == 4.0


def test_reprs_are_those_of_tensorflow() -> None:
    own = "initial_loss_scale=1.0, increment_period=2, multiplier=3.0"
    scale = strict.DynamicLossScale(1, 2, 3)
    state = "current_loss_scale=1.0, num_good_steps=0"
    assert repr(scale) == f"DynamicLossScale({state}, {own})"
    scale.update([tf.constant(1.0)])
    assert "num_good_steps=1" in repr(scale)
    with tf.Graph().as_default():
        assert repr(strict.DynamicLossScale(1, 2, 3)) == f"DynamicLossScale({own})"
        assert repr(strict.FixedLossScale(123)) == "FixedLossScale(123.0)"


def test_private_names_can_be_read() -> None:
    scale = strict.DynamicLossScale(8.0, 5, 4.0)
    scale.update([tf.constant(1.0)])
    assert scale._num_good_steps.numpy() == 1
    assert scale._current_loss_scale.numpy() == 8.0
    assert scale._initial_loss_scale == 8.0
    assert (scale._increment_period, scale._multiplier) == (5, 4.0)
    with pytest.raises(AttributeError):
        scale._multiplier = 2.0


def summaries_of(dtype: Any, loss_scaling: Any, graph: tf.Graph) -> dict[str, Any]:
    """Return tag -> tensor of the summaries of a step."""
    v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
    (weight,) = v1.trainable_variables()
    strict.optimize_loss(
        tf.reduce_sum(weight * weight),
        "SGD",
        {},
        lambda step: tf.constant(0.1),
        dtype=dtype,
        summaries=["learning_rate", "loss_scale"],
        loss_scaling=loss_scaling,
    )
    found = [tensor.op for tensor in graph.get_collection("summaries")]
    tags = [tf.get_static_value(op.inputs[0]).item().decode() for op in found]
    return dict(zip(tags, (op.inputs[1] for op in found), strict=True))


@pytest.mark.parametrize("dtype", ["mixed", tf.float32], ids=str)
@pytest.mark.parametrize("loss_scaling", [128.0, "Backoff"])
def test_a_scaler_by_name_alone_has_a_summary(dtype: Any, loss_scaling: Any) -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        found = summaries_of(dtype, loss_scaling, graph)
        named = ["loss_scale"] if loss_scaling == "Backoff" else []
        assert list(found) == ["learning_rate", *named]
        session.run(v1.global_variables_initializer())
        assert not named or session.run(found["loss_scale"]) == 2.0**14
