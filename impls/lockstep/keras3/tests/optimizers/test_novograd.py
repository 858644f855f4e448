"""NovoGrad as an optimizer of Keras; its numbers are checked by parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.keras3 import NovoGrad

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)
SLOTS = ("momentum", "second_moment")
INPUTS = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
TARGETS = INPUTS.sum(1, keepdims=True)


def model(dtype: str | None = None) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,)), keras.layers.Dense(2, dtype=dtype)]
    return keras.Sequential([*layers, keras.layers.Dense(1, dtype=dtype)])


def fitted(optimizer: Any, epochs: int = 3, **options: Any) -> keras.Model:
    trained = model()
    trained.compile(optimizer, "mse", **options)
    trained.fit(INPUTS, TARGETS, epochs=epochs, batch_size=4, shuffle=False, verbose=0)
    return trained


def moments(optimizer: Any, variable: Any) -> list[np.ndarray]:
    return [optimizer.get_slot(variable, name).numpy() for name in SLOTS]


def values(variables: Any) -> list[Any]:
    return [variable.numpy().tolist() for variable in variables]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "way", ["eager", "graph", pytest.param("jit", marks=pytest.mark.soak)]
)
def test_fit_lowers_the_loss_in_every_way(way: str) -> None:
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    optimizer = NovoGrad(0.01, weight_decay=0.001)
    trained = fitted(optimizer, epochs=30, **options)
    assert trained.evaluate(INPUTS, TARGETS, verbose=0) < model_loss() / 2
    assert all(moments(optimizer, w)[1] > 0 for w in trained.trainable_variables)


def model_loss() -> float:
    untrained = model()
    untrained.compile("sgd", "mse")
    return untrained.evaluate(INPUTS, TARGETS, verbose=0)


OPTIONS = {"ema": {"use_ema": True}, "steps": {"gradient_accumulation_steps": 2}}
WRAPPERS = {
    "none": lambda opt, w: opt,
    "multitask": lambda opt, w: keras3.MultitaskOptimizerWrapper(opt),
    "rows": lambda opt, w: keras3.VariableClippingOptimizer(opt, {w.path: [0]}, 9.0),
    "scale": lambda opt, w: keras3.MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "masters": lambda opt, w: keras3.MixedPrecisionOptimizerWrapper(opt, 8.0),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=list(WRAPPERS))
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_slots_of_keras_options_are_not_taken_for_moments(options, wrap) -> None:
    """A step of gradients of one, or of two of them whose mean is one."""
    weight = keras.Variable(np.float32([[1.0, 2.0]]), name="w")
    rule = keras3.NovoGrad(0.5, epsilon=0.0, **options)
    optimizer = wrap(rule, weight)
    count = options.get("gradient_accumulation_steps", 1)
    for share in (0.5, 1.5) if count == 2 else (1.0,):
        optimizer.apply_gradients([(tf.fill([1, 2], share), weight)])
    moved = 0.5 / np.sqrt(np.float32(2.0))
    assert weight.numpy() == pytest.approx(np.array([[1.0, 2.0]]) - moved, rel=1e-6)
    assert float(rule.get_slot(weight, "second_moment")) == 2.0


def test_compiled_steps_are_the_eager_ones() -> None:
    found = [
        np.concatenate([w.numpy().ravel() for w in trained.trainable_variables])
        for trained in (
            fitted(NovoGrad(0.01), run_eagerly=True),
            fitted(NovoGrad(0.01), jit_compile=True),
        )
    ]
    # XLA fuses multiplications and additions.
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_a_file_goes_on_to_the_bit(tmp_path: Path) -> None:
    trained = fitted(NovoGrad(0.01, weight_decay=0.1, grad_averaging=True))
    trained.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.optimizer, NovoGrad)
    for each in (trained, again):
        each.fit(INPUTS, TARGETS, epochs=2, batch_size=4, shuffle=False, verbose=0)
    assert values(again.variables) == values(trained.variables)
    assert values(again.optimizer.variables) == values(trained.optimizer.variables)


def test_a_checkpoint_of_tensorflow_goes_on_to_the_bit(tmp_path: Path) -> None:
    w, twin = keras.Variable([1.0, 2.0]), keras.Variable([0.0, 0.0])
    optimizer, other = NovoGrad(0.1), NovoGrad(0.1)
    optimizer.apply([tf.constant([3.0, 4.0])], [w])
    saved = tf.train.Checkpoint(w=w.value, optimizer=optimizer)
    path = saved.write(str(tmp_path / "c"))
    other.build([twin])
    tf.train.Checkpoint(w=twin.value, optimizer=other).read(path)
    for each, variable in ((optimizer, w), (other, twin)):
        each.apply([tf.constant([1.0, -1.0])], [variable])
    assert values([twin]) == values([w])
    assert values(other.variables) == values(optimizer.variables)


def test_what_is_excluded_does_not_decay() -> None:
    kernel, bias = keras.Variable([2.0], name="k"), keras.Variable([2.0], name="b")
    optimizer = NovoGrad(0.25, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["b"])
    optimizer.apply([tf.ones([1]), tf.ones([1])], [kernel, bias])
    assert values([kernel, bias]) == [[1.5], [1.75]]


def test_half_precision_has_a_second_moment_in_float32() -> None:
    w, optimizer = keras.Variable([1.0, 1.0], dtype="float16"), NovoGrad()
    optimizer.apply([tf.constant([300.0, 400.0], tf.float16)], [w])
    momentum, second = moments(optimizer, w)
    assert (momentum.dtype, second.dtype) == (np.float16, np.float32)
    assert second == 250000


def test_state_is_half_of_adam_s_but_for_a_number_a_tensor() -> None:
    shapes = [(64, 32), (32,), (7, 5, 3)]
    variables = [keras.Variable(np.ones(shape, np.float32)) for shape in shapes]
    sizes = []
    for optimizer in (NovoGrad(), keras.optimizers.Adam()):
        optimizer.build(variables)
        others = {id(optimizer.iterations), id(optimizer._learning_rate)}
        state = [v for v in optimizer.variables if id(v) not in others]
        sizes.append(sum(v.numpy().nbytes for v in state))
    elements = sum(int(np.prod(shape)) for shape in shapes)
    assert sizes == [4 * (elements + 3), 4 * 2 * elements]


# -- rates ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["assigned", "schedule", "policy", "callable"])
def test_the_rate_may_change_from_step_to_step(kind: str) -> None:
    w, rate = keras.Variable([8.0]), tf.Variable(1.0)
    drop = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [1.0, 0.5, 0.25])
    policy = keras3.PolicySchedule(
        "piecewise_constant",
        learning_rate=1.0,
        boundaries=[0, 1],
        decay_rates=[0.5, 0.25],
    )
    kinds = {"schedule": drop, "policy": policy, "callable": lambda: rate}
    optimizer = NovoGrad(kinds.get(kind, 1.0), beta1=0.0)
    for value in (1.0, 0.5, 0.25):
        rate.assign(value)
        if kind == "assigned":
            optimizer.learning_rate = value
        optimizer.apply([tf.constant([2.0])], [w])
    assert w.numpy().tolist() == [6.25]


# -- inside of the wrappers ----------------------------------------------------------


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_a_task_that_is_absent_leaves_both_moments_alone(traced: bool) -> None:
    w, other = keras.Variable([1.0, 2.0]), keras.Variable([1.0])
    inner = NovoGrad(weight_decay=0.1)
    optimizer = keras3.MultitaskOptimizerWrapper(inner)
    optimizer.build([w, other])

    def step(gradient: tf.Tensor) -> None:
        optimizer.apply([gradient, tf.ones([1])], [w, other])

    step = tf.function(step, autograph=False) if traced else step
    step(tf.constant([3.0, 4.0]))
    before = [w.numpy().tolist(), *(m.tolist() for m in moments(optimizer, w))]
    assert before[2] == 25.0
    step(tf.zeros([2]))
    after = [w.numpy().tolist(), *(m.tolist() for m in moments(optimizer, w))]
    assert after == before


def test_a_step_that_overflows_leaves_both_moments_alone() -> None:
    w, inner = keras.Variable([1.0, 2.0]), NovoGrad()
    scale = keras3.FixedLossScale(4.0)
    optimizer = keras3.MixedPrecisionLossScaleOptimizer(inner, scale)

    def step(*x: float) -> list[Any]:
        optimizer.minimize(lambda: tf.reduce_sum(w.value * x), var_list=[w])
        return [w.numpy().tolist(), *(m.tolist() for m in moments(optimizer, w))]

    before = step(3.0, 4.0)
    assert before[2] == 25.0
    assert step(3.0, float("inf")) == before


def test_rows_are_clipped_after_the_step() -> None:
    w, inner = keras.Variable([[3.0, 4.0], [0.5, 0.0]], name="w"), NovoGrad(0.0)
    optimizer = keras3.VariableClippingOptimizer(inner, {w.value.ref(): [1]}, 1.0)
    optimizer.apply([tf.ones([2, 2])], [w])
    assert np.linalg.norm(w.numpy(), axis=1) == pytest.approx([1.0, 0.5])
    assert moments(optimizer, w)[1] == 4.0


def test_float16_weights_are_trained_through_masters() -> None:
    half = keras.Variable([1.0, 1.0], dtype="float16")
    full, given = keras.Variable([1.0, 1.0]), {"weight_decay": 0.5}
    wrapper = keras3.MixedPrecisionOptimizerWrapper(NovoGrad(2.0**-13, **given), 8.0)
    plain = NovoGrad(2.0**-13, **given)
    x = tf.constant([1.0, 2.0])

    def loss() -> tf.Tensor:
        return tf.reduce_sum(tf.cast(half.value, tf.float32) * x)

    for _ in range(3):
        wrapper.minimize(loss, var_list=[half])
        plain.apply([x], [full])
    assert wrapper.master(half).numpy().tolist() == full.numpy().tolist()
    for got, right in zip(moments(wrapper, half), moments(plain, full), strict=True):
        assert got.dtype == np.float32 and got.tolist() == right.tolist()
