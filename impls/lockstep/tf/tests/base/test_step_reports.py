"""What steps report: never an old step, counts of skips, names that the user gave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.interface import NO_EAGER_STEP, NO_STEP
from lockstep.messages.scaling.loss_scaling import ScaledStepReport

v1 = tf.compat.v1
INF = float("inf")
Scaled, Masters = ls.MixedPrecisionLossScaleOptimizer, ls.MixedPrecisionOptimizerWrapper


def sgd() -> Any:
    return v1.train.GradientDescentOptimizer(0.5)


def agn(variable: tf.Variable) -> Any:
    getter = ls.AGNCustomGetter("/cpu:0")
    getter([variable])
    return ls.AGNOptimizer(sgd(), 1, getter)


WRAPPERS: dict[str, Callable[[tf.Variable], Any]] = {
    "multitask": lambda w: ls.MultitaskOptimizerWrapper(sgd()),
    "rows": lambda w: ls.VariableClippingOptimizer(sgd(), {}, 1.0),
    "agn": agn,
    "loss scale": lambda w: Scaled(sgd(), 8.0),
    "masters": lambda w: Masters(sgd(), 8.0),
}


@pytest.mark.parametrize("make", WRAPPERS.values(), ids=WRAPPERS)
def test_the_report_is_never_that_of_an_earlier_step(make: Any) -> None:
    w = tf.Variable([1.0], name="w")
    opt = make(w)
    assert opt.last_step == NO_EAGER_STEP
    opt.apply_gradients([(tf.ones([1]), w)])
    assert opt.last_step.applied

    @tf.function(autograph=False)
    def step() -> None:
        opt.apply_gradients([(tf.ones([1]), w)])

    step()
    assert opt.last_step == NO_EAGER_STEP
    opt.apply_gradients([(tf.ones([1]), w)])
    assert opt.last_step.applied


@pytest.mark.parametrize("make", [Scaled, Masters])
def test_a_scaling_wrapper_reports_its_findings_from_the_start(make: Any) -> None:
    report = make(sgd(), 8.0).last_step
    assert isinstance(report, ScaledStepReport) and report != ScaledStepReport(*NO_STEP)
    assert report.nonfinite == () and report.norm is report.clip_factor is None


def test_the_step_of_optimize_loss_reports_from_the_start() -> None:
    w = tf.Variable([1.0], name="w")
    step = ls.optimize_loss(lambda: tf.reduce_sum(w), "SGD", {}, lambda s: 0.5, [w])
    assert step.last_step == NO_EAGER_STEP
    step()
    assert step.last_step.applied
    tf.function(lambda: step(), autograph=False)()
    assert step.last_step == NO_EAGER_STEP


def skip_and_apply(step: Callable[[float], Any], counts: Callable[[], Any]) -> None:
    """Check the counts along skipped and applied steps."""
    expected = [(INF, 1, 1), (INF, 2, 2), (1.0, 2, 0), (INF, 3, 1), (1.0, 3, 0)]
    for value, total, in_a_row in expected:
        step(value)
        assert [int(count) for count in counts()] == [total, in_a_row]


@pytest.mark.parametrize("make", [Scaled, Masters])
@pytest.mark.parametrize("mode", ["eager", "function", "xla"])
def test_skips_are_counted(make: Any, mode: str) -> None:
    w = tf.Variable([1.0])
    opt = make(sgd(), "dynamic")

    def step(value: Any) -> None:
        opt.apply_gradients([(tf.fill([1], value), w)])

    if mode != "eager":
        step = tf.function(step, autograph=False, jit_compile=mode == "xla")
    skip_and_apply(
        lambda value: step(tf.constant(value)),
        lambda: (opt.skipped_steps, opt.skipped_in_a_row),
    )


@pytest.mark.parametrize("make", [Scaled, Masters])
def test_skips_are_counted_in_graphs(make: Any) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w, gradient = tf.Variable([1.0]), v1.placeholder(tf.float32, [1])
        opt = make(sgd(), "dynamic")
        done = opt.apply_gradients([(gradient, w)])
        counts = opt.skipped_steps, opt.skipped_in_a_row
        session.run(v1.global_variables_initializer())
        skip_and_apply(
            lambda value: session.run(done, {gradient: [value]}),
            lambda: session.run(counts),
        )


@pytest.mark.parametrize("make", [Scaled, Masters])
def test_skips_are_saved(make: Any, tmp_path: Path) -> None:
    w = tf.Variable([1.0])
    opt, again = make(sgd(), "dynamic"), make(sgd(), "dynamic")
    for value in (INF, 1.0, INF, INF):
        opt.apply_gradients([(tf.fill([1], value), w)])
    path = tf.train.Checkpoint(opt=opt).save(str(tmp_path / "state"))
    status = tf.train.Checkpoint(opt=again).restore(path)
    status.assert_existing_objects_matched()
    assert (int(again.skipped_steps), int(again.skipped_in_a_row)) == (3, 2)
    again.apply_gradients([(tf.ones([1]), w)])
    assert (int(again.skipped_steps), int(again.skipped_in_a_row)) == (3, 0)


def test_reports_name_the_weights_of_the_model_on_every_level() -> None:
    w, head = (tf.Variable([1.0], dtype=tf.float16, name=n) for n in ("w", "head"))
    inner = ls.MultitaskOptimizerWrapper(sgd())
    opt = Masters(inner, 8.0)
    opt.apply_gradients([(tf.zeros([1]), w), (tf.ones([1]), head)])
    assert opt.last_step.skipped == inner.last_step.skipped == ("w",)
