"""What is wrong with a call is said before it has changed anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.tf import (
    DynamicLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    NovoGrad,
    VariableClippingOptimizer,
    optimize_loss,
    strict,
)


def momentum() -> Any:
    return MomentumOptimizer(0.1, 0.9)


MAKERS: dict[str, Callable[[], Any]] = {
    "multitask": lambda: MultitaskOptimizerWrapper(momentum()),
    "rows": lambda: VariableClippingOptimizer(momentum(), {}, 1.0),
    "loss scale": lambda: MixedPrecisionLossScaleOptimizer(momentum(), "dynamic"),
    "masters": lambda: MixedPrecisionOptimizerWrapper(momentum()),
    "NovoGrad": lambda: NovoGrad(0.1),
}
COUNTERS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 3,
    "a tensor": lambda: tf.constant(1),
    "a vector": lambda: tf.Variable([1, 2]),
    "a float": lambda: tf.Variable(1.5),
}


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_cannot_count_steps_is_refused_before_a_weight_moves(
    maker: str, counter: str
) -> None:
    w = tf.Variable([1.0, 2.0])
    optimizer, global_step = MAKERS[maker](), COUNTERS[counter]()
    with pytest.raises(errors.DtypeError, match="global_step: expected a 0-d variable"):
        optimizer.apply_gradients([(tf.ones([2]), w)], global_step=global_step)
    assert w.numpy().tolist() == [1.0, 2.0]
    assert not optimizer.get_slot_names()


def test_strict_counts_with_a_float_as_the_original() -> None:
    w, counter = tf.Variable([1.0, 2.0]), tf.Variable(1.5)
    wrapper = strict.MultitaskOptimizerWrapper(momentum())
    wrapper.apply_gradients([(tf.ones([2]), w)], global_step=counter)
    assert counter.numpy() == 2.5


ROWS: dict[str, tuple[list[int], type[Exception], str]] = {
    "too large": ([5], errors.OutOfRangeError, "indices of the 2 rows of 'w', got 5"),
    "negative": ([-1], errors.OutOfRangeError, "indices of the 2 rows of 'w', got -1"),
    "too many": ([0, 1], errors.ShapeError, "an index for each of 1 rows"),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("maker", MAKERS)
def test_rows_that_are_none_are_refused_before_another_variable_moves(
    maker: str, rows: str
) -> None:
    indices, error, words = ROWS[rows]
    u = tf.Variable([1.0, 2.0], name="u")
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w")
    sparse = tf.IndexedSlices(tf.ones([1, 2]), tf.constant(indices))
    with pytest.raises(error, match=words):
        MAKERS[maker]().apply_gradients([(tf.ones([2]), u), (sparse, w)])
    assert u.numpy().tolist() == [1.0, 2.0]


def test_indices_may_be_a_list_and_there_may_be_none() -> None:
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    wrapper = MultitaskOptimizerWrapper(GradientDescentOptimizer(1.0))
    wrapper.apply_gradients([(tf.IndexedSlices(tf.ones([1, 2]), [1]), w)])
    none = tf.IndexedSlices(tf.ones([0, 2]), tf.zeros([0], tf.int32))
    wrapper.apply_gradients([(none, w)])
    assert w.numpy().tolist() == [[1.0, 2.0], [2.0, 3.0]]


@pytest.mark.parametrize("limit", [-1.0, 0.0, float("nan"), [1.0, 1.0]])
def test_the_value_of_an_eager_variable_as_max_norm_is_checked(limit: Any) -> None:
    w = tf.Variable([1.0, 2.0])
    with pytest.raises(errors.OutOfRangeError, match="a finite number > 0"):
        VariableClippingOptimizer(momentum(), {w.ref(): [0]}, tf.Variable(limit))


def test_a_max_norm_that_became_negative_turns_no_row_round() -> None:
    w, limit = tf.Variable([3.0, 4.0]), tf.Variable(1.0)
    optimizer = VariableClippingOptimizer(momentum(), {w.ref(): [0]}, limit)
    limit.assign(-1.0)
    with pytest.raises(errors.OutOfRangeError, match="a finite number > 0"):
        optimizer.apply_gradients([(tf.zeros([2]), w)])
    assert w.numpy().tolist() == [3.0, 4.0]


def test_a_rate_function_that_returns_nothing_is_told_so() -> None:
    w = tf.Variable([1.0])
    with pytest.raises(errors.OutOfRangeError, match="a finite rate >= 0, got None"):
        optimize_loss(lambda: tf.reduce_sum(w), "SGD", {}, lambda step: None, [w])


@pytest.mark.parametrize("given", [{"on_horovod": "yes"}, {"model": 3}])
def test_a_text_is_no_flag_and_a_number_no_model(given: dict[str, Any]) -> None:
    w = tf.Variable([1.0])
    with pytest.raises(
        errors.OutOfRangeError, match=rf"optimize_loss: {next(iter(given))}: "
    ):
        optimize_loss(lambda: tf.reduce_sum(w), "SGD", {}, lambda s: 0.1, [w], **given)


CALLS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "no loss": (
        lambda o, w: o.minimize(lambda: None, var_list=[w]),
        RuntimeError,
        "loss: expected a 0-d tensor, got None",
    ),
    "a loss with an argument": (
        lambda o, w: o.minimize(lambda x: tf.reduce_sum(w * x), var_list=[w]),
        RuntimeError,
        r"a callable without arguments, got one with \(x\)",
    ),
    "a name": (
        lambda o, w: o.minimize(lambda: tf.reduce_sum(w), var_list=["w"]),
        TypeError,
        "a list of variables, got 'w'",
    ),
    "a number": (
        lambda o, w: o.minimize(lambda: tf.reduce_sum(w), var_list=3),
        TypeError,
        "a list of variables, got 3",
    ),
    "no slots": (lambda o, w: o.create_slots(None), TypeError, "got None"),
    "a text": (
        lambda o, w: o.minimize(lambda: tf.reduce_sum(w), var_list=[w], grad_loss="x"),
        TypeError,
        "grad_loss: expected a number or a tensor, got 'x'",
    ),
    "a gate": (
        lambda o, w: o.minimize(
            lambda: tf.reduce_sum(w), var_list=[w], gate_gradients="op"
        ),
        ValueError,
        "GATE_NONE, GATE_OP or GATE_GRAPH, got 'op'",
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("maker", ["multitask", "rows", "loss scale", "masters"])
def test_what_cannot_be_differentiated_is_one_sentence(maker: str, call: str) -> None:
    wrong, error, words = CALLS[call]
    w = tf.Variable([1.0, 2.0])
    with pytest.raises(error, match=words) as told:
        wrong(MAKERS[maker](), w)
    assert isinstance(told.value, errors.LockstepError)
    assert w.numpy().tolist() == [1.0, 2.0]


def test_an_unknown_attribute_is_told_of_the_wrapper() -> None:
    with pytest.raises(AttributeError, match="'typo'"):
        _ = MAKERS["multitask"]().typo


def test_an_index_is_compared_with_the_number_of_rows() -> None:
    w = tf.Variable(tf.ones([3, 2]))
    wrapper = MultitaskOptimizerWrapper(GradientDescentOptimizer(0.5))
    wrapper.apply_gradients([(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([2])), w)])
    assert w.numpy().tolist() == [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]


def test_only_strict_dynamic_scales_need_the_shape_of_a_sparse_gradient() -> None:
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([2]))
    _, finite = DynamicLossScale(8.0).update([gradient])
    assert finite
    with pytest.raises(errors.UnsupportedError, match="a dense shape"):
        strict.DynamicLossScale(8.0).update([gradient])
