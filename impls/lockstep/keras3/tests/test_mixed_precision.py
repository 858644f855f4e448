"""Float32 masters as a citizen of Keras: fit, tapes, files, constraints, wrappers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    mp_regularizer_wrapper,
    strict,
)
from lockstep.spec import errors

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)

X = np.random.RandomState(0).randn(12, 3).astype(np.float16)
Y = X[:, :1].copy()
NAN, TINY = float("nan"), 2.0**-13
"""A float16 near 1 moves by 2^-11 downward: a step of TINY is lost in it."""

FACES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "function": lambda function: tf.function(function, autograph=False),
    "jit": lambda function: tf.function(function, autograph=False, jit_compile=True),
}
each_face = pytest.mark.parametrize("face", FACES)
each_half = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def half(values: Any, dtype: str = "float16", name: str = "w") -> keras.Variable:
    return keras.Variable(values, dtype=dtype, name=name)


def momentum(rate: float = 0.125) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate, momentum=0.5)


def masters_of(inner: Any = None, *arguments: Any, **options: Any) -> Any:
    inner = momentum() if inner is None else inner
    return MixedPrecisionOptimizerWrapper(inner, *arguments, **options)


def model_with(optimizer: Any, dtype: str = "float16", **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(2, dtype=dtype, name="first"),
        keras.layers.Dense(1, dtype=dtype, name="second"),
    ]
    model = keras.Sequential([keras.layers.Input([3], dtype="float16"), *layers])
    model.compile(optimizer, "mse", **options)
    return model


def fit(model: keras.Model, x: Any = X, **options: Any) -> None:
    model.fit(x, Y, batch_size=4, shuffle=False, verbose=0, **options)


def bits(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


def rounded(master: Any, dtype: str) -> bytes:
    return tf.cast(master.value, dtype).numpy().tobytes()


# The step


@each_half
@each_face
def test_steps_too_small_for_the_weight_add_up_in_the_master(
    face: str, dtype: str
) -> None:
    w, b = half([1.0, 2.0], dtype), keras.Variable([1.0], name="b")
    optimizer = masters_of(keras.optimizers.SGD(TINY), 8.0)
    optimizer.build([w, b])
    step = FACES[face](lambda: optimizer.apply([tf.ones([2], dtype), ONE], [w, b]))
    for _ in range(64):
        step()
    assert optimizer.master(w).numpy().tolist() == [1 - 64 * TINY, 2 - 64 * TINY]
    assert bits([w])[0] == rounded(optimizer.master(w), dtype)
    assert np.asarray(w.numpy(), np.float32)[0] < 1
    assert optimizer.master(b) is b and b.numpy().tolist() == [1 - 64 * TINY]


ONE = tf.constant([1.0])


@each_face
def test_compute_gradients_returns_float32_gradients_of_masters(face: str) -> None:
    w = half([1.0, 1.0])
    optimizer = masters_of(keras.optimizers.SGD(0.125), 8.0)
    optimizer.build([w])
    given = tf.constant([1.0, 2.0], tf.float16)

    def step() -> tf.Tensor:
        loss = lambda: tf.reduce_sum(w.value * given)  # noqa: E731
        pairs = optimizer.compute_gradients(loss, [w])
        assert pairs[0][1] is optimizer.master(w)
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    gradient = FACES[face](step)()
    assert gradient.dtype == tf.float32 and gradient.numpy().tolist() == [1, 2]
    assert w.numpy().tolist() == [0.875, 0.75]


@each_face
def test_a_tape_with_scale_loss_does_the_same(face: str) -> None:
    w = half([1.0, 1.0])
    # The gradient of the unscaled loss, 2^-27, is 0 in float16.
    optimizer = masters_of(keras.optimizers.SGD(2.0**24), 2.0**15)
    optimizer.build([w])

    def step() -> None:
        with tf.GradientTape() as tape:
            small = tf.reduce_sum(tf.cast(w.value, tf.float32)) * 2.0**-27
            loss = optimizer.scale_loss(small)
        optimizer.apply([tape.gradient(loss, w.value)], [w])

    FACES[face](step)()
    assert optimizer.master(w).numpy().tolist() == [0.875, 0.875]


@each_face
def test_a_skipped_step_changes_no_bit(face: str) -> None:
    w, b = half([1.0, 2.0]), keras.Variable([1.0], name="b")
    inner = keras.optimizers.AdamW(0.1, use_ema=True)
    optimizer = masters_of(inner, "dynamic", at_floor="ignore")
    optimizer.build([w, b])
    step = FACES[face](lambda g: optimizer.apply([g, ONE], [w, b]))
    step(tf.constant([1.0, 2.0], tf.float16))
    before = bits([w, b, *optimizer.masters, *inner.variables])
    for _ in range(20):
        step(tf.constant([NAN, 1.0], tf.float16))
    assert bits([w, b, *optimizer.masters, *inner.variables]) == before
    assert float(optimizer.loss_scale) == 1
    assert int(optimizer.skipped_in_a_row) == 20
    step(tf.constant([1.0, 2.0], tf.float16))
    assert bits(optimizer.masters) != before[2:3]


def test_a_skipped_step_is_reported_by_the_names_of_the_model() -> None:
    w, b = half([1.0]), keras.Variable([1.0], name="b")
    optimizer = masters_of(None, 4.0)
    optimizer.apply([tf.constant([NAN], tf.float16), ONE], [w, b])
    report = optimizer.last_step
    assert (report.applied, report.nonfinite) == (False, ("w",))
    assert report.skipped == ("w", "b")


def test_weights_saturate_and_masters_do_not() -> None:
    w = half([65504.0, -65504.0])
    optimizer = masters_of(keras.optimizers.SGD(1.0))
    optimizer.apply([tf.constant([-1000.0, 1000.0], tf.float16)], [w])
    assert w.numpy().tolist() == [65504, -65504]
    assert optimizer.master(w).numpy().tolist() == [66504, -66504]


@each_face
def test_duplicate_rows_are_summed_in_float32(face: str) -> None:
    table = half(np.zeros((3, 1)))
    optimizer = masters_of(keras.optimizers.SGD(0.5))
    optimizer.build([table])
    values = tf.constant([[4e4], [4e4], [1.0]], tf.float16)

    def step(values: tf.Tensor) -> None:
        shape = tf.constant([3, 1])
        optimizer.apply([tf.IndexedSlices(values, [2, 2, 0], shape)], [table])

    FACES[face](step)(values)
    total = 2 * float(np.float16(4e4))
    master = optimizer.master(table).numpy().ravel().tolist()
    assert master == [-0.5, 0, -total / 2]


@each_face
def test_the_clip_is_of_unscaled_gradients(face: str) -> None:
    w = half([0.0, 0.0])
    optimizer = masters_of(keras.optimizers.SGD(1.0), 64.0, clip_norm=2.5)
    optimizer.build([w])
    given = tf.constant([3.0, 4.0], tf.float16)

    def step() -> None:
        loss = lambda: tf.reduce_sum(w.value * given)  # noqa: E731
        optimizer.minimize(loss, var_list=[w])

    FACES[face](step)()
    assert optimizer.master(w).numpy().tolist() == [-1.5, -2]


@pytest.mark.parametrize(
    "scale",
    [None, 3, 2.0, "dynamic", FixedLossScale(4), DynamicLossScale(8.0)],
    ids=str,
)
def test_every_kind_of_scale_trains(scale: Any) -> None:
    w = half([1.0])
    optimizer = masters_of(keras.optimizers.SGD(0.5), scale)
    optimizer.minimize(lambda: tf.reduce_sum(w.value), var_list=[w])
    assert w.numpy().tolist() == [0.5]


# What others write


def test_masters_follow_what_is_written_into_the_model() -> None:
    w = half([1.0, 1.0])
    optimizer = masters_of(keras.optimizers.SGD(TINY))
    gradient = tf.ones([2], tf.float16)
    optimizer.apply([gradient], [w])
    w.assign(tf.constant([1.0, 3.0], tf.float16))
    optimizer.apply([gradient], [w])
    # Where the weight is what its master rounds to, the master has kept its digits.
    assert optimizer.master(w).numpy().tolist() == [1 - 2 * TINY, 3 - TINY]


def test_load_weights_moves_the_masters(tmp_path: Path) -> None:
    model = model_with(masters_of(keras.optimizers.SGD(0.0)), jit_compile=False)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    saved = bits(model.trainable_variables)
    model.optimizer.learning_rate = 0.5
    fit(model)
    assert bits(model.trainable_variables) != saved
    model.load_weights(path)
    model.optimizer.learning_rate = 0.0
    fit(model)
    assert bits(model.trainable_variables) == saved
    wide = [tf.cast(v.value, tf.float32) for v in model.trainable_variables]
    assert bits(model.optimizer.masters) == bits(wide)


# Fit


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@each_half
def test_fit_scales_and_trains_through_masters(jit: bool, dtype: str) -> None:
    scale = DynamicLossScale(2.0**4, increment_period=2)
    model = model_with(masters_of(None, scale), dtype, jit_compile=jit)
    before = bits(model.trainable_variables)
    fit(model, epochs=2)
    optimizer = model.optimizer
    assert int(optimizer.iterations) == 6 and float(scale()) == 2.0**7
    assert len(optimizer.masters) == 4
    pairs = zip(model.trainable_variables, before, strict=True)
    for variable, first in pairs:
        master = optimizer.master(variable)
        assert master.dtype == "float32" and variable.dtype == dtype
        assert bits([variable])[0] == rounded(master, dtype) != first


def test_fit_leaves_an_overflowing_batch_out() -> None:
    bad = X.copy()
    bad[5] = np.inf
    model = model_with(masters_of(None, DynamicLossScale(64.0, 2)), jit_compile=False)
    fit(model, bad)
    kept = [*range(4), *range(8, 12)]
    without = model_with(masters_of(None, 64.0), jit_compile=False)
    without.fit(X[kept], Y[kept], batch_size=4, shuffle=False, verbose=0)
    assert float(model.optimizer.loss_scale) == 32
    assert int(model.optimizer.iterations) == 2
    assert bits(model.optimizer.masters) == bits(without.optimizer.masters)


def test_under_mixed_float16_it_scales_and_makes_no_masters() -> None:
    optimizer = masters_of(None, DynamicLossScale(2.0**10))
    model = model_with(optimizer, "mixed_float16", jit_compile=False)
    assert model.optimizer is optimizer
    fit(model)
    assert optimizer.masters == [] and int(optimizer.iterations) == 3
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_averages_constraints_and_exclusions_are_those_of_the_weights() -> None:
    w, v = half([1.0, 4.0]), half([2.0], name="v")
    w.constraint = keras.constraints.MaxNorm(2.5, axis=0)
    inner = keras.optimizers.SGD(1.0, weight_decay=0.5, use_ema=True, ema_momentum=0.5)
    optimizer = masters_of(inner)
    optimizer.exclude_from_weight_decay(var_list=[w])
    # Keras keeps the average before the constraint: 0.5 (1, 4) + 0.5 (4, 8).
    for gradient in ([0.0, 1.0], [-3.0, 0.0]):
        optimizer.apply(
            [tf.constant(gradient, tf.float16), tf.zeros([1], "half")], [w, v]
        )
    assert v.numpy().tolist() == [0.5]
    assert np.linalg.norm(w.numpy().astype(np.float32)) <= 2.502
    assert np.linalg.norm(optimizer.master(w).numpy()) <= 2.500001
    optimizer.finalize_variable_values([w, v])
    average = optimizer.get_slot(w, "average").numpy()
    assert optimizer.master(w).numpy().tolist() == average.tolist()
    assert bits([w])[0] == rounded(optimizer.master(w), "float16")


# Regularizers


@each_face
def test_a_regularizer_acts_on_the_master(face: str) -> None:
    w = half([1.0, 2.0])
    regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
    assert float(regularizer(w)) == 0
    optimizer = masters_of(keras.optimizers.SGD(2.0**-12), 8.0)
    optimizer.build([w])
    step = FACES[face](lambda: optimizer.apply([tf.zeros([2], tf.float16)], [w]))
    expected = np.float32([1.0, 2.0])
    for _ in range(3):
        step()
        expected = expected - np.float32(2.0**-12) * expected
    # The weight itself has not moved at the first step: it is not what is penalised.
    assert optimizer.master(w).numpy().tolist() == expected.tolist()


def test_a_layer_takes_the_regularizer_and_a_file_keeps_it(tmp_path: Path) -> None:
    def model_of(dtype: str) -> keras.Model:
        keras.utils.set_random_seed(0)
        kernel = mp_regularizer_wrapper(keras.regularizers.L2(0.25))
        layer = keras.layers.Dense(1, dtype=dtype, kernel_regularizer=kernel)
        model = keras.Sequential([keras.layers.Input([3], dtype="float16"), layer])
        optimizer = masters_of(keras.optimizers.SGD(0.5), 64.0)
        model.compile(optimizer, "mse", jit_compile=False)
        return model

    x = np.zeros((4, 3), np.float16)
    for dtype in ("float16", "float32"):
        model = model_of(dtype)
        kernel = model.layers[0].kernel
        first = np.asarray(kernel.numpy(), np.float32)
        model.fit(x, x[:, :1], verbose=0)
        master = model.optimizer.master(kernel).numpy()
        np.testing.assert_array_equal(master, first - 0.5 * (0.5 * first))
    model_of("float16").save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert float(again.kernel_regularizer(again.kernel)) == 0
    assert again.kernel_regularizer.regularizer.l2 == np.float32(0.25)


def test_other_weights_are_regularized_at_once() -> None:
    regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
    assert float(regularizer(keras.Variable([1.0, 2.0]))) == 2.5
    assert float(regularizer(tf.constant([1.0, 2.0], tf.float16))) == 2.5
    bfloat16 = half([1.0, 2.0], "bfloat16")
    assert float(regularizer(bfloat16)) == 0
    assert float(strict.mp_regularizer_wrapper(tf.nn.l2_loss)(bfloat16.value)) == 2.5
    with pytest.raises(TypeError, match="a callable of a weight"):
        mp_regularizer_wrapper(0.5)  # type: ignore[arg-type]


# Nests


@each_face
def test_a_multitask_wrapper_around_it_keeps_masters_too(face: str) -> None:
    w, z = half([1.0]), half([1.0], name="z")
    inside = masters_of()
    optimizer = MultitaskOptimizerWrapper(inside)
    optimizer.build([w, z])
    step = FACES[face](lambda a, b: optimizer.apply([a, b], [w, z]))
    one, zero = tf.ones([1], tf.float16), tf.zeros([1], tf.float16)
    step(one, one)
    slot = inside.get_slot(z, "momentum")
    before = bits([z, inside.master(z), slot])
    step(one, zero)
    assert bits([z, inside.master(z), slot]) == before
    assert w.numpy()[0] < z.numpy()[0]


def test_a_multitask_wrapper_around_it_knows_the_pairs_of_masters() -> None:
    w, z = half([1.0]), half([1.0], name="z")
    optimizer = MultitaskOptimizerWrapper(masters_of(None, 8.0))
    optimizer.build([w, z])
    gradient = tf.Variable([1.0], dtype=tf.float16)

    def loss() -> tf.Tensor:
        return tf.reduce_sum(w.value + z.value * gradient)

    optimizer.minimize(loss, var_list=[w, z])
    before = bits([z])
    gradient.assign([0.0])
    optimizer.minimize(loss, var_list=[w, z])
    assert bits([z]) == before


def test_row_clipping_goes_inside_and_is_refused_around() -> None:
    w = half([[3.0, 4.0]])
    inner = VariableClippingOptimizer(keras.optimizers.SGD(1.0), {"w": [1]}, 2.5)
    optimizer = masters_of(inner)
    optimizer.apply([tf.zeros([1, 2], tf.float16)], [w])
    assert optimizer.master(w).numpy().tolist() == w.numpy().tolist() == [[1.5, 2.0]]
    around = VariableClippingOptimizer(masters_of(), {"w": [1]}, 2.5)
    with pytest.raises(errors.UnsupportedError, match="inside of the masters' wrapper"):
        around.apply([tf.zeros([1, 2], tf.float16)], [half([[3.0, 4.0]])])


# Saving

SAVED: dict[str, Callable[[], Any]] = {
    "a number": lambda: 8.0,
    "LogMax": lambda: AutomaticLossScaler("LogMax"),
}


@pytest.mark.parametrize("kind", SAVED)
def test_a_file_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    options = {"clip_norm": 1.0, "floor_patience": 7, "at_floor": "raise"}
    optimizer = masters_of(keras.optimizers.Adam(TINY), SAVED[kind](), **options)
    model = model_with(optimizer, jit_compile=False)
    fit(model)
    model.save(path)
    again = keras.models.load_model(path)
    config = optimizer.get_config()
    assert again.optimizer.get_config() == config
    assert {name: config[name] for name in options} == options
    for one in (model, again):
        fit(one)
    assert bits(again.optimizer.masters) == bits(optimizer.masters)
    assert bits(again.optimizer.variables) == bits(optimizer.variables)
    assert bits(again.trainable_variables) == bits(model.trainable_variables)


RESUME = """
import sys, keras, numpy as np
import lockstep.keras3
model = keras.models.load_model(sys.argv[1])
data = np.load(sys.argv[2])
model.fit(data["x"], data["y"], batch_size=4, shuffle=False, verbose=0)
state = [*model.trainable_variables, *model.optimizer.variables]
print("".join(np.asarray(v.numpy()).tobytes().hex() for v in state))
"""


def test_another_process_resumes_to_the_bit(tmp_path: Path) -> None:
    path, data = tmp_path / "model.keras", tmp_path / "data.npz"
    np.savez(data, x=X, y=Y)
    optimizer = masters_of(keras.optimizers.Adam(TINY), "dynamic")
    model = model_with(optimizer, jit_compile=False)
    fit(model)
    model.save(path)
    fit(model)
    command = [sys.executable, "-c", RESUME, str(path), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    state = bits([*model.trainable_variables, *optimizer.variables])
    assert done.stdout.strip().splitlines()[-1] == b"".join(state).hex()


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "masters": lambda opt: masters_of(opt, AutomaticLossScaler("LogMax")),
    "multitask": lambda opt: MultitaskOptimizerWrapper(opt),
    "multitask around masters": lambda opt: MultitaskOptimizerWrapper(masters_of(opt)),
    "rows": lambda opt: VariableClippingOptimizer(opt, {"w": [0]}, 9.0),
    "scale": lambda opt: MixedPrecisionLossScaleOptimizer(opt, "dynamic"),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_checkpoint_of_tensorflow_resumes_to_the_bit(
    kind: str, tmp_path: Path
) -> None:
    def made() -> tuple[Any, Any, tf.train.Checkpoint]:
        w = half([1.0, 2.0])
        optimizer = WRAPPED[kind](keras.optimizers.Adam(TINY))
        optimizer.build([w])
        return w, optimizer, tf.train.Checkpoint(optimizer=optimizer, w=w.value)

    gradient = tf.constant([1.0, -2.0], tf.float16)
    w, optimizer, checkpoint = made()
    optimizer.apply([gradient], [w])
    path = checkpoint.save(tmp_path / "checkpoint")
    again, resumed, other = made()
    other.restore(path).assert_consumed()
    for wrapper, variable in ((optimizer, w), (resumed, again)):
        wrapper.apply([gradient], [variable])
    assert bits([again, *resumed.variables]) == bits([w, *optimizer.variables])


# Strict, and bad input


def test_strict_is_the_original() -> None:
    w = half([1.0, 2.0])
    nan = tf.constant([NAN, 1.0], tf.float16)
    optimizer = strict.MixedPrecisionOptimizerWrapper(momentum(), 4.0)
    optimizer.apply([nan], [w])
    assert np.isnan(w.numpy()[0]) and optimizer.master(w).dtype == "float32"
    assert optimizer.get_slot(w, "momentum") is None and optimizer.variables() == []
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.strict and again.scale_object == 4.0
    with pytest.raises(AttributeError, match="a float or an AutomaticLossScaler"):
        strict.MixedPrecisionOptimizerWrapper(momentum(), 4).scale_loss(1.0)
    bfloat16 = half([1.0], "bfloat16")
    optimizer = strict.MixedPrecisionOptimizerWrapper(momentum())
    optimizer.build([bfloat16])
    assert optimizer.masters == []


def test_bad_input_is_refused_before_anything_changes() -> None:
    with pytest.raises(errors.NotScalableError, match="an instance"):
        MixedPrecisionOptimizerWrapper(keras.optimizers.SGD)
    for scale in (0.0, -1, NAN, "Backoff"):
        with pytest.raises(ValueError, match="loss_scale"):
            masters_of(None, scale)
    with pytest.raises(ValueError, match="clip_norm"):
        masters_of(None, clip_norm=0.0)
    w, built = half([1.0]), momentum()
    built.build([w])
    with pytest.raises(errors.UnsupportedError, match="not built yet"):
        masters_of(built).build([w])
    with pytest.raises(errors.UnsupportedError, match="MixedPrecisionOptimizerWrapper"):
        masters_of().master(w)
    with pytest.raises(TypeError, match="float16"):
        masters_of().apply([ONE], [w])
