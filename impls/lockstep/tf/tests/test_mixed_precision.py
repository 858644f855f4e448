"""Laws of float32 masters, in every face that can share a process, and fresh ones."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.spec import errors
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
    mixed_precision,
    mp_regularizer_wrapper,
    regularizer,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import rows

Hosts = Callable[..., Any]

v1 = tf.compat.v1
HALF, BRAIN = np.float16, tf.bfloat16.as_numpy_dtype
RANDOM = np.random.default_rng(5)
START = RANDOM.normal(size=(3, 2)).astype(np.float32)
STEPS = [RANDOM.normal(size=(3, 2)).astype(np.float32) for _ in range(4)]
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


class Training:
    """A wrapper at work on some variables of one host."""

    def __init__(self, host: Any, wrap: Callable[[Any], Any], *values: Any) -> None:
        self.host = host
        self.variables = [host.variable(f"w{i}", v) for i, v in enumerate(values)]
        self.counter = host.counter()
        self.base = host.optimizer("Adam", {"learning_rate": 0.01}, self.variables)
        self.wrapper = wrap(self.base)
        self.traces = 0
        self.step = host.compile(self.train)

    def train(self, gradients: list[Any]) -> Any:
        self.traces += 1
        loss = self.host.linear_loss(self.variables, gradients)
        pairs = self.wrapper.compute_gradients(loss, self.variables)
        applied = self.wrapper.apply_gradients(pairs, self.counter)
        return [applied, *[gradient for gradient, _ in pairs]]

    def masters(self) -> list[Any]:
        return [self.host.read(self.wrapper.master(v)) for v in self.variables]

    def state(self) -> list[bytes]:
        """Return the bits of everything that a step may change but the scale."""
        owned = [self.wrapper.master(variable) for variable in self.variables]
        parts = [self.host.read(v) for v in (*self.variables, *owned, self.counter)]
        parts += [self.host.slot(self.base, m, s) for m in owned for s in ("m", "v")]
        parts += self.host.shared(self.base).values()
        return [part.tobytes() for part in parts]


def masters(loss_scale: Any = None, **arguments: Any) -> Callable[[Any], Any]:
    """Wrap with masters."""
    return lambda opt: MixedPrecisionOptimizerWrapper(opt, loss_scale, **arguments)


@pytest.mark.parametrize("scale", SCALES)
def test_each_kind_of_scale_trains_the_masters_as_float32_would(
    new_host: Hosts, scale: str
) -> None:
    powers = [np.sign(step) * 2.0**-3 for step in STEPS]
    run = Training(new_host(), masters(SCALES[scale]()), START.astype(HALF))
    for gradient in powers:
        run.step([gradient.astype(HALF)])
    found = run.masters()[0]
    host = new_host()
    w = host.variable("w", START.astype(HALF).astype(np.float32))
    bare = host.optimizer("Adam", {"learning_rate": 0.01}, [w])
    step = host.compile(lambda g: bare.apply_gradients([(g[0], w)]))
    for gradient in powers:
        step([gradient.astype(np.float32)])
    assert found.tobytes() == host.read(w).tobytes()


def test_float16_and_bfloat16_have_masters_and_wider_ones_are_their_own(
    new_host: Hosts,
) -> None:
    kinds = [HALF, BRAIN, np.float32, np.float64]
    run = Training(new_host(), masters(8.0), *[START.astype(kind) for kind in kinds])
    for gradient in STEPS:
        _, *unscaled = run.step([gradient.astype(kind) for kind in kinds])
    widths = [np.float32, np.float32, np.float32, np.float64]
    assert [gradient.dtype for gradient in unscaled] == widths
    half, brain, *own = run.masters()
    model = [run.host.read(variable) for variable in run.variables]
    assert model[0].tobytes() == half.astype(HALF).tobytes()
    assert model[1].tobytes() == brain.astype(BRAIN).tobytes()
    assert [m.tobytes() for m in own] == [m.tobytes() for m in model[2:]]
    assert len(run.wrapper.masters) == 2


@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=["float16", "bfloat16"])
def test_a_master_beyond_the_model_is_clamped_and_returns(
    new_host: Hosts, dtype: Any
) -> None:
    host = new_host()
    largest = float(tf.as_dtype(dtype).max)
    w = host.variable("w", np.array([largest, -largest, 1], dtype))
    base = host.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base)
    step = host.compile(lambda g: wrapper.apply_gradients([(g[0], wrapper.master(w))]))
    beyond = np.float32([-largest / 512, largest / 512, 0])
    step([beyond])
    assert host.read(w).astype(np.float32).tolist() == [largest, -largest, 1]
    step([-beyond])
    assert host.read(wrapper.master(w)).tolist() == [largest, -largest, 1]


@pytest.mark.parametrize("scale", ["integer", "dynamic_object", "backoff"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_that_is_not_finite_changes_no_bit(
    new_host: Hosts, scale: str, bad: float
) -> None:
    values = START.astype(HALF), START
    run = Training(new_host(), masters(SCALES[scale]()), *values)
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
    new_host: Hosts,
) -> None:
    host = new_host()
    scale = DynamicLossScale(2.0**20, 1000, 2.0)
    run = Training(host, masters(scale), START.astype(HALF))
    for _ in range(8):
        run.step([np.ones((3, 2), HALF)])
    assert run.host.read(run.wrapper.loss_scale) == 2.0**15
    assert run.host.read(run.counter) == 3


def test_an_absent_gradient_leaves_its_variable_alone(new_host: Hosts) -> None:
    run = Training(new_host(), masters(8.0), START.astype(HALF), START.astype(HALF))
    run.step([STEPS[0].astype(HALF), None])
    untouched, master = run.host.read(run.variables[1]), run.masters()[1]
    assert untouched.tobytes() == START.astype(HALF).tobytes()
    assert master.tobytes() == START.astype(HALF).astype(np.float32).tobytes()
    assert run.masters()[0].tobytes() != master.tobytes()


def test_a_sparse_gradient_stays_sparse(new_host: Hosts) -> None:
    run = Training(new_host(), masters(8.0), START.astype(HALF))
    given = rows([2, 0, 2], [[1, -2], [3, 0.5], [-0.25, 4]], 3, 2)
    _, found = run.step([given._replace(values=given.values.astype(HALF))])
    assert found.indices.tolist() == [2, 0, 2]
    assert found.values.dtype == np.float32
    assert found.values.tolist() == given.values.tolist()


@pytest.mark.parametrize("scale", ["integer", "dynamic", "backoff"])
def test_duplicate_rows_that_overflow_when_summed_are_not_finite(
    new_host: Hosts, scale: str
) -> None:
    host = new_host()
    w = host.variable("w", START)
    base = host.optimizer("Adam", {}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base, SCALES[scale]())
    step = host.compile(lambda g: wrapper.apply_gradients([(g[0], w)]))
    step([rows([1, 1], [[3e38, 1], [3e38, 1]], 3, 2)])
    assert host.read(w).tobytes() == START.tobytes()


def test_gradients_of_the_model_are_taken_to_the_masters(new_host: Hosts) -> None:
    host = new_host()
    w = host.variable("w", np.array([1, 2], HALF))
    base = host.optimizer("GradientDescent", {"learning_rate": 2.0**-12}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base)
    step = host.compile(lambda g: wrapper.apply_gradients([(g[0], w)]))
    for _ in range(3):
        step([np.ones(2, HALF)])
    assert host.read(wrapper.master(w)).tolist() == [1 - 3 * 2**-12, 2 - 3 * 2**-12]
    # A float16 variable would not have moved: each step is half a unit of it.
    assert host.read(w).tolist() == [1 - 2**-10, 2 - 2**-10]


def test_clip_norm_bounds_the_unscaled_gradients_and_leaves_short_ones(
    new_host: Hosts,
) -> None:
    def moved(gradient: list[float]) -> list[float]:
        host = new_host()
        w = host.variable("w", np.zeros(2, HALF))
        base = host.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
        wrapper = MixedPrecisionOptimizerWrapper(base, 64.0, clip_norm=2.5)

        def train(given: list[Any]) -> Any:
            loss = host.linear_loss([w], given)
            return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

        host.compile(train)([np.array(gradient, HALF)])
        return host.read(wrapper.master(w)).tolist()

    assert moved([3, -4]) == [-1.5, 2]
    assert moved([1.5, -1.25]) == [-1.5, 1.25]


def test_a_norm_that_overflows_skips_the_step(new_host: Hosts) -> None:
    run = Training(new_host(), masters(1.0, clip_norm=1.0), START)
    run.step([STEPS[0]])
    before = run.state()
    run.step([np.full((3, 2), 3e38, np.float32)])
    assert run.state() == before


def test_a_regularizer_is_applied_at_the_master(new_host: Hosts) -> None:
    host = new_host()
    w = host.variable("w", np.array([1, 2], HALF))
    regularize = mp_regularizer_wrapper(lambda weight: 2.0**-13 * tf.nn.l2_loss(weight))
    assert regularize(w) is None and regularize(w) is None
    base = host.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base, 64.0)

    def train(given: list[Any]) -> Any:
        loss = host.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    host.compile(train)([np.zeros(2, HALF)])
    assert host.read(wrapper.master(w)).tolist() == [1 - 2**-13, 2 - 2**-12]


def test_a_regularizer_alone_trains_a_weight_that_the_loss_leaves_out(
    new_host: Hosts,
) -> None:
    run = Training(new_host(), masters(4.0), START.astype(HALF), START.astype(HALF))
    mp_regularizer_wrapper(tf.nn.l2_loss)(run.variables[1])
    _, _, slope = run.step([STEPS[0].astype(HALF), None])
    assert slope.tobytes() == START.astype(HALF).astype(np.float32).tobytes()


def test_wide_weights_and_tensors_are_regularized_at_once() -> None:
    regularize = mp_regularizer_wrapper(tf.nn.l2_loss)
    assert float(regularize(tf.Variable([3.0, 4.0]))) == 12.5
    assert float(regularize(tf.constant([3.0, 4.0], tf.float16))) == 12.5
    assert lockstep_strict.mp_regularizer_wrapper(tf.nn.l2_loss)(
        tf.Variable([3.0, 4.0], dtype=tf.bfloat16)
    )


def test_a_regularizer_without_a_penalty_changes_nothing() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    mp_regularizer_wrapper(lambda weight: None)(w)
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    wrapper.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert w.numpy().tolist() == [0.0]


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
    counted = wrapper.skipped_in_a_row
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


@pytest.mark.parametrize(
    "wrapped",
    [MixedPrecisionOptimizerWrapper, MixedPrecisionLossScaleOptimizer],
)
def test_a_multitask_wrapper_around_does_not_claim_a_skipped_step(wrapped: Any) -> None:
    w, v = tf.Variable([1.0], name="w"), tf.Variable([1.0], name="v")
    opt = MultitaskOptimizerWrapper(wrapped(GradientDescentOptimizer(0.5), 2.0))
    opt.apply_gradients([(tf.constant([np.inf]), w), (tf.constant([0.0]), v)])
    assert not opt.last_step.applied
    assert opt.last_step.skipped == ("w", "v")
    assert opt.last_step.nonfinite == ("w",)
    assert opt.last_step.reason.startswith("of 2 gradients 1 all zero; skipped")
    opt.apply_gradients([(tf.constant([1.0]), w), (tf.constant([0.0]), v)])
    assert opt.last_step == (True, "of 2 gradients 1 all zero", ("v",))


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


def test_a_stall_in_a_function_is_told_as_it_runs() -> None:
    w = tf.Variable([1.0], dtype=tf.float16, name="w")
    wrapper = masters(8.0, at_floor="raise", floor_patience=2)(AdamOptimizer())
    step = tf.function(lambda g: wrapper.apply_gradients([(g, w)]) and None)
    bad = tf.constant([np.nan], tf.float16)
    step(bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match="OptimizerWrapper: "):
        step(bad)


def test_row_clipping_around_masters_is_refused() -> None:
    half = tf.Variable(START, dtype=tf.float16, name="half")
    wide = tf.Variable(START)
    inner = MultitaskOptimizerWrapper(masters(8.0)(GradientDescentOptimizer(1.0)))
    with pytest.raises(errors.UnsupportedError, match="'half' itself"):
        VariableClippingOptimizer(inner, {half.ref(): [1]}, 1.0)
    VariableClippingOptimizer(inner, {wide.ref(): [1]}, 1.0)


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
    new_host: Hosts,
) -> None:
    run = Training(new_host(), masters(8.0), START.astype(HALF))
    run.step([STEPS[0].astype(HALF)])
    before, loaded = run.masters()[0], run.host.read(run.variables[0])
    loaded[1] += 1
    write = run.variables[0].assign(loaded, read_value=False)
    if run.host.face == "graph":
        run.host.run(write)
    run.step([np.full((3, 2), np.inf, HALF)])
    expected = before.copy()
    expected[1] = loaded[1]
    assert run.masters()[0].tobytes() == expected.tobytes()
    run.step([STEPS[1].astype(HALF)])
    assert np.abs(run.host.read(run.variables[0]) - loaded).max() < 0.02


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "inside multitask": lambda opt: MultitaskOptimizerWrapper(masters(8.0)(opt)),
    "around multitask": lambda opt: masters(8.0)(MultitaskOptimizerWrapper(opt)),
}


@pytest.mark.parametrize("order", COMPOSED)
def test_with_a_multitask_wrapper_an_all_zero_gradient_moves_nothing(
    new_host: Hosts, order: str
) -> None:
    run = Training(new_host(), COMPOSED[order], START.astype(HALF), START.astype(HALF))
    run.step([STEPS[0].astype(HALF), STEPS[1].astype(HALF)])
    model, master = run.host.read(run.variables[0]), run.masters()[0]
    other = run.masters()[1]
    run.step([np.zeros((3, 2), HALF), STEPS[2].astype(HALF)])
    assert run.host.read(run.variables[0]).tobytes() == model.tobytes()
    assert run.masters()[0].tobytes() == master.tobytes()
    assert run.masters()[1].tobytes() != other.tobytes()


def test_row_clipping_inside_limits_master_and_model(new_host: Hosts) -> None:
    host = new_host()
    w = host.variable("w", np.array([[3, 4], [0.25, 0.5]], HALF))
    base = host.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    inner = VariableClippingOptimizer(base, {host.key(w): [1]}, 2.5)
    wrapper = MixedPrecisionOptimizerWrapper(inner, 8.0)

    def train(given: list[Any]) -> Any:
        loss = host.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    host.compile(train)([np.zeros((2, 2), HALF)])
    assert host.read(wrapper.master(w)).tolist() == [[1.5, 2], [0.25, 0.5]]
    assert host.read(w).tolist() == [[1.5, 2], [0.25, 0.5]]


@pytest.mark.parametrize("between", [False, True], ids=["at once", "at any depth"])
def test_a_loss_is_not_scaled_twice(between: bool) -> None:
    inner = MixedPrecisionOptimizerWrapper(AdamOptimizer(), 8.0)
    if between:
        inner = MultitaskOptimizerWrapper(inner)
    with pytest.raises(ValueError, match="let one of the two scale"):
        MixedPrecisionLossScaleOptimizer(inner, DynamicLossScale(64.0, 100))


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


BAD = {
    "a class": (AdamOptimizer, None, {}, errors.NotScalableError),
    "a Keras name": ("adam", None, {}, errors.NotScalableError),
    "a number as text": (AdamOptimizer(), "128", {}, errors.UnknownNameError),
    "a bool": (AdamOptimizer(), True, {}, errors.UnknownNameError),
    "zero": (AdamOptimizer(), 0, {}, errors.OutOfRangeError),
    "infinity": (AdamOptimizer(), float("inf"), {}, errors.OutOfRangeError),
    "a floor": (AdamOptimizer(), 1.0, {"at_floor": "stop"}, errors.OutOfRangeError),
    "a clip of 0": (AdamOptimizer(), 1.0, {"clip_norm": 0}, errors.OutOfRangeError),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_in_a_sentence(case: str) -> None:
    optimizer, scale, arguments, error = BAD[case]
    with pytest.raises(error, match=r"expected .*, got .*; .*\."):
        MixedPrecisionOptimizerWrapper(optimizer, scale, **arguments)


def test_bad_calls_are_refused_before_anything_changes() -> None:
    w = tf.Variable([1.0, 2.0], dtype=tf.float16)
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), "dynamic")
    master = wrapper.master(w)
    for pairs, error in (
        ([], ValueError),
        ([(None, master)], ValueError),
        ([(tf.ones([3]), master)], ValueError),
        ([(tf.ones([2], tf.float64), master)], TypeError),
        ([tf.ones([2])], TypeError),
    ):
        with pytest.raises(error):
            wrapper.apply_gradients(pairs)
    with pytest.raises(RuntimeError, match="callable"):
        wrapper.compute_gradients(tf.constant(1.0), [w])
    with pytest.raises(TypeError, match="callable"):
        mp_regularizer_wrapper(0.1)
    assert wrapper.inner_optimizer.variables() == []
    assert int(wrapper.scale_object.good_steps) == 0


def test_a_graph_has_the_names_and_collections_of_the_original() -> None:
    def collected(module: Any, times: int) -> list[list[str]]:
        with tf.Graph().as_default():
            w = v1.get_variable(
                "net/w",
                initializer=tf.ones([2], tf.float16),
                regularizer=module.mp_regularizer_wrapper(tf.nn.l2_loss),
            )
            wrapper = module.MixedPrecisionOptimizerWrapper(
                module.MomentumOptimizer(0.1, 0.9), module.AutomaticLossScaler()
            )
            for _ in range(times):
                loss = tf.reduce_sum(tf.cast(w, tf.float32))
                wrapper.minimize(loss)
            keys = ("FP32_MASTER_COPIES", v1.GraphKeys.TRAINABLE_VARIABLES)
            found = [[v.op.name for v in v1.get_collection(key)] for key in keys]
            penalties = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
            functions = v1.get_collection("REGULARIZATION_FUNCTIONS")
            counts = [str(len(penalties)), str(len(functions))]
            return [*found, counts]

    first, second = "FP32-master-copy/net/w", "FP32-master-copy_1/net/w"
    strict = collected(lockstep_strict, 2)
    assert strict == [[first, second], ["net/w"], ["2", "1"]]
    assert collected(lockstep_tf, 2) == [[first], ["net/w"], ["0", "1"]]


def test_a_graph_initializes_masters_at_the_drawn_values() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(tf.cast(tf.random.normal([50]), tf.float16), name="w")
        wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer())
        master = wrapper.master(w)
        session.run(v1.global_variables_initializer())
        model, copy = session.run([w, master])
    assert copy.tobytes() == model.astype(np.float32).tobytes()


RESUME = """
from lockstep.tf import (
    AdamOptimizer, AutomaticLossScaler, MixedPrecisionOptimizerWrapper
)
way, path, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
in_graph = way.startswith("graph")
stop = 5
random = np.random.default_rng(3)
gradients = random.normal(size=(9, 2, 5)).astype(np.float32)
gradients[3, 0, 2] = np.inf
if in_graph:
    v1.disable_eager_execution()
a = v1.Variable(np.ones(5, np.float16), name="w", use_resource=True)
b = v1.Variable(np.zeros(5, np.float16), name="v", use_resource=True)
counter = v1.Variable(np.int64(0), name="counter", use_resource=True)
scaler = AutomaticLossScaler("Backoff", {"step_window": 2})
wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(0.001), scaler, clip_norm=2.0)
checkpoint = tf.train.Checkpoint(a=a, b=b, counter=counter, optimizer=wrapper)

def train(x):
    def loss():
        return tf.reduce_sum(tf.cast(tf.stack([a, b]), tf.float32) * x)
    return wrapper.minimize(loss, counter, [b, a] if first else [a, b])

def state():
    owned = [wrapper.master(v) for v in (a, b)]
    slots = [wrapper.get_slot(v, name) for v in (a, b) for name in ("m", "v")]
    powers = sorted(wrapper.inner_optimizer._non_slot_dict)
    powers = [wrapper.inner_optimizer._non_slot_dict[key] for key in powers]
    return [a, b, counter, *owned, *slots, *powers, *scaler.state.values()]

if in_graph:
    x = v1.placeholder(tf.float32, [2, 5])
    train_op = train(x)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    saver = v1.train.Saver()
    if first and way == "graph_saver":
        saver.restore(session, path)
    elif first:
        status = checkpoint.read(path)
        status.assert_existing_objects_matched().run_restore_ops(session)
    for k in range(first, 9):
        if k == stop and not first:
            if way == "graph_saver":
                saver.save(session, path)
            else:
                with session.as_default():
                    checkpoint.write(path)
        session.run(train_op, {x: gradients[k]})
    parts = session.run(state())
else:
    step = train
    if way == "function":
        step = tf.function(lambda x: train(x) and None, autograph=False)
    if way == "saver":
        wrapper.create_slots([a, b])
        saver = v1.train.Saver([a, b, counter, *wrapper.variables()])
    if first and way == "saver":
        saver.restore(None, path)
    elif first:
        checkpoint.read(path)
    for k in range(first, 9):
        if k == stop and not first:
            saver.save(None, path) if way == "saver" else checkpoint.write(path)
        step(tf.constant(gradients[k]))
    parts = state()
print(" ".join(np.asarray(part).tobytes().hex() for part in parts))
"""


@pytest.mark.parametrize("way", ["eager", "function", "saver", "graph", "graph_saver"])
def test_a_fresh_process_goes_on_to_the_bit(
    child: Callable[..., str], tmp_path: Path, way: str
) -> None:
    whole = child(RESUME, way, tmp_path / "stopped", 0)
    assert child(RESUME, way, tmp_path / "stopped", 5) == whole


OLD_CODE = """
v1.disable_v2_behavior()
from lockstep.tf{module} import (
    AdamOptimizer, AutomaticLossScaler, MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
)
x = v1.placeholder(tf.float32, [2])
w = v1.get_variable(
    "w", initializer=tf.constant([1.0, 2.0], tf.float16),
    regularizer=mp_regularizer_wrapper(tf.nn.l2_loss),
)
assert w.dtype != w.dtype.base_dtype, "old code has reference variables"
counter = v1.train.get_or_create_global_step()
opt = MixedPrecisionOptimizerWrapper(AdamOptimizer(0.125), AutomaticLossScaler())
loss = tf.reduce_sum(tf.cast(w, tf.float32) * x)
train_op = opt.apply_gradients(opt.compute_gradients(loss), counter)
assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(train_op, {{x: [1.0, -3.0]}})
    session.run(train_op, {{x: [np.inf, 1.0]}})
    print(session.run([w, opt.master(w), counter]))
print(sorted(v.op.name for v in v1.global_variables() if "/" in v.op.name))
"""


@pytest.mark.parametrize("module", ["", ".strict"], ids=["default", "strict"])
def test_old_code_with_reference_variables_runs(
    child: Callable[..., str], module: str
) -> None:
    values, names = child(OLD_CODE.format(module=module)).splitlines()[-2:]
    assert "0.875" in values and "2.125" in values and values.endswith("int64(1)]")
    master = "FP32-master-copy/w"
    wanted = [master, f"{master}/Adam", f"{master}/Adam_1"]
    powers = ["cond_1/beta1_power", "cond_1/beta2_power"] if module else []
    assert names == str(wanted + powers)


@pytest.mark.parametrize("module", [mixed_precision, regularizer])
def test_the_examples_in_the_docstrings_run(module: Any) -> None:
    names = {"tf": tf, **vars(lockstep_tf)}
    failed, tried = doctest.testmod(module, extraglobs=names)
    assert tried and not failed
