"""Options of loss scaling: as the reference has them, in graphs, in checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors, reference
from lockstep.tf import (
    DynamicLossScale,
    FixedLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MomentumOptimizer,
    VariableClippingOptimizer,
)
from lockstep.tf import strict as lockstep_strict

Hosts = Callable[..., Any]

NAN = float("nan")
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
        assert found == [part.item() for part in theirs.variables()]
        moved.add(float(theirs()))
    assert len(moved) > 3


def test_a_configuration_makes_the_same_scale_with_its_options() -> None:
    for options in OPTIONS:
        scale = DynamicLossScale(8.0, 3, **options)
        theirs = reference.DynamicLossScale(8.0, 3, **options)
        assert scale.get_config() == theirs.get_config()
        assert repr(DynamicLossScale.from_config(scale.get_config())) == repr(scale)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: DynamicLossScale(hysteresis=0), "an int >= 1"),
    (lambda: DynamicLossScale(tolerance=NAN), "got nan"),
    (lambda: DynamicLossScale(hysteresis=2, tolerance=0.5), "leave one of them out"),
    (lambda: DynamicLossScale(backoff_factor=2.0), "backoff_factor"),
    (lambda: DynamicLossScale(growth_factor=0.5), "growth_factor"),
    (lambda: DynamicLossScale(strict=True, tolerance=0.5), "no tolerance under strict"),
    (lambda: scaled(2.0, clip_norm=0.0), "clip_norm"),
    (lambda: scaled(2.0, clip_norm=NAN), "clip_norm"),
    (lambda: scaled(2.0, strict=True, clip_norm=1.0), "no clip_norm under strict"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_an_option_out_of_range_is_refused(case: int) -> None:
    make, words = REFUSED[case]
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert isinstance(caught.value, errors.LockstepError)


def scaled(scale: Any, **options: Any) -> MixedPrecisionLossScaleOptimizer:
    """Wrap Momentum in a loss scale."""
    base = MomentumOptimizer(0.1, 0.9)
    return MixedPrecisionLossScaleOptimizer(base, scale, **options)


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
        match="100 skipped in a row at loss scale 1, not finite: w, b;",
    ):
        for taken in range(200):  # noqa: B007
            step()
    assert taken == 99 and w.numpy() == [1]


def test_a_stall_inside_a_function_is_printed_once(capfd: Any) -> None:
    _, step = bad_step(scaled(DynamicLossScale(2.0), floor_patience=3))
    for _ in range(9):
        step()
    told = capfd.readouterr().err
    assert told.count("3 skipped in a row at loss scale 1, not finite: w, b;") == 1


def test_a_stall_is_ignored_if_that_was_asked_for(capfd: Any) -> None:
    opt = scaled(FixedLossScale(2.0), at_floor="ignore", floor_patience=3)
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


class Failing(GradientDescentOptimizer):
    def apply_gradients(self, *arguments: Any) -> None:
        raise OSError("no such device")


def test_a_step_that_fails_leaves_the_scale_alone() -> None:
    scale = DynamicLossScale(2.0, increment_period=1)
    opt = MixedPrecisionLossScaleOptimizer(Failing(0.1), scale)
    with pytest.raises(OSError, match="no such device"):
        opt.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])
    assert float(scale()) == 2 and scale.good_steps.numpy() == 0


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


def test_without_patience_and_under_strict_there_is_nothing_to_count() -> None:
    assert len(DynamicLossScale().variables) == 2
    base = MomentumOptimizer(0.1, 0.9)
    old = lockstep_strict.MixedPrecisionLossScaleOptimizer(base, "dynamic")
    assert not hasattr(old, "skipped_in_a_row")


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
            print(k, "3 skipped in a row at loss scale 1, not finite: w;" in str(error))
            break
"""


def test_a_session_raises_at_a_stall(shared: Callable[..., str]) -> None:
    assert shared("v1", SESSION) == "2 True"
