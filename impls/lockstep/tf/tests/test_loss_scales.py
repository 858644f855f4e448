"""Loss scales alone: against the reference, in checkpoints, as old code reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import errors, reference
from lockstep.tf import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    strict,
)

Hosts = Callable[..., Any]

v1 = tf.compat.v1
INF, NAN = float("inf"), float("nan")
GOOD, BAD = np.ones(1, np.float32), np.full(1, np.inf, np.float32)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"growth_factor": 1.7, "backoff_factor": 0.3, "floor": 1e-3},
    {"multiplier": 3.0, "ceiling": 2.0**20},
    {"hysteresis": 2},
    {"hysteresis": 4, "backoff_factor": 0.5},
    {"tolerance": 0.25},
    {"tolerance": 1 / 3, "growth_factor": 4.0},
]


def scaled_by(scale: Any) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(1.0), scale)


@pytest.mark.sample(8)
@pytest.mark.parametrize("count", [pytest.param(200, marks=pytest.mark.soak), 60])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_random_steps_move_the_scale_as_in_the_reference(
    new_driver: Hosts, options: dict[str, Any], count: int
) -> None:
    driver = new_driver()
    ours = DynamicLossScale(2.0**10, 3, **options)
    theirs = reference.DynamicLossScale(2.0**10, 3, **options)
    step = driver.compile(lambda gradients: list(ours.update(gradients)))
    moved = set()
    for overflows in np.random.default_rng(len(str(options))).random(count) < 0.3:
        step([BAD if overflows else GOOD])
        theirs.move(not overflows)
        found = [driver.read(variable) for variable in ours.variables]
        assert found == list(theirs.state)[: len(found)]
        moved.add(float(theirs()))
    assert len(moved) > 3


def test_a_configuration_makes_the_same_scale(names: Any) -> None:
    scales = [names.FixedLossScale(3), names.DynamicLossScale(8.0, 3, 4.0)]
    for scale in scales + [DynamicLossScale(8.0, 3, **options) for options in OPTIONS]:
        again = type(scale).from_config(scale.get_config())
        assert repr(again) == repr(scale) and float(again()) == float(scale())
        assert scaled_by(scale).scale_object is scale
    assert isinstance(scaled_by("dynamic").scale_object, DynamicLossScale)
    assert len(DynamicLossScale().variables) == 2


def test_the_scale_stays_finite_under_zero_gradients(new_driver: Hosts) -> None:
    driver = new_driver()
    scale = DynamicLossScale(2.0**15, increment_period=1)
    step = driver.compile(lambda g: list(scale.update(g)))
    for _ in range(300):
        step([np.zeros(2, np.float32)])
    assert driver.read(scale()) == 2.0**127


ALGORITHMS = {
    "backoff": {"scale_max": 1024.0, "step_window": 3},
    "logmax": {"beta1": 0.9, "beta2": 0.99, "scale_max": 2.0**20, "log_max": 15.0},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_scaler_equals_the_reference(
    new_driver: Hosts, names: Any, algorithm: str
) -> None:
    driver = new_driver(names)
    oracle = drivers.load("reference", strict=names is strict).names
    theirs = oracle.AutomaticLossScaler(algorithm, ALGORITHMS[algorithm])
    ours = names.AutomaticLossScaler(algorithm, ALGORITHMS[algorithm])
    step = driver.compile(lambda given: ours.update_op(*given))
    for amax in [3, 0.01, 0.5, np.inf, 2, 7, 0.25, 1, -np.inf, 9, 0, 4, np.nan, 1]:
        amax = np.float32(amax)
        assert step([np.array(False), amax]) == theirs.update_op(False, amax)
        for name, expected in theirs.state.items():
            got = driver.read(ours.state[name])
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_strict_logmax_refuses_a_largest_gradient_in_half_precision(
    names: Any, algorithm: str
) -> None:
    scaler = names.AutomaticLossScaler(algorithm, ALGORITHMS[algorithm])
    update = tf.constant(False), tf.constant(2.0, tf.float16)
    if names is strict and algorithm == "logmax":
        with pytest.raises(errors.DtypeError, match="float16"):
            scaler.update_op(*update)
    else:
        assert scaler.update_op(*update) == 1


ROWS = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "too small": (lambda: FixedLossScale(0.5), errors.OutOfRangeError),
    "a string": (lambda: FixedLossScale("4"), errors.OutOfRangeError),
    "strict, too small": (lambda: strict.FixedLossScale(0.5), errors.OutOfRangeError),
    "strict, a string": (lambda: strict.FixedLossScale("4"), errors.OutOfRangeError),
    "a negative scale": (lambda: DynamicLossScale(-1.0), errors.OutOfRangeError),
    "NaN": (lambda: DynamicLossScale(NAN), errors.OutOfRangeError),
    "no period": (lambda: DynamicLossScale(1.0, 0), errors.OutOfRangeError),
    "no growth": (lambda: DynamicLossScale(1.0, 1, 1.0), errors.OutOfRangeError),
    "a high floor": (lambda: DynamicLossScale(2.0, floor=4.0), errors.OutOfRangeError),
    "two options": (
        lambda: DynamicLossScale(hysteresis=2, tolerance=0.5),
        errors.OutOfRangeError,
    ),
    "a strict option": (lambda: DynamicLossScale(strict=True, floor=2.0), TypeError),
    "a scaler": (lambda: scaled_by(AutomaticLossScaler()), errors.UnknownNameError),
    "a text": (
        lambda: AutomaticLossScaler("LogMax", {"log_max": "16"}),
        errors.OutOfRangeError,
    ),
    "integer gradients": (
        lambda: DynamicLossScale().update([tf.constant([1])]),
        errors.DtypeError,
    ),
    "several dtypes": (
        lambda: AutomaticLossScaler.check_grads(
            [(tf.ones(1), "a"), (tf.ones(1, tf.float16), "b")]
        ),
        errors.DtypeError,
    ),
    "rows without a shape": (
        lambda: strict.DynamicLossScale().update([ROWS]),
        errors.UnsupportedError,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused(case: str) -> None:
    make, error = REFUSED[case]
    with pytest.raises(error):
        make()


class Doubling(DynamicLossScale):
    __module__ = "users"


def test_by_default_a_sparse_gradient_needs_no_shape() -> None:
    assert DynamicLossScale(8.0).update([ROWS])[1]


def test_the_keyword_strict_makes_the_strict_class() -> None:
    assert type(DynamicLossScale(8.0, strict=True)) is strict.DynamicLossScale
    assert type(FixedLossScale(INF, strict=True)) is strict.FixedLossScale
    with pytest.raises(errors.UnsupportedError, match=r"tf\.strict\.DynamicLossScale"):
        Doubling(strict=True)


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
                [(tf.identity(op), finite) for op, finite in updates], {gradient: value}
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
