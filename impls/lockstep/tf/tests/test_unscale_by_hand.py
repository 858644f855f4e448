"""Loops with a tape: a loss is scaled and its gradients are unscaled by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.errors import DtypeError, UnscaledTwiceError, UnsupportedError

v1 = tf.compat.v1
SCALE = 1024.0
WRAPPERS = {
    "loss scale": ls.MixedPrecisionLossScaleOptimizer,
    "masters": ls.MixedPrecisionOptimizerWrapper,
}
wrappers = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
both = pytest.mark.parametrize("dtype", [tf.float16, tf.float32], ids=str)


def make(wrap: Any, dtype: Any, **options: Any) -> tuple[Any, list[tf.Variable]]:
    """Return a wrapper at a fixed scale, a weight, an embedding, an unused weight."""
    optimizer = wrap(v1.train.GradientDescentOptimizer(0.5), SCALE, **options)
    values = [1.0, 2.0], [[1.0], [2.0], [3.0]], [1.0]
    return optimizer, [tf.Variable(tf.constant(value, dtype)) for value in values]


def loss_of(variables: list[tf.Variable]) -> tf.Tensor:
    weight, embedding, _ = variables
    return tf.reduce_sum(weight * weight) + tf.reduce_sum(tf.gather(embedding, [0, 2]))


def step_by_hand(optimizer: Any, variables: list[tf.Variable]) -> list[Any]:
    """Take a step with a tape; return the unscaled gradients."""
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(loss_of(variables))
    gradients = optimizer.unscale_gradients(tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return gradients


def values_of(variables: list[tf.Variable]) -> list[Any]:
    return [variable.numpy().tolist() for variable in variables]


@wrappers
@both
def test_gradients_come_back_unscaled_in_float32(wrap: Any, dtype: Any) -> None:
    optimizer, variables = make(wrap, dtype)
    gradients = step_by_hand(optimizer, variables)
    assert isinstance(gradients, list) and gradients[2] is None
    assert isinstance(gradients[1], tf.IndexedSlices)
    assert gradients[1].indices.numpy().tolist() == [0, 2]
    assert gradients[1].values.numpy().tolist() == [[1.0], [1.0]]
    assert gradients[0].dtype == gradients[1].dtype == tf.float32
    assert gradients[0].numpy().tolist() == [2.0, 4.0]
    assert values_of(variables) == [[0.0, 0.0], [[0.5], [2.0], [2.5]], [1.0]]
    assert optimizer.last_step.applied


@wrappers
@both
def test_a_step_by_hand_equals_minimize(wrap: Any, dtype: Any) -> None:
    optimizer, variables = make(wrap, dtype, clip_norm=1.0)
    other, expected = make(wrap, dtype, clip_norm=1.0)
    for _ in range(3):
        step_by_hand(optimizer, variables)
        other.minimize(lambda: loss_of(expected), var_list=expected)
    assert values_of(variables) == values_of(expected)
    assert optimizer.last_step == other.last_step


@wrappers
def test_a_second_unscaling_before_the_step_is_refused(wrap: Any) -> None:
    optimizer, variables = make(wrap, tf.float32)
    optimizer.scale_loss(tf.constant(1.0))
    gradients = optimizer.unscale_gradients([tf.ones([2])])
    with pytest.raises(UnscaledTwiceError, match="expected one unscaling"):
        optimizer.unscale_gradients(gradients)
    optimizer.apply_gradients([(gradients[0], variables[0])])
    optimizer.unscale_gradients(gradients)
    # A new loss begins again.
    optimizer.scale_loss(tf.constant(1.0))
    optimizer.unscale_gradients(gradients)


@pytest.mark.sample(1)
@wrappers
@both
def test_functions_take_the_same_steps(wrap: Any, dtype: Any) -> None:
    optimizer, variables = make(wrap, dtype)
    other, expected = make(wrap, dtype)
    step = tf.function(lambda: step_by_hand(optimizer, variables) and None)
    for _ in range(3):
        step()
        step_by_hand(other, expected)
    assert values_of(variables) == values_of(expected)
    assert optimizer.last_step.reason.startswith("no step in eager mode yet")


@pytest.mark.sample(1)
@wrappers
@both
def test_graphs_take_the_same_steps(wrap: Any, dtype: Any) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        optimizer, variables = make(wrap, dtype)
        loss = optimizer.scale_loss(loss_of(variables))
        gradients = optimizer.unscale_gradients(tf.gradients(loss, variables))
        done = optimizer.apply_gradients(zip(gradients, variables, strict=True))
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(done)
        found = [value.tolist() for value in session.run(variables)]
    other, expected = make(wrap, dtype)
    for _ in range(3):
        step_by_hand(other, expected)
    assert found == values_of(expected)


@pytest.mark.parametrize(
    "around",
    [
        ls.MultitaskOptimizerWrapper,
        lambda opt: ls.VariableClippingOptimizer(opt, {}, 1.0),
    ],
    ids=["multitask", "rows"],
)
def test_wrappers_around_take_unscaled_gradients(around: Callable[..., Any]) -> None:
    inner, variables = make(ls.MixedPrecisionLossScaleOptimizer, tf.float16)
    optimizer = around(inner)
    gradients = step_by_hand(optimizer, variables)
    assert gradients[0].dtype == tf.float32
    assert values_of(variables) == [[0.0, 0.0], [[0.5], [2.0], [2.5]], [1.0]]


def test_float32_gradients_fit_no_half_variable_of_other_wrappers() -> None:
    _, variables = make(ls.MixedPrecisionLossScaleOptimizer, tf.float16)
    wrapper = ls.MultitaskOptimizerWrapper(v1.train.GradientDescentOptimizer(0.5))
    with pytest.raises(DtypeError):
        wrapper.apply_gradients([(tf.ones([2]), variables[0])])


def gradients_of(optimizer: Any, variables: list[tf.Variable]) -> list[Any]:
    """Return the gradients of the scaled loss."""
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(loss_of(variables))
    return tape.gradient(loss, variables)  # type: ignore[no-any-return]


@wrappers
@pytest.mark.parametrize("around", [None, ls.MultitaskOptimizerWrapper])
@pytest.mark.parametrize("in_function", [False, True])
def test_gradients_of_a_scaled_loss_need_unscaling(
    wrap: Any, around: Any, in_function: bool
) -> None:
    optimizer, variables = make(wrap, tf.float32)
    optimizer = optimizer if around is None else around(optimizer)

    def compute() -> list[Any]:
        return gradients_of(optimizer, variables)

    if in_function:
        compute = tf.function(compute)
    for _ in range(2):  # the second call does not run Python in the function
        pairs = list(zip(compute(), variables, strict=True))
        with pytest.raises(UnsupportedError, match="through unscale_gradients first"):
            optimizer.apply_gradients(pairs)
    assert values_of(variables)[0] == [1.0, 2.0]
    gradients = optimizer.unscale_gradients(compute())
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    assert values_of(variables)[0] == [0.0, 0.0]


@wrappers
def test_gradients_and_step_may_stand_in_two_functions(wrap: Any) -> None:
    optimizer, variables = make(wrap, tf.float32)
    other, expected = make(wrap, tf.float32)
    compute = tf.function(lambda: gradients_of(optimizer, variables)[:2])

    @tf.function
    def update(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, variables, strict=False))

    for _ in range(4):
        update(optimizer.unscale_gradients(compute()))
        step_by_hand(other, expected)
    assert values_of(variables) == values_of(expected)


@wrappers
def test_functions_may_be_traced_again(wrap: Any) -> None:
    optimizer, (weight, *_) = make(wrap, tf.float32)

    @tf.function(reduce_retracing=False)
    def compute(batch: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(weight) * tf.reduce_sum(batch))
        return optimizer.unscale_gradients([tape.gradient(loss, weight)])

    @tf.function(reduce_retracing=False)
    def update(gradients: Any, batch: tf.Tensor) -> None:
        optimizer.apply_gradients([(gradients[0] / tf.reduce_sum(batch), weight)])

    for size in (1, 2, 3, 1, 4):
        batch = tf.ones([size])
        update(compute(batch), batch)
    assert weight.numpy().tolist() == [-1.5, -0.5]


@wrappers
def test_each_branch_of_a_condition_may_apply_the_gradients(wrap: Any) -> None:
    optimizer, variables = make(wrap, tf.float32)
    other, expected = make(wrap, tf.float32)

    @tf.function
    def step(first: tf.Tensor, second: tf.Tensor) -> None:
        gradients = optimizer.unscale_gradients(gradients_of(optimizer, variables))
        pairs = list(zip(gradients, variables, strict=True))

        def apply() -> int:
            optimizer.apply_gradients(pairs)
            return 0

        tf.cond(first, apply, lambda: tf.cond(second, apply, apply))

    for first, second in ((True, False), (False, True), (False, False)):
        step(tf.constant(first), tf.constant(second))
        step_by_hand(other, expected)
        assert values_of(variables) == values_of(expected)
