"""The wrapper as a citizen of Keras: fit, tapes, callbacks, files, other wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import MultitaskOptimizerWrapper

# Keras 3.15 converts its variables by a protocol that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ impl:DeprecationWarning")

X = np.random.RandomState(0).randn(8, 3).astype(np.float32)
Y = X[:, :1]

INNER = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.5),
    "ema": lambda: keras.optimizers.Adam(0.1, use_ema=True),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.1, global_clipnorm=0.1),
    "accumulation": lambda: keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
}


def two_heads(optimizer: Any, **options: Any) -> keras.Model:
    """Return a model whose second head is absent: its loss has weight 0."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input([3])
    body = keras.layers.Dense(2, name="body")(inputs)
    heads = [keras.layers.Dense(1, name=name)(body) for name in "ab"]
    model = keras.Model(inputs, heads)
    losses = {"loss": ["mse", "mse"], "loss_weights": [1.0, 0.0]}
    model.compile(optimizer, **losses, **options)
    return model


def fit(model: keras.Model, **options: Any) -> None:
    model.fit(X, [Y, Y], batch_size=4, shuffle=False, verbose=0, **options)


def weights(model: keras.Model, head: str) -> list[np.ndarray]:
    return [v.numpy() for v in model.get_layer(head).trainable_variables]


def same(first: Any, second: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.sample(1)
@pytest.mark.parametrize("inner", INNER)
def test_fit_leaves_the_absent_head_and_its_slots_alone(inner: str) -> None:
    optimizer = MultitaskOptimizerWrapper(INNER[inner]())
    model = two_heads(optimizer, jit_compile=False)
    a, b = weights(model, "a"), weights(model, "b")
    fit(model, epochs=2)
    assert same(weights(model, "b"), b)
    assert not same(weights(model, "a"), a)
    for variable in model.get_layer("b").trainable_variables:
        for name in set(optimizer.get_slot_names()) - {"average"}:
            assert not np.any(optimizer.get_slot(variable, name).numpy()), name


def test_fit_under_xla_leaves_the_absent_head_alone() -> None:
    model = two_heads(MultitaskOptimizerWrapper(INNER["adamw"]()), jit_compile=True)
    b = weights(model, "b")
    fit(model)
    assert same(weights(model, "b"), b)


def test_duplicate_rows_are_summed_before_the_optimizer_sees_them() -> None:
    table = keras.Variable(np.ones((4, 1), np.float32))
    optimizer = MultitaskOptimizerWrapper(keras.optimizers.Adagrad(0.1))
    values, rows = tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 1, 3])
    optimizer.apply([tf.IndexedSlices(values, rows, tf.constant([4, 1]))], [table])
    slot = optimizer.get_slot(table, "accumulator").numpy()
    # 0.1 and its sums are rounded to float32.
    np.testing.assert_allclose(slot.ravel(), [0.1, 9.1, 0.1, 16.1], rtol=1e-6)
    before = table.numpy().copy()
    values = tf.constant([[1.0], [-1.0], [0.0]])
    optimizer.apply([tf.IndexedSlices(values, rows, tf.constant([4, 1]))], [table])
    assert same(table.numpy(), before)


def test_the_sum_of_accumulated_gradients_is_judged() -> None:
    w, z = keras.Variable([1.0]), keras.Variable([1.0])
    inner = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    optimizer = MultitaskOptimizerWrapper(inner)
    optimizer.apply([tf.constant([2.0]), tf.constant([2.0])], [w, z])
    optimizer.apply([tf.constant([0.0]), tf.constant([-2.0])], [w, z])
    assert (w.numpy()[0], z.numpy()[0]) == (0.5, 1.0)
    assert not np.any(optimizer.get_slot(z, "gradient_accumulator").numpy())


@pytest.mark.parametrize("compiled", [False, True])
def test_accumulated_gradients_that_cancel_are_cleared(compiled: bool) -> None:
    weight = keras.Variable([1.0])
    inner = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    optimizer = MultitaskOptimizerWrapper(inner)
    optimizer.build([weight])

    def step(gradient: tf.Tensor) -> None:
        optimizer.apply([gradient], [weight])

    step = tf.function(step, autograph=False) if compiled else step
    for gradient in (1.0, -1.0, 0.5, 0.5):
        step(tf.constant([gradient]))
    # The first sum is 0, the mean of the second period 0.5.
    assert weight.numpy().tolist() == [0.5]


@pytest.mark.parametrize("built", [False, True])
def test_a_zero_gradient_leaves_the_means_of_adafactor_alone(built: bool) -> None:
    w, z = (keras.Variable(tf.ones([2, 3])) for _ in range(2))
    inner = keras.optimizers.Adafactor(0.1)
    if built:
        inner.build([w, z])
    optimizer = MultitaskOptimizerWrapper(inner)
    optimizer.apply([tf.ones([2, 3]), tf.ones([2, 3])], [w, z])
    before = [variable.numpy() for variable in (z, inner._r[1], inner._c[1])]
    optimizer.apply([tf.ones([2, 3]), tf.zeros([2, 3])], [w, z])
    assert same(
        [variable.numpy() for variable in (z, inner._r[1], inner._c[1])], before
    )
    assert optimizer.get_slot(z, "r") is inner._r[1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("compiled", [False, True])
def test_nadam_counts_steps_without_updates_in_its_product(compiled: bool) -> None:
    pairs = [[keras.Variable([1.0]), keras.Variable([1.0])] for _ in range(2)]
    wrapped = MultitaskOptimizerWrapper(keras.optimizers.Nadam(0.1))
    plain = keras.optimizers.Nadam(0.1)
    for optimizer, variables in zip((wrapped, plain), pairs, strict=True):
        optimizer.build(variables)

    def step(gradient: tf.Tensor) -> None:
        wrapped.apply([gradient, gradient], pairs[0])

    step = tf.function(step, autograph=False) if compiled else step
    for number in (0.0, 0.0, 1.0):
        step(tf.constant([number]))
        plain.apply([tf.constant([number])] * 2, pairs[1])
    # Zeros at the start do not move Nadam, so only the product can differ.
    np.testing.assert_allclose(pairs[0][0].numpy(), pairs[1][0].numpy(), rtol=1e-6)


def test_an_optimizer_that_is_built_already_can_be_wrapped() -> None:
    w, z = keras.Variable([1.0]), keras.Variable([1.0])
    inner = keras.optimizers.Adam(0.1)
    inner.apply([tf.ones([1]), tf.ones([1])], [w, z])
    optimizer = MultitaskOptimizerWrapper(inner)
    kept, moment = z.numpy().copy(), optimizer.get_slot
    optimizer.apply([tf.ones([1]), tf.zeros([1])], [w, z])
    assert same(z.numpy(), kept)
    assert moment(z, "m").numpy()[0] == np.float32(0.1)


REFUSED = """
import keras
own, keras.config.backend = keras.config.backend, lambda: "torch"
try:
    import lockstep.keras3
except ImportError as error:
    print(type(error).__name__, error)
finally:
    keras.config.backend = own
"""


def test_another_back_end_of_keras_is_refused_in_one_sentence(
    elsewhere: Callable[..., list[str]],
) -> None:
    (line,) = elsewhere(REFUSED)
    assert line.startswith(
        "MissingFrameworkError lockstep.keras3: expected Keras on its Tens"
    )


def test_variables_are_a_property_and_a_method() -> None:
    optimizer = MultitaskOptimizerWrapper(keras.optimizers.SGD(0.1, momentum=0.5))
    optimizer.build([keras.Variable([1.0])])
    assert optimizer.variables() == list(optimizer.variables)
    assert optimizer.get_slot_names() == ["momentum"]
