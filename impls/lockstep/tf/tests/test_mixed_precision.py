"""Laws of float32 masters, in every mode that can share a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.tests.shared_processes import TWO_DEVICES
from lockstep import errors
from lockstep.tf import (
    AdamOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    mp_regularizer_wrapper,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import rows

Hosts = Callable[..., Any]

HALF, BRAIN = np.float16, tf.bfloat16.as_numpy_dtype
RANDOM = np.random.default_rng(5)
START = RANDOM.normal(size=(3, 2)).astype(np.float32)
STEPS = [RANDOM.normal(size=(3, 2)).astype(np.float32) for _ in range(4)]


class Training:
    """A wrapper at work on some variables of one driver."""

    def __init__(self, driver: Any, wrap: Callable[[Any], Any], *values: Any) -> None:
        self.driver = driver
        self.variables = [driver.variable(f"w{i}", v) for i, v in enumerate(values)]
        self.counter = driver.counter()
        self.base = driver.optimizer("Adam", {"learning_rate": 0.01}, self.variables)
        self.wrapper = wrap(self.base)
        self.traces = 0
        self.step = driver.compile(self.train)

    def train(self, gradients: list[Any]) -> Any:
        self.traces += 1
        loss = self.driver.linear_loss(self.variables, gradients)
        pairs = self.wrapper.compute_gradients(loss, self.variables)
        applied = self.wrapper.apply_gradients(pairs, self.counter)
        return [applied, *[gradient for gradient, _ in pairs]]

    def masters(self) -> list[Any]:
        return [self.driver.read(self.wrapper.master(v)) for v in self.variables]

    def state(self) -> list[bytes]:
        """Return the bits of everything that a step may change but the scale."""
        owned = [self.wrapper.master(variable) for variable in self.variables]
        parts = [self.driver.read(v) for v in (*self.variables, *owned, self.counter)]
        parts += [self.driver.slot(self.base, m, s) for m in owned for s in ("m", "v")]
        parts += self.driver.shared(self.base).values()
        return [part.tobytes() for part in parts]


def masters(loss_scale: Any = None, **arguments: Any) -> Callable[[Any], Any]:
    """Wrap with masters."""
    return lambda opt: MixedPrecisionOptimizerWrapper(opt, loss_scale, **arguments)


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


def test_logmax_moves_by_the_largest_magnitude_that_was_applied() -> None:
    scaler, alone = AutomaticLossScaler("LogMax"), AutomaticLossScaler("LogMax")
    w, b = tf.Variable(START, dtype=tf.float16), tf.Variable([1.0])
    wrapper = MixedPrecisionOptimizerWrapper(MomentumOptimizer(0.1, 0.9), scaler)
    for largest in (0.25, 3.0):
        gradient = tf.fill([3, 2], tf.constant(-largest, tf.float16))
        wrapper.apply_gradients([(gradient, w), (None, b)])
        alone.update_op(tf.constant(False), tf.constant(largest))
        assert float(scaler.loss_scale) == float(alone.loss_scale)


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


@pytest.mark.parametrize(
    "wrapped", [MixedPrecisionOptimizerWrapper, MixedPrecisionLossScaleOptimizer]
)
def test_a_multitask_wrapper_around_does_not_claim_a_skipped_step(wrapped: Any) -> None:
    w, v = tf.Variable([1.0], name="w"), tf.Variable([1.0], name="v")
    opt = MultitaskOptimizerWrapper(wrapped(GradientDescentOptimizer(0.5), 2.0))
    opt.apply_gradients([(tf.constant([np.inf]), w), (tf.constant([0.0]), v)])
    assert not opt.last_step.applied
    assert set(opt.last_step.skipped) == {"w", "v"}
    assert opt.last_step.nonfinite == ("w",)
    assert "skipped, not finite: w" in opt.last_step.reason
    opt.apply_gradients([(tf.constant([1.0]), w), (tf.constant([0.0]), v)])
    assert opt.last_step == (True, "of 2 gradients 1 all zero", ("v",))


def test_row_clipping_around_masters_is_refused() -> None:
    half = tf.Variable(START, dtype=tf.float16, name="half")
    wide = tf.Variable(START)
    inner = MultitaskOptimizerWrapper(masters(8.0)(GradientDescentOptimizer(1.0)))
    with pytest.raises(errors.UnsupportedError, match="'half' itself"):
        VariableClippingOptimizer(inner, {half.ref(): [1]}, 1.0)
    VariableClippingOptimizer(inner, {wide.ref(): [1]}, 1.0)


def test_row_clipping_inside_limits_master_and_model(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.array([[3, 4], [0.25, 0.5]], HALF))
    base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    inner = VariableClippingOptimizer(base, {driver.key(w): [1]}, 2.5)
    wrapper = MixedPrecisionOptimizerWrapper(inner, 8.0)

    def train(given: list[Any]) -> Any:
        loss = driver.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    driver.compile(train)([np.zeros((2, 2), HALF)])
    assert driver.read(wrapper.master(w)).tolist() == [[1.5, 2], [0.25, 0.5]]
    assert driver.read(w).tolist() == [[1.5, 2], [0.25, 0.5]]


def test_the_report_names_the_model_and_what_was_not_finite() -> None:
    half = tf.Variable([1.0], dtype=tf.float16, name="half")
    wide = tf.Variable([1.0], name="wide")
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), 8, clip_norm=5.0)
    wrapper.minimize(lambda: 3.0 * wide[0] + 4.0 * tf.cast(half[0], tf.float32))
    assert wrapper.last_step.applied and wrapper.last_step.norm == 5.0
    assert wrapper.last_step.clip_factor == 1.0
    wrapper.minimize(lambda: wide[0] + np.inf * tf.cast(half[0], tf.float32))
    report = wrapper.last_step
    assert not report.applied and report.nonfinite == ("half",)
    assert report.reason == "skipped, not finite: half; loss scale 8"
    assert report.skipped == ("half", "wide")
    wrapper.apply_gradients([(tf.constant([3e38]), wide)])
    assert "the norm of all gradients" in wrapper.last_step.reason


STALLS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 8.0,
    "a floor": lambda: DynamicLossScale(1.0),
    "a scaler": lambda: AutomaticLossScaler("Backoff", {"scale_min": 2.0**14}),
}


@pytest.mark.parametrize("scale", STALLS)
def test_a_stall_at_the_floor_is_told_in_the_name_of_the_wrapper(scale: str) -> None:
    w = tf.Variable([1.0], dtype=tf.float16, name="w")
    wrapper = masters(STALLS[scale](), at_floor="raise", floor_patience=2)(
        AdamOptimizer()
    )
    wrapper.apply_gradients([(tf.constant([np.inf], tf.float16), w)])
    with pytest.raises(
        errors.ScaleStalledError,
        match=r"^MixedPrecisionOptimizerWrapper: .* 2 skipped in a row .*: w; ",
    ):
        wrapper.apply_gradients([(tf.constant([np.inf], tf.float16), w)])
    wrapper.apply_gradients([(tf.constant([1.0], tf.float16), w)])
    assert int(wrapper.skipped_in_a_row) == 0


BAD = {
    "a number as text": (AdamOptimizer(), "128", {}, errors.UnknownNameError),
    "zero": (AdamOptimizer(), 0, {}, errors.OutOfRangeError),
    "infinity": (AdamOptimizer(), float("inf"), {}, errors.OutOfRangeError),
    "a clip of 0": (AdamOptimizer(), 1.0, {"clip_norm": 0}, errors.OutOfRangeError),
    "strict": (AdamOptimizer(), 1.0, {"strict": True, "clip_norm": 1}, TypeError),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case: str) -> None:
    optimizer, scale, arguments, error = BAD[case]
    with pytest.raises(error):
        MixedPrecisionOptimizerWrapper(optimizer, scale, **arguments)


def test_strict_fails_at_the_first_use_of_a_loss_scale_as_the_original_did() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    base = GradientDescentOptimizer(1.0)
    wrapper = MixedPrecisionOptimizerWrapper(base, FixedLossScale(8.0), strict=True)
    assert type(wrapper) is lockstep_strict.MixedPrecisionOptimizerWrapper
    with pytest.raises(errors.UnusableScaleError):
        wrapper.minimize(lambda: tf.cast(w, tf.float32), var_list=[w])


def test_a_regularizer_is_applied_at_the_master(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.array([1, 2], HALF))
    regularize = mp_regularizer_wrapper(lambda weight: 2.0**-13 * tf.nn.l2_loss(weight))
    assert regularize(w) is None and regularize(w) is None
    base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base, 64.0)

    def train(given: list[Any]) -> Any:
        loss = driver.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    driver.compile(train)([np.zeros(2, HALF)])
    assert driver.read(wrapper.master(w)).tolist() == [1 - 2**-13, 2 - 2**-12]


def test_a_regularizer_alone_trains_a_weight_that_the_loss_leaves_out(
    new_driver: Hosts,
) -> None:
    run = Training(new_driver(), masters(4.0), START.astype(HALF), START.astype(HALF))
    mp_regularizer_wrapper(tf.nn.l2_loss)(run.variables[1])
    _, _, slope = run.step([STEPS[0].astype(HALF), None])
    assert slope.tobytes() == START.astype(HALF).astype(np.float32).tobytes()


def test_of_two_regularizers_of_a_weight_the_last_one_counts() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    half = mp_regularizer_wrapper(lambda weight: 0.5 * weight[0])
    quarter = mp_regularizer_wrapper(lambda weight: 0.25 * weight[0])
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    for regularize, expected in ((half, 0.5), (quarter, 0.25), (half, -0.25)):
        regularize(w)
        wrapper.minimize(lambda: 0.0 * tf.reduce_sum(w), var_list=[w])
        assert w.numpy().tolist() == [expected]


def test_a_graph_follows_weights_also_with_gradients_that_are_float32() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(tf.ones([2], tf.float16), use_resource=True)
        wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0), 8.0)
        gradients = tf.gradients(wrapper.scale_loss(tf.reduce_sum(w)), [w])
        gradients = wrapper.unscale_gradients(gradients)
        done = wrapper.apply_gradients([(gradients[0], w)])
        session.run(v1.global_variables_initializer())
        session.run(w.assign([5.0, 1.0]))
        session.run(done)
        assert session.run(w).tolist() == [4.0, 0.0]


def test_wide_weights_and_tensors_are_regularized_at_once() -> None:
    regularize = mp_regularizer_wrapper(tf.nn.l2_loss)
    assert float(regularize(tf.Variable([3.0, 4.0]))) == 12.5
    assert float(regularize(tf.constant([3.0, 4.0], tf.float16))) == 12.5
    assert lockstep_strict.mp_regularizer_wrapper(tf.nn.l2_loss)(
        tf.Variable([3.0, 4.0], dtype=tf.bfloat16)
    )


@pytest.mark.parametrize("penalty", [None, 1.0])
def test_a_penalty_that_is_none_or_constant_changes_nothing(penalty: Any) -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    mp_regularizer_wrapper(lambda weight: penalty)(w)
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    wrapper.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert w.numpy().tolist() == [0.0]


REPLICAS = """
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    w, b = (tf.Variable([1.0, 2.0], dtype=tf.float16) for _ in range(2))
    opt = ls.MixedPrecisionOptimizerWrapper(ls.GradientDescentOptimizer(0.25), 8.0)
ls.mp_regularizer_wrapper(tf.nn.l2_loss)(w)

@tf.function
def run():
    def step():
        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(opt.scale_loss(b))
        gradient = tape.gradient(loss, b)
        # Only the first replica has a gradient of b.
        has_one = tf.get_static_value(rank) == 0
        pairs = opt.compute_gradients(lambda: tf.reduce_sum(0.0 * w), [w])
        if has_one:
            opt.apply_gradients([*pairs, (tf.ones([2], tf.float16), b)])
        else:
            opt.apply_gradients([*pairs, (None, b)])

    strategy.run(step)

run()
for variable in (w, b):
    copies = strategy.experimental_local_results(variable)
    print([copy.numpy().tolist() for copy in copies])
"""


def test_replicas_count_a_regularizer_once_and_may_lack_a_gradient(
    shared: Callable[..., str],
) -> None:
    regularized, half_present = shared(TWO_DEVICES, REPLICAS).splitlines()
    assert regularized == "[[0.75, 1.5], [0.75, 1.5]]"
    assert half_present == "[[0.75, 1.75], [0.75, 1.75]]"
