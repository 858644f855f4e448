"""Laws of loss scaling, in every mode that can share a process, and in fresh ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from harness.tests.shared_processes import TWO_DEVICES
from lockstep import errors
from lockstep import tf as lockstep_tf
from lockstep.tf import (
    AdamOptimizer,
    DynamicLossScale,
    FixedLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import TOLERANCE, assert_close, draw, replay, rows

Hosts = Callable[..., Any]

NAN = float("nan")
VALUES, *DENSE = draw(8, [(3,), (4, 2)], steps=4)
BAD = [DENSE[1][0] * np.float32("inf"), DENSE[1][1]]
TWICE = rows([2, 0, 2, 2], [[1, -2], [3, 0.5], [-0.25, 4], [0.5, 1]], 4, 2)
HUGE = rows([1, 1], [[3e38, 1], [3e38, 1]], 4, 2)
STEPS = [BAD, DENSE[0], [None, TWICE], [DENSE[1][0], None], BAD, [None, HUGE], DENSE[2]]


def stacked(names: Any, *inside: str) -> Callable[[Any], Any]:
    """Wrap in a dynamic scale, around these."""

    def wrap(opt: Any) -> Any:
        for name in inside:
            opt = getattr(names, name)(opt)
        scale = names.DynamicLossScale(64.0, 2, 2.0)
        return names.MixedPrecisionLossScaleOptimizer(opt, scale)

    return wrap


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", ["Momentum", "Adam", "Adagrad"])
def test_every_step_equals_the_reference(
    new_driver: Hosts, names: Any, rule: str
) -> None:
    oracle = drivers.load("reference", strict=names is lockstep_strict)
    expected = replay(oracle, rule, stacked(oracle.names), VALUES, STEPS)
    got = replay(new_driver(names), rule, stacked(names), VALUES, STEPS)
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))


@pytest.mark.sample(3)
def test_200_overflowing_steps_change_no_bit(new_driver: Hosts, names: Any) -> None:
    driver = new_driver(names)
    w = driver.variable("w", VALUES[1])
    counter, base = driver.counter(), driver.optimizer("Adam", {}, [w])
    wrapper = stacked(names)(base)
    step = driver.compile(lambda g: wrapper.apply_gradients([(g[0], w)], counter))

    def state() -> list[bytes]:
        slots = [driver.slot(wrapper, w, name) for name in ("m", "v")]
        parts = [driver.read(w), driver.read(counter), *slots]
        parts += driver.shared(wrapper).values()
        return [part.tobytes() for part in parts]

    step([DENSE[0][1]])
    before = state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapper, "floor_patience", 1000)
        for _ in range(200):
            step([DENSE[0][1] * np.float32("nan")])
    assert state() == before
    assert driver.read(wrapper.loss_scale) == 1
    step([DENSE[0][1]])
    assert state() != before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_gets_unscaled_gradients(new_driver: Hosts, dtype: str) -> None:
    kind = tf.as_dtype(dtype).as_numpy_dtype
    driver = new_driver()
    w = driver.variable("w", np.array([1, 2], kind))
    base = driver.optimizer("GradientDescent", {"learning_rate": 0.5}, [w])
    wrapper = MixedPrecisionLossScaleOptimizer(base, 2.0**10)

    def step(given: list[Any]) -> Any:
        loss = driver.linear_loss([w], given)
        pairs = wrapper.compute_gradients(loss, [w])
        return [pairs[0][0], wrapper.apply_gradients(pairs)]

    found, _ = driver.compile(step)([np.array([0.5, -1], kind)])
    assert found.dtype == kind and found.tolist() == [0.5, -1]
    assert driver.read(w).tolist() == [0.75, 2.5]


def test_strict_refuses_float16(new_driver: Hosts) -> None:
    driver = new_driver(lockstep_strict)
    w = driver.variable("w", np.ones(2, np.float16))
    base = driver.optimizer("GradientDescent", {"learning_rate": 0.5}, [w])
    wrapper = lockstep_strict.MixedPrecisionLossScaleOptimizer(base, 2.0)
    step = driver.compile(
        lambda g: wrapper.compute_gradients(driver.linear_loss([w], g), [w])[0][0]
    )
    with pytest.raises(TypeError, match="float16"):
        step([np.ones(2, np.float16)])


def test_a_fixed_scale_skips_unless_strict(new_driver: Hosts, names: Any) -> None:
    def wrap(opt: Any) -> Any:
        return names.MixedPrecisionLossScaleOptimizer(opt, 4.0)

    (state,) = replay(new_driver(names), "Momentum", wrap, VALUES, [BAD])
    skipped = names is lockstep_tf
    assert state.global_step == (0 if skipped else 1)
    assert np.isfinite(state.variables[0]).all() == skipped


def scaled(scale: Any, **options: Any) -> MixedPrecisionLossScaleOptimizer:
    """Wrap Momentum in a loss scale."""
    base = MomentumOptimizer(0.1, 0.9)
    return MixedPrecisionLossScaleOptimizer(base, scale, **options)


def test_a_report_names_what_was_not_finite() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    b = tf.Variable([1.0], name="b")
    wrapper = MixedPrecisionLossScaleOptimizer(MomentumOptimizer(0.1, 0.9), "dynamic")
    wrapper.apply_gradients([(tf.constant([1.0, np.nan]), w), (tf.constant([1.0]), b)])
    assert wrapper.last_step.nonfinite == ("w",)
    assert not wrapper.last_step.applied and wrapper.last_step.skipped == ("w", "b")
    assert "32768 -> 16384" in wrapper.last_step.reason
    wrapper.apply_gradients([(tf.constant([1.0, 1.0]), w)])
    assert wrapper.last_step.applied and wrapper.last_step.nonfinite == ()
    assert {v.name.split("/")[-1] for v in wrapper.variables()} >= {"good_steps:0"}


@pytest.mark.parametrize(
    "wrapper", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
def test_an_applied_step_reports_variables_without_gradients(wrapper: Any) -> None:
    a, b = (tf.Variable([1.0], name=name) for name in "ab")
    optimizer = wrapper(GradientDescentOptimizer(0.5), FixedLossScale(8.0))
    optimizer.apply_gradients([(tf.ones(1), a), (None, b)])
    report = optimizer.last_step
    assert report.applied and report.skipped == ("b",)
    assert report.reason == "finite, 1 absent; loss scale 8"


def test_a_report_has_the_norm_and_row_clipping_around_it_hands_it_on() -> None:
    w = tf.Variable([[0.0, 0.0]], name="w")
    inner = scaled(4.0, clip_norm=2.5)
    opt = VariableClippingOptimizer(inner, {w.ref(): [1]}, 1.0)
    opt.apply_gradients([(tf.constant([[3.0, 4.0]]), w)])
    assert (opt.last_step.norm, opt.last_step.clip_factor) == (5, 0.5)
    assert "norm 5 -> 2.5" in opt.last_step.reason
    opt.apply_gradients([(tf.constant([[NAN, 4.0]]), w)])
    assert opt.last_step.nonfinite == ("w",) and opt.last_step.norm is None
    assert "rows clipped" in opt.last_step.reason
    opt.apply_gradients([(tf.constant([[1e30, 4.0]]), w)])
    assert opt.last_step.nonfinite == () and opt.last_step.norm == np.inf
    assert not opt.last_step.applied and opt.last_step.clip_factor is None


def test_an_infinite_limit_only_measures_the_norm() -> None:
    w = tf.Variable([0.0, 0.0])
    opt = scaled(1.0, clip_norm=float("inf"))
    opt.apply_gradients([(tf.constant([3.0, 4.0]), w)])
    assert (opt.last_step.norm, opt.last_step.clip_factor) == (5, 1)
    np.testing.assert_array_equal(w, np.float32([3, 4]) * np.float32(-0.1))


WRAPPERS = [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_a_scale_that_was_never_asked_for_is_warned_of_once(
    wrap: Any, in_function: bool
) -> None:
    w = tf.Variable([1.0])
    opt = wrap(GradientDescentOptimizer(0.5), DynamicLossScale(8.0))

    def step(gradient: tf.Tensor) -> None:
        opt.apply_gradients([(gradient, w)])

    if not in_function:
        step(tf.zeros([1]))  # Distributed checkpoints create state in this way.
    call = tf.function(step) if in_function else step
    with pytest.warns(UserWarning, match="loss scale 8 was never asked for"):
        call(tf.ones([1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(tf.ones([1]))
        other = wrap(GradientDescentOptimizer(0.5), 8.0)
        other.scale_loss(tf.constant(1.0))
        (gradient,) = other.unscale_gradients([tf.ones([1])])
        other.apply_gradients([(gradient, w)])
    assert w.numpy() == [-0.0625]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_names_of_keras_2_lead_to_todays(wrap: Any) -> None:
    opt = wrap(GradientDescentOptimizer(0.5), 8.0)
    with pytest.raises(AttributeError, match="scale_loss"):
        opt.get_scaled_loss(tf.constant(1.0))


def test_the_keyword_strict_makes_the_strict_class() -> None:
    opt = scaled(2.0, strict=True)
    assert type(opt) is lockstep_strict.MixedPrecisionLossScaleOptimizer
    assert opt.variables() == opt.get_slot_names() == []
    assert not hasattr(opt, "skipped_in_a_row")
    with pytest.raises(TypeError, match="clip_norm"):
        scaled(2.0, strict=True, clip_norm=1.0)


def test_a_stall_at_the_floor_warns_once_or_raises() -> None:
    w = tf.Variable([1.0], name="w")
    nan = [(tf.constant([np.nan], tf.float32), w)]
    wrap, base = MixedPrecisionLossScaleOptimizer, MomentumOptimizer(0.1, 0.9)
    warning = wrap(base, DynamicLossScale(2.0), floor_patience=3)
    for _ in range(2):
        warning.apply_gradients(nan)
    with pytest.warns(UserWarning, match="3 skipped in a row at loss scale 1.*: w;"):
        warning.apply_gradients(nan)
    warning.apply_gradients(nan)
    raising = wrap(base, 8.0, at_floor="raise", floor_patience=2)
    raising.apply_gradients(nan)
    with pytest.raises(errors.ScaleStalledError, match="not finite: w"):
        raising.apply_gradients(nan)
    assert w.numpy() == [1]


def bad_step(opt: Any) -> tuple[tf.Variable, Callable[[], Any]]:
    """Return w, and a compiled step whose gradients of w and b, not c, are NaN."""
    w, b, c = (tf.Variable([1.0], name=name) for name in "wbc")
    gradients = [tf.constant([NAN]), tf.constant([NAN]), tf.constant([1.0])]
    variables = [w, b, c]

    @tf.function(autograph=False)
    def step() -> None:
        opt.apply_gradients(zip(gradients, variables, strict=True))

    return w, step


def test_a_stall_inside_a_function_raises_and_names_the_tensors() -> None:
    opt = scaled(DynamicLossScale(8.0), at_floor="raise")
    w, step = bad_step(opt)
    taken = 0
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"100 skipped in a row at loss scale 1, not finite: .*w, b",
    ):
        for taken in range(200):  # noqa: B007
            step()
    assert taken == 99 and w.numpy() == [1]


def test_a_stall_inside_a_function_is_printed_once(capfd: Any) -> None:
    _, step = bad_step(scaled(DynamicLossScale(2.0), floor_patience=3))
    for _ in range(9):
        step()
    told = capfd.readouterr().err
    assert told.count('3 skipped in a row at loss scale 1, not finite: "w, b";') == 1


def test_a_stall_is_ignored_if_that_was_asked_for(capfd: Any) -> None:
    opt = scaled(FixedLossScale(1.0), at_floor="ignore", floor_patience=3)
    _, step = bad_step(opt)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            step()
        opt.apply_gradients([(tf.constant([NAN]), tf.Variable([1.0]))])
    assert "skipped in a row" not in capfd.readouterr().err
    assert opt.skipped_in_a_row.numpy() == 6


def test_a_jit_compiled_step_counts_and_clips() -> None:
    w = tf.Variable([0.0, 0.0], name="w")
    opt = scaled("dynamic", at_floor="raise", floor_patience=1, clip_norm=2.5)
    opt.create_slots([w])

    @tf.function(jit_compile=True, autograph=False)
    def step(gradient: tf.Tensor) -> None:
        opt.apply_gradients([(gradient, w)])

    step(tf.constant([NAN, 1.0]))
    assert opt.skipped_in_a_row.numpy() == 1 and opt.loss_scale.numpy() == 2.0**14
    step(tf.constant([3.0, 4.0]))
    np.testing.assert_allclose(w.numpy(), [-0.15, -0.2], rtol=1e-6)
    assert opt.skipped_in_a_row.numpy() == 0


def clipped_run(driver: Any, scale: float) -> bytes:
    """Return the weights after three steps that clip."""
    draw = np.random.default_rng(1)
    w = driver.variable("w", np.ones((3, 2), np.float32))
    base = driver.optimizer("Momentum", {"learning_rate": 0.1, "momentum": 0.9}, [w])
    opt = MixedPrecisionLossScaleOptimizer(base, scale, clip_norm=0.7)

    def step(gradients: list[Any]) -> Any:
        loss = driver.linear_loss([w], gradients)
        return opt.apply_gradients(opt.compute_gradients(loss, [w]))

    compiled = driver.compile(step)
    for _ in range(3):
        compiled([draw.normal(size=(3, 2)).astype(np.float32)])
    return driver.read(w).tobytes()


def test_clipping_does_not_see_the_scale(new_driver: Hosts) -> None:
    assert clipped_run(new_driver(), 1.0) == clipped_run(new_driver(), 2.0**16)


def test_a_norm_that_overflows_is_an_overflow(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.ones(2, np.float32))
    base = driver.optimizer("GradientDescent", {"learning_rate": 0.5}, [w])
    opt = MixedPrecisionLossScaleOptimizer(base, "dynamic", clip_norm=1.0)
    step = driver.compile(lambda g: opt.apply_gradients([(g[0], w)]))
    step([np.full(2, 1e30, np.float32)])
    assert driver.read(w).tolist() == [1, 1]
    assert driver.read(opt.loss_scale) == 2.0**14


class Failing(GradientDescentOptimizer):
    def apply_gradients(self, *arguments: Any) -> None:
        raise OSError("no such device")


def test_a_step_that_fails_leaves_the_scale_alone() -> None:
    scale = DynamicLossScale(2.0, increment_period=1)
    opt = MixedPrecisionLossScaleOptimizer(Failing(0.1), scale)
    with pytest.raises(OSError, match="no such device"):
        opt.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])
    assert float(scale()) == 2 and scale.good_steps.numpy() == 0


def test_two_wrappers_that_scale_are_refused() -> None:
    masters = MixedPrecisionOptimizerWrapper(AdamOptimizer(0.1), 8.0)
    with pytest.raises(errors.UnsupportedError):
        MixedPrecisionLossScaleOptimizer(MultitaskOptimizerWrapper(masters), 2.0)


def test_counts_are_in_checkpoints(tmp_path: Path) -> None:
    bad = [(tf.constant([NAN]), tf.Variable([1.0], name="w"))]
    opt = scaled(DynamicLossScale(hysteresis=5))
    for _ in range(3):
        opt.apply_gradients(bad)
    path = tf.train.Checkpoint(opt=opt).write(str(tmp_path / "three"))
    again = scaled(DynamicLossScale(hysteresis=5))
    tf.train.Checkpoint(opt=again).read(path).assert_existing_objects_matched()
    assert again.skipped_in_a_row.numpy() == 3
    counts = [again.scale_object.overflows, again.scale_object.steps]
    assert [count.numpy() for count in counts] == [3, 3]
    for _ in range(2):
        again.apply_gradients(bad)
    assert again.loss_scale.numpy() == 2.0**14


OLD_CODE = """
v1.disable_v2_behavior()
from lockstep.tf.strict import MixedPrecisionLossScaleOptimizer
w = v1.get_variable("w", [2], initializer=v1.ones_initializer())
x = v1.placeholder(tf.float32, [2])
step = v1.train.get_or_create_global_step()
adam = v1.train.AdamOptimizer(0.125)
opt = MixedPrecisionLossScaleOptimizer(adam, "dynamic")
train_op = opt.minimize(tf.reduce_sum(w * x), global_step=step)
assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
names = sorted(v.op.name for v in v1.global_variables())
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for value in (1, np.inf, 2):
        session.run(train_op, {x: [value, 1]})
    assert session.run(step) == 2
    assert session.run(opt.loss_scale) == 2**14
    assert np.isfinite(session.run(w)).all()
print(*names)
"""


def test_old_code_runs_with_its_import_changed_and_keeps_its_names(
    shared: Callable[..., str],
) -> None:
    assert shared("v1", OLD_CODE).split() == [
        "cond_1/beta1_power",
        "cond_1/beta2_power",
        "current_loss_scale",
        "global_step",
        "good_steps",
        "w",
        "w/Adam",
        "w/Adam_1",
    ]


SESSION = """
v1.disable_v2_behavior()
from lockstep.tf import DynamicLossScale, MixedPrecisionLossScaleOptimizer
w = v1.get_variable("w", [1], initializer=v1.ones_initializer())
x = v1.placeholder(tf.float32, [1])
opt = MixedPrecisionLossScaleOptimizer(
    v1.train.AdamOptimizer(0.125), DynamicLossScale(2.0), "raise", 3
)
train_op = opt.minimize(tf.reduce_sum(w * x))
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for k in range(5):
        try:
            session.run(train_op, {x: [np.inf]})
        except tf.errors.InvalidArgumentError as error:
            print(k, "3 skipped in a row at loss scale 1, not finite:" in str(error))
            break
"""


def test_a_session_raises_at_a_stall(shared: Callable[..., str]) -> None:
    assert shared("v1", SESSION) == "2 True"


REPLICAS = """
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls
from lockstep.tf import strict

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def trained(names, factors):
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0], name="weight")
        scale = names.DynamicLossScale(8.0, increment_period=2)
        base = names.MomentumOptimizer(0.125, 0.5)
        optimizer = names.MixedPrecisionLossScaleOptimizer(base, scale)

    def step(factor):
        loss = lambda: factor * tf.reduce_sum(weight * weight)
        optimizer.minimize(loss, var_list=[weight])

    @tf.function
    def run(values):
        pick = lambda context: values[context.replica_id_in_sync_group]
        given = strategy.experimental_distribute_values_from_function(pick)
        strategy.run(step, args=(given,))

    for values in factors:
        run([tf.constant(value) for value in values])
    slot = base.get_slot(weight, "momentum")
    found = [strategy.experimental_local_results(v) for v in (weight, slot)]
    copies = [[copy.numpy().tolist() for copy in copies] for copies in found]
    return copies, float(scale()), int(scale.good_steps.numpy())

def in_session(names):
    with tf.Graph().as_default(), v1.Session() as session:
        # In a graph, a strategy reduces by other operations.
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            weight = v1.Variable([1.0, 2.0], use_resource=True)
            base = names.GradientDescentOptimizer(0.125)
            optimizer = names.MixedPrecisionLossScaleOptimizer(base, "dynamic")

        def step():
            return optimizer.minimize(tf.reduce_sum(weight * weight), var_list=[weight])

        done = strategy.experimental_local_results(strategy.run(step))
        session.run(v1.global_variables_initializer())
        session.run(done)
        copies = strategy.experimental_local_results(weight)
        return [value.tolist() for value in session.run(copies)]

inf = float("inf")
print(*trained(strict, [(1.0, 3.0)]))
print(*trained(strict, [(1.0, 3.0), (1.0, inf)]))
print(*trained(ls, [(1.0, 3.0), (1.0, inf)]))
print(in_session(strict), in_session(ls))
"""


def test_both_step_on_all_replicas_or_on_none(shared: Callable[..., str]) -> None:
    one, overflow, default, graph = shared(TWO_DEVICES, REPLICAS).splitlines()
    assert graph == "[[0.5, 1.0], [0.5, 1.0]] [[0.5, 1.0], [0.5, 1.0]]"
    # The gradients of both are added: g = 2 w (1 + 3), w = w - g / 8.
    state = "[[[0.0, 0.0], [0.0, 0.0]], [[8.0, 16.0], [8.0, 16.0]]]"
    assert one == f"{state} 8.0 1"
    assert overflow == f"{state} 4.0 0"
    assert default == overflow
