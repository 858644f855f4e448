"""Laws of loss scaling, in every mode that can share a process, and in fresh ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import errors
from lockstep import tf as lockstep_tf
from lockstep.tf import (
    AdamOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.scaling.loss_scale import get
from lockstep.tf.tests.trajectory import (
    TOLERANCE,
    assert_close,
    assert_same_bits,
    draw,
    replay,
    rows,
)

Hosts = Callable[..., Any]

VALUES, *DENSE = draw(8, [(3,), (4, 2)], steps=4)
BAD = [DENSE[1][0] * np.float32("inf"), DENSE[1][1]]
TWICE = rows([2, 0, 2, 2], [[1, -2], [3, 0.5], [-0.25, 4], [0.5, 1]], 4, 2)
HUGE = rows([1, 1], [[3e38, 1], [3e38, 1]], 4, 2)
STEPS = [BAD, DENSE[0], [None, TWICE], [DENSE[1][0], None], BAD, [None, HUGE], DENSE[2]]


def scaled(names: Any, *inside: str) -> Callable[[Any], Any]:
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
    expected = replay(oracle, rule, scaled(oracle.names), VALUES, STEPS)
    got = replay(new_driver(names), rule, scaled(names), VALUES, STEPS)
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))


@pytest.mark.sample(1)
def test_it_works_around_and_inside_a_multitask_wrapper(new_driver: Hosts) -> None:
    around = scaled(lockstep_tf, "MultitaskOptimizerWrapper")
    inside = scaled(lockstep_tf)
    plain = replay(new_driver(), "Momentum", inside, VALUES, STEPS)
    for wrap in (around, lambda opt: MultitaskOptimizerWrapper(inside(opt))):
        assert_same_bits(replay(new_driver(), "Momentum", wrap, VALUES, STEPS), plain)


@pytest.mark.sample(3)
def test_200_overflowing_steps_change_no_bit(new_driver: Hosts, names: Any) -> None:
    driver = new_driver(names)
    w = driver.variable("w", VALUES[1])
    counter, base = driver.counter(), driver.optimizer("Adam", {}, [w])
    wrapper = scaled(names)(base)
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


def test_the_scale_stays_finite_under_zero_gradients(new_driver: Hosts) -> None:
    driver = new_driver()
    scale = DynamicLossScale(2.0**15, increment_period=1)
    step = driver.compile(lambda g: list(scale.update(g)))
    for _ in range(300):
        step([np.zeros(2, np.float32)])
    assert driver.read(scale()) == 2.0**127


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


ALGORITHMS = {
    "backoff": {"scale_max": 1024.0, "step_window": 3},
    "logmax": {"beta1": 0.9, "beta2": 0.99, "scale_max": 2.0**20, "log_max": 15.0},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_scaler_equals_the_reference(
    new_driver: Hosts, names: Any, algorithm: str
) -> None:
    driver = new_driver(names)
    oracle = drivers.load("reference", strict=names is lockstep_strict).names
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
    if names is lockstep_strict and algorithm == "logmax":
        with pytest.raises(errors.DtypeError, match="float16"):
            scaler.update_op(*update)
    else:
        assert scaler.update_op(*update) == 1


def test_the_counts_of_a_report() -> None:
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


def test_nothing_is_traced_after_the_second_step() -> None:
    w = tf.Variable(tf.ones([2, 2]))
    inner = VariableClippingOptimizer(AdamOptimizer(0.1), {w.ref(): [1]}, 1.0)
    wrapper = MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    traces = []

    @tf.function
    def step(values: tf.Tensor) -> None:
        traces.append(1)
        wrapper.minimize(lambda: tf.reduce_sum(w * values), var_list=[w])

    counts = []
    for factor in [1, np.inf, 1, np.nan, 2, 3]:
        step(tf.fill([2, 2], tf.constant(factor, tf.float32)))
        counts.append(len(traces))
    assert len(set(counts[1:])) == 1
    assert wrapper.loss_scale.numpy() == 2.0**13


def test_a_configuration_makes_the_same_scale(names: Any) -> None:
    for scale in (names.FixedLossScale(3), names.DynamicLossScale(8.0, 3, 4.0)):
        again = type(scale).from_config(scale.get_config())
        assert repr(again) == repr(scale) and float(again()) == float(scale())
    assert get(None) is None and get(scale) is scale
    assert isinstance(get("dynamic"), DynamicLossScale)


MOMENTUM = MomentumOptimizer(0.1, 0.9)
REFUSED: dict[str, tuple[Callable[[], Any], type, str]] = {
    "too small": (lambda: FixedLossScale(0.5), ValueError, ">= 1, got 0.5"),
    "a string": (lambda: FixedLossScale("4"), ValueError, "an int or float"),
    "a negative scale": (lambda: DynamicLossScale(-1.0), ValueError, "> 0"),
    "NaN": (lambda: DynamicLossScale(float("nan")), ValueError, "got nan"),
    "no period": (lambda: DynamicLossScale(1.0, 0), ValueError, ">= 1, got 0"),
    "no growth": (lambda: DynamicLossScale(1.0, 1, 1.0), ValueError, "multiplier"),
    "a high floor": (lambda: DynamicLossScale(2.0, floor=4.0), ValueError, "floor"),
    "a low ceiling": (
        lambda: DynamicLossScale(2.0, ceiling=1.0),
        ValueError,
        "ceiling",
    ),
    "a word": (
        lambda: MixedPrecisionLossScaleOptimizer(MOMENTUM, "foo"),
        ValueError,
        "'dynamic'",
    ),
    "None": (
        lambda: MixedPrecisionLossScaleOptimizer(MOMENTUM, None),
        TypeError,
        "got None",
    ),
    "no optimizer": (
        lambda: MixedPrecisionLossScaleOptimizer(3, 2.0),
        ValueError,
        "got int",
    ),
    "a class": (
        lambda: MixedPrecisionLossScaleOptimizer(MomentumOptimizer, 2.0),
        ValueError,
        "pass an instance",
    ),
    "a floor rule": (
        lambda: MixedPrecisionLossScaleOptimizer(MOMENTUM, 2.0, at_floor="stop"),
        ValueError,
        "'warn' or 'raise'",
    ),
    "an algorithm": (lambda: AutomaticLossScaler("Backof"), ValueError, "Backoff"),
    "a parameter": (
        lambda: AutomaticLossScaler("Backoff", {"step_windw": 3}),
        ValueError,
        "step_window",
    ),
    "a text": (
        lambda: AutomaticLossScaler("LogMax", {"log_max": "16"}),
        ValueError,
        "expected a float",
    ),
    "a factor": (
        lambda: AutomaticLossScaler("Backoff", {"step_factor": 0.5}),
        ValueError,
        "> 1",
    ),
    "integer gradients": (
        lambda: DynamicLossScale().update([tf.constant([1])]),
        TypeError,
        "floating-point",
    ),
    "several dtypes": (
        lambda: AutomaticLossScaler.check_grads(
            [(tf.ones(1), "a"), (tf.ones(1, tf.float16), "b")]
        ),
        TypeError,
        "one dtype",
    ),
    "nothing to apply": (
        lambda: MixedPrecisionLossScaleOptimizer(MOMENTUM, 2.0).apply_gradients([]),
        ValueError,
        "at least one",
    ),
    "an eager tensor": (
        lambda: MixedPrecisionLossScaleOptimizer(MOMENTUM, 2.0).minimize(tf.ones([])),
        RuntimeError,
        "a callable",
    ),
    "rows without a shape": (
        lambda: lockstep_strict.DynamicLossScale().update(
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


TRAIN = """
from lockstep.tf import (
    AdamOptimizer, AutomaticLossScaler, DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
)
path, first = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(3)
gradients = random.normal(size=(8, 3)).astype(np.float32)
gradients[[1, 5], 0] = np.inf
w = tf.Variable(tf.ones([3]), name="w")
counter = tf.Variable(0, dtype=tf.int64, name="counter")
scale = DynamicLossScale(64.0, 2)
wrapper = MixedPrecisionLossScaleOptimizer(AdamOptimizer(0.1), scale)
scaler = AutomaticLossScaler("LogMax", {"scale_max": 2.0**30})
checkpoint = tf.train.Checkpoint(
    w=w, counter=counter, optimizer=wrapper, scaler=scaler
)
if first:
    checkpoint.read(path).assert_existing_objects_matched()
for k in range(first, 8):
    if k == 4 and not first:
        checkpoint.write(path)
    pairs = [(tf.constant(gradients[k]), w)]
    scaler.update_op(*scaler.check_grads(pairs))
    wrapper.apply_gradients(pairs, global_step=counter)
slots = [wrapper.get_slot(w, name) for name in ("m", "v")]
state = [w, counter, *slots, *wrapper.variables(), *scaler.state.values()]
print(" ".join(np.asarray(part).tobytes().hex() for part in state))
"""


def test_a_fresh_process_goes_on_to_the_bit(
    shared: Callable[..., str], tmp_path: Path
) -> None:
    whole = shared("eager, first", TRAIN, tmp_path / "stopped", 0)
    assert shared("eager, second", TRAIN, tmp_path / "stopped", 4) == whole


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


@pytest.mark.parametrize(
    "wrapper",
    [MixedPrecisionLossScaleOptimizer, lockstep_tf.MixedPrecisionOptimizerWrapper],
)
def test_an_applied_step_reports_variables_without_gradients(wrapper: Any) -> None:
    a, b = (tf.Variable([1.0], name=name) for name in "ab")
    optimizer = wrapper(lockstep_tf.GradientDescentOptimizer(0.5), FixedLossScale(8.0))
    optimizer.apply_gradients([(tf.ones(1), a), (None, b)])
    report = optimizer.last_step
    assert report.applied and report.skipped == ("b",)
    assert report.reason == "finite, 1 absent; loss scale 8"
