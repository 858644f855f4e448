"""Laws of float32 masters, in every mode that can share a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.tf import (
    AdamOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    GradientDescentOptimizer,
    MixedPrecisionOptimizerWrapper,
    MomentumOptimizer,
    mp_regularizer_wrapper,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.masters.models import (
    BRAIN,
    HALF,
    START,
    STEPS,
    Training,
    masters,
)
from lockstep.tf.tests.trajectory import rows

Hosts = Callable[..., Any]
SCALES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "integer": lambda: 128,
    "numpy": lambda: np.float32(128),
    "fixed": lambda: FixedLossScale(128),
    "dynamic": lambda: "dynamic",
    "dynamic_object": lambda: DynamicLossScale(128.0, 3),
    "backoff": lambda: AutomaticLossScaler("Backoff", {"scale_max": 128.0}),
    "logmax": lambda: AutomaticLossScaler("LogMax"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("scale", SCALES)
def test_each_kind_of_scale_trains_the_masters_as_float32_would(
    new_driver: Hosts, scale: str
) -> None:
    powers = [np.sign(step) * 2.0**-3 for step in STEPS]
    run = Training(new_driver(), masters(SCALES[scale]()), START.astype(HALF))
    for gradient in powers:
        run.step([gradient.astype(HALF)])
    found = run.masters()[0]
    driver = new_driver()
    w = driver.variable("w", START.astype(HALF).astype(np.float32))
    bare = driver.optimizer("Adam", {"learning_rate": 0.01}, [w])
    step = driver.compile(lambda g: bare.apply_gradients([(g[0], w)]))
    for gradient in powers:
        step([gradient.astype(np.float32)])
    assert found.tobytes() == driver.read(w).tobytes()


@pytest.mark.sample(2)
def test_float16_and_bfloat16_have_masters_and_wider_ones_are_their_own(
    new_driver: Hosts,
) -> None:
    kinds = [HALF, BRAIN, np.float32, np.float64]
    run = Training(new_driver(), masters(8.0), *[START.astype(kind) for kind in kinds])
    for gradient in STEPS:
        _, *unscaled = run.step([gradient.astype(kind) for kind in kinds])
    widths = [np.float32, np.float32, np.float32, np.float64]
    assert [gradient.dtype for gradient in unscaled] == widths
    half, brain, *own = run.masters()
    model = [run.driver.read(variable) for variable in run.variables]
    assert model[0].tobytes() == half.astype(HALF).tobytes()
    assert model[1].tobytes() == brain.astype(BRAIN).tobytes()
    assert [m.tobytes() for m in own] == [m.tobytes() for m in model[2:]]
    assert len(run.wrapper.masters) == 2


@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=["float16", "bfloat16"])
def test_a_master_beyond_the_model_is_clamped_and_returns(
    new_driver: Hosts, dtype: Any
) -> None:
    driver = new_driver()
    largest = float(tf.as_dtype(dtype).max)
    w = driver.variable("w", np.array([largest, -largest, 1], dtype))
    base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base)
    step = driver.compile(
        lambda g: wrapper.apply_gradients([(g[0], wrapper.master(w))])
    )
    beyond = np.float32([-largest / 512, largest / 512, 0])
    step([beyond])
    assert driver.read(w).astype(np.float32).tolist() == [largest, -largest, 1]
    step([-beyond])
    assert driver.read(wrapper.master(w)).tolist() == [largest, -largest, 1]


@pytest.mark.sample(5)
@pytest.mark.parametrize("scale", ["integer", "dynamic_object", "backoff"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_that_is_not_finite_changes_no_bit(
    new_driver: Hosts, scale: str, bad: float
) -> None:
    values = START.astype(HALF), START
    run = Training(new_driver(), masters(SCALES[scale]()), *values)
    run.step([STEPS[0].astype(HALF), STEPS[1]])
    before = run.state()
    for position in (0, 1):
        gradients = [STEPS[2].astype(HALF), STEPS[3].copy()]
        gradients[position][1, 1] = bad
        run.step(gradients)
        assert run.state() == before
    run.step([STEPS[0].astype(HALF), STEPS[1]])
    assert run.state() != before


def test_a_scaled_gradient_that_overflows_float16_backs_the_scale_off(
    new_driver: Hosts,
) -> None:
    driver = new_driver()
    scale = DynamicLossScale(2.0**20, 1000, 2.0)
    run = Training(driver, masters(scale), START.astype(HALF))
    for _ in range(8):
        run.step([np.ones((3, 2), HALF)])
    assert run.driver.read(run.wrapper.loss_scale) == 2.0**15
    assert run.driver.read(run.counter) == 3


def test_an_absent_gradient_leaves_its_variable_alone(new_driver: Hosts) -> None:
    run = Training(new_driver(), masters(8.0), START.astype(HALF), START.astype(HALF))
    run.step([STEPS[0].astype(HALF), None])
    untouched, master = run.driver.read(run.variables[1]), run.masters()[1]
    assert untouched.tobytes() == START.astype(HALF).tobytes()
    assert master.tobytes() == START.astype(HALF).astype(np.float32).tobytes()
    assert run.masters()[0].tobytes() != master.tobytes()


def test_a_sparse_gradient_stays_sparse(new_driver: Hosts) -> None:
    run = Training(new_driver(), masters(8.0), START.astype(HALF))
    given = rows([2, 0, 2], [[1, -2], [3, 0.5], [-0.25, 4]], 3, 2)
    _, found = run.step([given._replace(values=given.values.astype(HALF))])
    assert found.indices.tolist() == [2, 0, 2]
    assert found.values.dtype == np.float32
    assert found.values.tolist() == given.values.tolist()


@pytest.mark.sample(4)
@pytest.mark.parametrize("scale", ["integer", "dynamic", "backoff"])
def test_duplicate_rows_that_overflow_when_summed_are_not_finite(
    new_driver: Hosts, scale: str
) -> None:
    driver = new_driver()
    w = driver.variable("w", START)
    base = driver.optimizer("Adam", {}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base, SCALES[scale]())
    step = driver.compile(lambda g: wrapper.apply_gradients([(g[0], w)]))
    step([rows([1, 1], [[3e38, 1], [3e38, 1]], 3, 2)])
    assert driver.read(w).tobytes() == START.tobytes()


def test_gradients_of_the_model_are_taken_to_the_masters(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.array([1, 2], HALF))
    base = driver.optimizer("GradientDescent", {"learning_rate": 2.0**-12}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base)
    step = driver.compile(lambda g: wrapper.apply_gradients([(g[0], w)]))
    for _ in range(3):
        step([np.ones(2, HALF)])
    assert driver.read(wrapper.master(w)).tolist() == [1 - 3 * 2**-12, 2 - 3 * 2**-12]
    # A float16 variable would not have moved: each step is half a unit of it.
    assert driver.read(w).tolist() == [1 - 2**-10, 2 - 2**-10]


def test_clip_norm_bounds_the_unscaled_gradients_and_leaves_short_ones(
    new_driver: Hosts,
) -> None:
    def moved(gradient: list[float]) -> list[float]:
        driver = new_driver()
        w = driver.variable("w", np.zeros(2, HALF))
        base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
        wrapper = MixedPrecisionOptimizerWrapper(base, 64.0, clip_norm=2.5)

        def train(given: list[Any]) -> Any:
            loss = driver.linear_loss([w], given)
            return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

        driver.compile(train)([np.array(gradient, HALF)])
        return driver.read(wrapper.master(w)).tolist()

    assert moved([3, -4]) == [-1.5, 2]
    assert moved([1.5, -1.25]) == [-1.5, 1.25]


def test_a_norm_of_exactly_the_limit_is_not_clipped() -> None:
    w = tf.Variable([0.0])
    wrapper = masters(1.0, clip_norm=41.0)(GradientDescentOptimizer(1.0))
    wrapper.apply_gradients([(tf.constant([41.0]), w)])
    # In float32 41 (1 / 41) is not 1.
    assert w.numpy().tolist() == [-41]


@pytest.mark.sample(1)
def test_a_norm_that_overflows_skips_the_step(new_driver: Hosts) -> None:
    run = Training(new_driver(), masters(1.0, clip_norm=1.0), START)
    run.step([STEPS[0]])
    before = run.state()
    run.step([np.full((3, 2), 3e38, np.float32)])
    assert run.state() == before


def test_logmax_moves_by_the_largest_magnitude_that_was_applied() -> None:
    scaler, alone = AutomaticLossScaler("LogMax"), AutomaticLossScaler("LogMax")
    w, b = tf.Variable(START, dtype=tf.float16), tf.Variable([1.0])
    wrapper = MixedPrecisionOptimizerWrapper(MomentumOptimizer(0.1, 0.9), scaler)
    for largest in (0.25, 3.0):
        gradient = tf.fill([3, 2], tf.constant(-largest, tf.float16))
        wrapper.apply_gradients([(gradient, w), (None, b)])
        alone.update_op(tf.constant(False), tf.constant(largest))
        assert float(scaler.loss_scale) == float(alone.loss_scale)


def test_slots_and_variables_reach_through() -> None:
    w = tf.Variable(START, dtype=tf.float16)
    scaler = AutomaticLossScaler()
    wrapper = MixedPrecisionOptimizerWrapper(MomentumOptimizer(0.1, 0.9), scaler)
    wrapper.apply_gradients([(tf.ones([3, 2], tf.float16), w)])
    slot = wrapper.get_slot(w, "momentum")
    assert slot.dtype == tf.float32 and slot is wrapper.get_slot(
        wrapper.master(w), "momentum"
    )
    known = {variable.ref() for variable in wrapper.variables()}
    counted = wrapper._skips.variable
    wanted = [wrapper.master(w), slot, *scaler.state.values(), counted]
    assert known == {variable.ref() for variable in wanted}
    assert wrapper.get_name() == "Momentum-MP"


def test_strict_sees_neither_slots_nor_variables() -> None:
    w = tf.Variable(START, dtype=tf.float16)
    inner = MomentumOptimizer(0.1, 0.9)
    wrapper = lockstep_strict.MixedPrecisionOptimizerWrapper(inner, 2.0)
    wrapper.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert wrapper.variables() == wrapper.get_slot_names() == []
    assert wrapper.get_slot(wrapper.master(w), "momentum") is None
    assert inner.get_slot(wrapper.master(w), "momentum") is not None


def test_nothing_is_traced_after_the_second_call() -> None:
    traces = []
    w = tf.Variable(START, dtype=tf.float16)
    scaler = AutomaticLossScaler("Backoff")
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), scaler, clip_norm=1.0)

    @tf.function
    def train(x: tf.Tensor) -> None:
        traces.append(x)
        wrapper.minimize(lambda: tf.reduce_sum(tf.cast(w, tf.float32) * x), None, [w])

    for step in STEPS:
        train(tf.constant(step))
    assert len(traces) <= 2
    assert len(wrapper.masters) == 1


def test_masters_follow_weights_that_are_loaded_into_the_model(
    new_driver: Hosts,
) -> None:
    run = Training(new_driver(), masters(8.0), START.astype(HALF))
    run.step([STEPS[0].astype(HALF)])
    before, loaded = run.masters()[0], run.driver.read(run.variables[0])
    loaded[1] += 1
    write = run.variables[0].assign(loaded, read_value=False)
    if run.driver.mode == "graph":
        run.driver.run(write)
    run.step([np.full((3, 2), np.inf, HALF)])
    expected = before.copy()
    expected[1] = loaded[1]
    assert run.masters()[0].tobytes() == expected.tobytes()
    run.step([STEPS[1].astype(HALF)])
    assert np.abs(run.driver.read(run.variables[0]) - loaded).max() < 0.02


def test_keras_variables_and_references_are_understood() -> None:
    keras = pytest.importorskip("keras", reason="needs Keras")
    w = keras.Variable(START.astype(HALF), dtype="float16", name="w")
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), 8.0)
    mp_regularizer_wrapper(tf.nn.l2_loss)(w)
    pairs = wrapper.compute_gradients(
        lambda: tf.reduce_sum(tf.cast(w.value, tf.float32)), [w]
    )
    wrapper.apply_gradients(pairs)
    assert wrapper.master(w) is wrapper.master(w.value.ref()) is pairs[0][1]
    expected = np.asarray(w).astype(np.float32)
    assert wrapper.master(w).numpy().astype(HALF).tolist() == expected.tolist()
