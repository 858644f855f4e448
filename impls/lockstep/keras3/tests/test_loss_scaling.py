"""Loss scaling as a citizen of Keras: fit, tapes, files, mixed precision, wrappers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lockstep
from lockstep import reference
from lockstep.keras3 import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    strict,
)
from lockstep.spec import errors

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)

X = np.random.RandomState(0).randn(12, 3).astype(np.float32)
BAD = X.copy()
BAD[5] = np.inf
Y = X[:, :1].copy()
NAN = float("nan")

FACES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "function": lambda function: tf.function(function, autograph=False),
    "jit": lambda function: tf.function(function, autograph=False, jit_compile=True),
}
each_face = pytest.mark.parametrize("face", FACES)


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.125, momentum=0.5)


def scaled(scale: Any = "dynamic", **options: Any) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(momentum(), scale, **options)


def model_with(optimizer: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def fit(model: keras.Model, x: Any = X, **options: Any) -> None:
    model.fit(x, Y, batch_size=4, shuffle=False, verbose=0, **options)


def bits(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


def stepper(
    optimizer: Any, variables: Sequence[Any], face: str
) -> Callable[[Sequence[Any]], Any]:
    """Return a compiled step that applies these gradients to the variables."""
    optimizer.build(list(variables))
    step = FACES[face](lambda *gradients: optimizer.apply(list(gradients), variables))
    return lambda gradients: step(*map(tf.constant, gradients))


# Skipping


@each_face
def test_200_overflowing_steps_change_no_bit(face: str) -> None:
    w = keras.Variable([1.0, 2.0], name="w")
    inner = keras.optimizers.AdamW(0.1, use_ema=True)
    optimizer = MixedPrecisionLossScaleOptimizer(inner, "dynamic", at_floor="ignore")
    step = stepper(optimizer, [w], face)
    step([[1.0, 2.0]])
    before = bits([w, *inner.variables])
    for _ in range(200):
        step([[NAN, 1.0]])
    assert bits([w, *inner.variables]) == before
    assert float(optimizer.loss_scale) == 1
    assert int(optimizer.skipped_in_a_row) == 200
    step([[1.0, 2.0]])
    assert bits([w]) != before[:1] and int(optimizer.skipped_in_a_row) == 0


@each_face
def test_the_scale_stays_finite_under_zero_gradients(face: str) -> None:
    w = keras.Variable([1.0, 2.0])
    scale = DynamicLossScale(2.0**15, increment_period=1)
    step = stepper(scaled(scale), [w], face)
    for _ in range(300):
        step([[0.0, 0.0]])
    assert float(scale()) == 2.0**127
    assert w.numpy().tolist() == [1.0, 2.0]


def test_a_step_that_fails_leaves_the_scale_alone() -> None:
    class Failing(keras.optimizers.SGD):
        def update_step(self, *arguments: Any) -> None:
            raise OSError("no such device")

    scale = DynamicLossScale(2.0, increment_period=1)
    optimizer = MixedPrecisionLossScaleOptimizer(Failing(0.1), scale)
    with pytest.raises(OSError, match="no such device"):
        optimizer.apply([tf.ones([1])], [keras.Variable([1.0])])
    assert float(scale()) == 2 and int(scale.good_steps) == 0


def test_a_skipped_step_is_counted_nowhere_and_reported() -> None:
    w, b = keras.Variable([1.0], name="w"), keras.Variable([1.0], name="b")
    counter = keras.Variable(0, dtype="int64", trainable=False)
    optimizer = scaled()
    optimizer.apply_gradients([([NAN], w), ([1.0], b)], counter)
    assert int(counter) == int(optimizer.iterations) == 0
    report = optimizer.last_step
    assert (report.applied, report.nonfinite) == (False, ("w",))
    assert report.skipped == ("w", "b")
    assert "32768 -> 16384" in report.reason
    optimizer.apply_gradients([([1.0], w), ([1.0], b)], counter)
    assert int(counter) == int(optimizer.iterations) == 1
    assert optimizer.last_step.applied and optimizer.last_step.nonfinite == ()


def test_a_fixed_scale_skips_unless_strict() -> None:
    for names, skips in ((lockstep.keras3, True), (strict, False)):
        w = keras.Variable([1.0])
        wrapper = names.MixedPrecisionLossScaleOptimizer(momentum(), 4.0)
        wrapper.apply([tf.constant([NAN])], [w])
        assert np.isfinite(w.numpy()).all() == skips
        assert (wrapper.get_slot(w, "momentum") is not None) == skips


# Fit


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_fit_leaves_an_overflowing_batch_out(jit: bool) -> None:
    optimizer = scaled(DynamicLossScale(64.0, 2))
    model = model_with(optimizer, jit_compile=jit)
    fit(model, BAD)
    # Finite, overflow, finite: the scale is halved once, two steps are counted.
    assert float(optimizer.loss_scale) == 32
    assert int(optimizer.iterations) == 2 and optimizer.last_step is None
    kept = [*range(4), *range(8, 12)]
    without = model_with(momentum(), jit_compile=jit)
    without.fit(X[kept], Y[kept], batch_size=4, shuffle=False, verbose=0)
    # A power of two leaves no trace where nothing overflows.
    assert bits(model.trainable_variables) == bits(without.trainable_variables)
    assert bits(optimizer.inner_optimizer.variables) == bits(
        without.optimizer.variables
    )


def test_a_callback_sets_the_rate_of_the_wrapped_optimizer() -> None:
    model = model_with(scaled(), jit_compile=False)
    fit(model, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 0.25)])
    assert float(model.optimizer.inner_optimizer.learning_rate) == 0.25


def half_precision(optimizer: Any, **options: Any) -> keras.Model:
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        return model_with(optimizer, jit_compile=False, **options)
    finally:
        keras.mixed_precision.set_dtype_policy(policy)


def test_under_mixed_float16_keras_adds_no_scaling_of_its_own(tmp_path: Path) -> None:
    optimizer = scaled(DynamicLossScale(2.0**10))
    model = half_precision(optimizer)
    assert model.optimizer is optimizer
    fit(model, X * np.float32(2**-14))
    slots = [optimizer.get_slot(v, "momentum") for v in model.trainable_variables]
    assert model.dtype_policy.name == "mixed_float16"
    assert all(np.any(slot.numpy()) for slot in slots)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again) is type(optimizer)
    assert bits(again.variables) == bits(optimizer.variables)


def test_under_mixed_float16_what_overflows_half_precision_lowers_the_scale() -> None:
    optimizer = scaled(DynamicLossScale(2.0**24))
    model = half_precision(optimizer)
    before = bits(model.trainable_variables)
    fit(model, X)
    assert bits(model.trainable_variables) == before
    assert float(optimizer.loss_scale) == 2.0**21


def test_inside_another_wrapper_auto_scale_loss_has_to_be_off() -> None:
    inside = scaled(DynamicLossScale(64.0, 2))
    model = half_precision(MultitaskOptimizerWrapper(inside), auto_scale_loss=False)
    fit(model, BAD)
    assert float(inside.loss_scale) == 32 and int(inside.iterations) == 2


# Who unscales


def loss_of(w: keras.Variable) -> tf.Tensor:
    return tf.reduce_sum(w.value * [1.0, 2.0])


EXPECTED = [0.875, 0.75]
"""(1, 1) - 0.125 (1, 2): one step of the optimizer, however the gradients are made."""


@each_face
def test_gradients_of_a_scaled_loss_are_divided_once(face: str) -> None:
    w = keras.Variable([1.0, 1.0])
    optimizer = MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD(0.125), 8.0)
    optimizer.build([w])

    def differentiate(scales: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(w)
            loss = optimizer.scale_loss(loss) if scales else loss
        return tape.gradient(loss, w.value)

    compiled = FACES[face](differentiate)
    apply = FACES[face](lambda gradient: optimizer.apply([gradient], [w]))
    # Apart: what is still to be divided by is known between graphs.
    for scales in (True, True, False, True):
        w.assign([1.0, 1.0])
        apply(compiled(scales))
        assert w.numpy().tolist() == EXPECTED


@each_face
@pytest.mark.parametrize("around", ["nothing", "multitask", "rows"])
@pytest.mark.parametrize("scales", [False, True], ids=["plainly", "by itself"])
def test_compute_gradients_unscales(face: str, around: str, scales: bool) -> None:
    w = keras.Variable([1.0, 1.0])
    sgd = keras.optimizers.SGD(0.125)
    optimizer: Any = MixedPrecisionLossScaleOptimizer(sgd, 8.0)
    inside = optimizer
    if around == "multitask":
        optimizer = MultitaskOptimizerWrapper(inside)
    elif around == "rows":
        optimizer = VariableClippingOptimizer(inside, {w.path: [0]}, 100.0)
    optimizer.build([w])

    def step() -> tf.Tensor:
        def loss() -> tf.Tensor:
            return inside.scale_loss(loss_of(w)) if scales else loss_of(w)

        pairs = optimizer.compute_gradients(loss, [w])
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    compiled = FACES[face](step)
    for _ in range(2):
        w.assign([1.0, 1.0])
        assert compiled().numpy().tolist() == [1.0, 2.0]
        assert w.numpy().tolist() == EXPECTED


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_gets_unscaled_gradients(dtype: str) -> None:
    w = keras.Variable([1.0, 2.0], dtype=dtype)
    optimizer = MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD(0.5), 2.0**10)
    given = tf.constant([0.5, -1.0], dtype)
    pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(w.value * given), [w])
    assert pairs[0][0].dtype.name == dtype
    optimizer.apply_gradients(pairs)
    assert np.asarray(w.numpy(), np.float64).tolist() == [0.75, 2.5]


def test_strict_refuses_float16() -> None:
    w = keras.Variable([1.0], dtype="float16")
    optimizer = strict.MixedPrecisionLossScaleOptimizer(momentum(), 2.0)
    with pytest.raises(TypeError, match="float16"):
        optimizer.compute_gradients(lambda: tf.reduce_sum(w.value), [w])


# Clipping


@each_face
def test_clipping_does_not_see_the_scale(face: str) -> None:
    def clipped_run(scale: float) -> list[bytes]:
        draw = np.random.default_rng(1)
        w = keras.Variable(np.ones((3, 2), np.float32))
        optimizer = scaled(scale, clip_norm=0.7)
        optimizer.build([w])

        def step(gradient: tf.Tensor) -> None:
            optimizer.minimize(lambda: tf.reduce_sum(w.value * gradient), var_list=[w])

        compiled = FACES[face](step)
        for _ in range(3):
            compiled(tf.constant(draw.normal(size=(3, 2)), tf.float32))
        return bits([w])

    assert clipped_run(1.0) == clipped_run(2.0**16)


def test_a_norm_that_overflows_is_an_overflow_and_reported() -> None:
    w = keras.Variable([0.0, 0.0], name="w")
    optimizer = scaled("dynamic", clip_norm=2.5)
    optimizer.apply([tf.constant([3.0, 4.0])], [w])
    assert w.numpy().tolist() == [-0.1875, -0.25]
    assert (optimizer.last_step.norm, optimizer.last_step.clip_factor) == (5, 0.5)
    optimizer.apply([tf.constant([1e30, 4.0])], [w])
    assert optimizer.last_step.norm == np.inf and not optimizer.last_step.applied
    assert float(optimizer.loss_scale) == 2.0**14


# Nests


@pytest.mark.parametrize("outside", [False, True], ids=["around", "inside"])
def test_it_works_around_and_inside_a_multitask_wrapper(outside: bool) -> None:
    w, z = keras.Variable([1.0]), keras.Variable([1.0])
    if outside:
        optimizer: Any = MultitaskOptimizerWrapper(scaled(64.0))
    else:
        optimizer = MixedPrecisionLossScaleOptimizer(
            MultitaskOptimizerWrapper(momentum()), 64.0
        )
    step = stepper(optimizer, [w, z], "function")
    step([[1.0], [1.0]])
    moved = z.numpy().tolist()
    step([[1.0], [0.0]])
    assert z.numpy().tolist() == moved
    before = bits([w, z, *optimizer.inner_optimizer.variables])
    if not outside:
        step([[NAN], [0.0]])
        assert bits([w, z, *optimizer.inner_optimizer.variables]) == before


def test_row_clipping_inside_is_skipped_with_the_step() -> None:
    w = keras.Variable([[3.0, 4.0]], name="w")
    inner = VariableClippingOptimizer(momentum(), {"w": [1]}, 2.5)
    optimizer = MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    optimizer.apply([tf.constant([[NAN, 0.0]])], [w])
    assert w.numpy().tolist() == [[3.0, 4.0]]
    optimizer.apply([tf.zeros([1, 2])], [w])
    assert w.numpy().tolist() == [[1.5, 2.0]]
    assert "1 of 1 rows clipped; loss scale" in optimizer.last_step.reason


def test_duplicate_rows_that_overflow_when_summed_are_an_overflow() -> None:
    table = keras.Variable(np.ones((4, 1), np.float32))
    optimizer = scaled()
    values, rows = tf.constant([[3e38], [3e38]]), tf.constant([1, 1])
    optimizer.apply([tf.IndexedSlices(values, rows, tf.constant([4, 1]))], [table])
    assert not optimizer.last_step.applied
    assert table.numpy().ravel().tolist() == [1, 1, 1, 1]


# A stall


def test_a_stall_warns_once_or_raises() -> None:
    w, nan = keras.Variable([1.0], name="w"), [tf.constant([NAN])]
    optimizer = scaled(DynamicLossScale(2.0), floor_patience=3)
    for _ in range(2):
        optimizer.apply(nan, [w])
    with pytest.warns(UserWarning, match="3 skipped in a row at loss scale 1.*: w;"):
        optimizer.apply(nan, [w])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply(nan, [w])
    raising = scaled(8.0, at_floor="raise", floor_patience=1)
    with pytest.raises(errors.ScaleStalledError, match="not finite: w"):
        raising.apply(nan, [w])


def test_a_stall_in_fit_raises_and_names_the_tensors() -> None:
    optimizer = scaled(DynamicLossScale(2.0), at_floor="raise", floor_patience=5)
    model = model_with(optimizer, jit_compile=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"5 skipped in a row at loss scale 1, not finite: .*kernel",
    ):
        fit(model, X * np.float32(NAN), epochs=9)
    assert int(optimizer.skipped_in_a_row) == 5


@pytest.mark.parametrize("at_floor", ["warn", "ignore"])
def test_a_stall_in_fit_is_printed_once_or_ignored(at_floor: str, capfd: Any) -> None:
    optimizer = scaled(2.0, at_floor=at_floor, floor_patience=3)
    fit(model_with(optimizer, jit_compile=False), X * np.float32(NAN), epochs=3)
    told = capfd.readouterr().err.count("3 skipped in a row at loss scale 2")
    assert told == (1 if at_floor == "warn" else 0)
    assert int(optimizer.skipped_in_a_row) == 9


def test_under_xla_a_stall_is_only_counted() -> None:
    optimizer = scaled(2.0, at_floor="raise", floor_patience=2)
    fit(model_with(optimizer, jit_compile=True), X * np.float32(NAN))
    assert int(optimizer.skipped_in_a_row) == 3


# The scales by themselves

OPTIONS: list[dict[str, Any]] = [
    {},
    {"growth_factor": 1.7, "backoff_factor": 0.3, "floor": 1e-3},
    {"multiplier": 3.0, "ceiling": 2.0**20},
    {"hysteresis": 4, "backoff_factor": 0.5},
    {"tolerance": 1 / 3, "growth_factor": 4.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_200_random_steps_move_the_scale_as_in_the_reference(
    options: dict[str, Any],
) -> None:
    ours = DynamicLossScale(2.0**10, 3, **options)
    theirs = reference.DynamicLossScale(2.0**10, 3, **options)
    # Eagerly: the rewriting of graphs divides by 3 as if it multiplied by 1/3.
    moved = set()
    for overflows in np.random.default_rng(len(str(options))).random(200) < 0.3:
        ours.update([tf.constant([np.inf if overflows else 1.0])])
        theirs.move(not overflows)
        found = [np.asarray(variable).item() for variable in ours.variables]
        assert found == [part.item() for part in theirs.variables()]
        moved.add(float(theirs()))
    assert len(moved) > 3


ALGORITHMS = {
    "backoff": {"scale_max": 1024.0, "step_window": 3},
    "logmax": {"beta1": 0.9, "beta2": 0.99, "scale_max": 2.0**20, "log_max": 15.0},
}


@each_face
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_scaler_equals_the_reference(face: str, algorithm: str) -> None:
    theirs = reference.AutomaticLossScaler(algorithm, ALGORITHMS[algorithm])
    ours = AutomaticLossScaler(algorithm, ALGORITHMS[algorithm])
    step = FACES[face](ours.update_op)
    for amax in [3, 0.01, 0.5, np.inf, 2, 7, 0.25, 1, -np.inf, 9, 0, 4, np.nan, 1]:
        amax = np.float32(amax)
        count = step(tf.constant(False), tf.constant(amax))
        assert int(count) == theirs.update_op(False, amax)
        for name, expected in theirs.state.items():
            got = np.asarray(ours.state[name])
            # log and exp are rounded differently, and the error of a logarithm of
            # about 16 is that many times larger in the scale.
            np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("names", [lockstep.keras3, strict], ids=["default", "strict"])
def test_a_configuration_makes_the_same_object(names: Any) -> None:
    scales = [names.FixedLossScale(3), names.DynamicLossScale(8.0, 3, 4.0)]
    scales += [DynamicLossScale(8.0, **options) for options in OPTIONS]
    for made in [*scales, names.AutomaticLossScaler("LogMax", {"beta1": 0.5})]:
        config = keras.saving.serialize_keras_object(made)
        again = keras.saving.deserialize_keras_object(config)
        assert type(again) is type(made) and again.get_config() == made.get_config()
        assert again.strict == made.strict
    for scale in (4, "dynamic", scales[1]):
        nest = MultitaskOptimizerWrapper(
            names.MixedPrecisionLossScaleOptimizer(momentum(), scale)
        )
        again = type(nest).from_config(nest.get_config())
        assert again.get_config() == nest.get_config()
        assert repr(again.inner_optimizer.scale_object) == repr(
            nest.inner_optimizer.scale_object
        )


# Files

TRAIN = """
import sys, keras, numpy as np
from lockstep.keras3 import *
path, resumes = sys.argv[1], int(sys.argv[2])
x = np.random.RandomState(0).randn(12, 3).astype(np.float32)
y = x[:, :1].copy()
x[5] = np.inf
def fit():
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    print(float(model.optimizer.loss_scale))
if resumes:
    model = keras.models.load_model(path)
else:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    inner = MultitaskOptimizerWrapper(keras.optimizers.Adam(0.1))
    scale = DynamicLossScale(64.0, 4, hysteresis=2)
    opt = MixedPrecisionLossScaleOptimizer(inner, scale, clip_norm=0.5)
    model.compile(opt, "mse", jit_compile=False)
    fit()
    model.save(path)
fit()
for variable in [*model.variables, *model.optimizer.variables]:
    print(np.asarray(variable.numpy()).tobytes().hex())
"""


def child(script: str, *arguments: Any) -> list[str]:
    """Run a script in a fresh process and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(lockstep.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_a_saved_model_goes_on_to_the_bit_in_a_fresh_process(tmp_path: Path) -> None:
    first, *whole = child(TRAIN, tmp_path / "model.keras", 0)
    assert child(TRAIN, tmp_path / "model.keras", 1) == whole
    # The second overflow lowered the scale, since the first was in the file.
    assert (first, whole[0]) == ("64.0", "32.0")
    # Weights, scale, three counts, skips, counter, rate, two slots of each weight.
    assert len(whole) == 1 + 2 + 1 + 3 + 1 + 2 + 4


def test_a_checkpoint_of_tensorflow_has_the_state_of_scales(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any, tf.train.Checkpoint]:
        scale, scaler = DynamicLossScale(hysteresis=5), AutomaticLossScaler("LogMax")
        return scale, scaler, tf.train.Checkpoint(scale=scale, scaler=scaler)

    scale, scaler, checkpoint = made()
    for _ in range(3):
        scale.update([tf.constant([NAN])])
        scaler.update_op(*scaler.check_grads([(tf.constant([0.5]), "w")]))
    path = checkpoint.write(str(tmp_path / "three"))
    again, other, checkpoint = made()
    checkpoint.read(path).assert_existing_objects_matched()
    assert bits(again.variables) == bits(scale.variables)
    assert bits(other.state.values()) == bits(scaler.state.values())
    assert int(again.overflows) == int(other.state["iteration"]) == 3


# Bad input

W = keras.Variable([1.0], name="w")
REFUSED: dict[str, tuple[Callable[[], Any], type, str]] = {
    "too small": (lambda: FixedLossScale(0.5), ValueError, ">= 1, got 0.5"),
    "a negative scale": (lambda: DynamicLossScale(-1.0), ValueError, "> 0"),
    "patience": (lambda: DynamicLossScale(hysteresis=0), ValueError, "an int >= 1"),
    "an option": (
        lambda: DynamicLossScale(strict=True, tolerance=0.5),
        ValueError,
        "no tolerance under strict",
    ),
    "a word": (lambda: scaled("foo"), ValueError, "'dynamic'"),
    "None": (lambda: scaled(None), TypeError, "got None"),
    "no optimizer": (
        lambda: MixedPrecisionLossScaleOptimizer(3, 2.0),
        ValueError,
        "got int",
    ),
    "a class": (
        lambda: MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD, 2.0),
        ValueError,
        "pass an instance",
    ),
    "a floor rule": (lambda: scaled(2.0, at_floor="stop"), ValueError, "'warn' or"),
    "a norm": (lambda: scaled(2.0, clip_norm=0.0), ValueError, "clip_norm"),
    "an algorithm": (lambda: AutomaticLossScaler("Backof"), ValueError, "Backoff"),
    "integer gradients": (
        lambda: DynamicLossScale().update([tf.constant([1])]),
        TypeError,
        "floating-point",
    ),
    "several dtypes": (
        lambda: AutomaticLossScaler.check_grads(
            [(tf.ones(1), W), (tf.ones(1, tf.float16), W)]
        ),
        TypeError,
        "one dtype",
    ),
    "nothing to apply": (lambda: scaled().apply_gradients([]), ValueError, "at least"),
    "all absent": (lambda: scaled().apply([None], [W]), ValueError, "at least one"),
    "a tensor": (lambda: scaled().minimize(tf.ones([])), RuntimeError, "a callable"),
    "rows without a shape": (
        lambda: strict.DynamicLossScale().update(
            [tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))]
        ),
        ValueError,
        "dense shape",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_a_sentence(case: str) -> None:
    make, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        make()
    assert isinstance(caught.value, errors.LockstepError)
