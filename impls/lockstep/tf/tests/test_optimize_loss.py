"""Laws of ``optimize_loss`` for TensorFlow, eagerly and in functions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.tf import strict
from lockstep.tf.tests.steps import START, rate, step_of, weight_in

v1 = tf.compat.v1
INPUTS = np.random.default_rng(7).integers(-4, 5, (32, 3)).astype(np.float32)
"""Whole numbers: their sums and means over powers of two are exact."""
PARTS = np.split(INPUTS, 4)
LIMITS = {
    "plain": {},
    "clipped": {"clip_gradients": 0.5},
    "larc, clip": {"larc_params": {"larc_eta": 0.02}},
    "larc, scale": {"larc_params": {"larc_eta": 0.02, "larc_mode": "scale"}},
}
SCALES = {
    "not scaled": {},
    "scaled": {"dtype": "mixed", "loss_scaling": 256},
    "backoff": {"dtype": "mixed", "loss_scaling": "Backoff"},
}


def trained(weight, batches, run=lambda step: step, **options):
    step = step_of(weight, **options)
    take = run(step)
    for batch in batches:
        take(tf.constant(batch))
    return step


HOW = {"eager": lambda step: step, "function": tf.function}


CASES = [("eager", *case, "float32") for case in product(LIMITS, SCALES)]
CASES += [
    ("function", *case, "float16") for case in zip(LIMITS, [*SCALES] * 2, strict=False)
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("run", "limit", "scale", "dtype"), CASES)
def test_four_micro_batches_of_8_are_one_batch_of_32(run, limit, scale, dtype) -> None:
    run, limit, scale = HOW[run], LIMITS[limit], SCALES[scale]
    parts, whole = weight_in(dtype), weight_in(dtype)
    several = trained(parts, PARTS, run, iter_size=4, **limit, **scale)
    single = trained(whole, [INPUTS], run, **limit, **scale)
    assert int(several.global_step) == int(single.global_step) == 1
    assert int(several.micro_step) == 0
    assert parts.numpy().tolist() == whole.numpy().tolist() != START
    pairs = zip(
        several.optimizer.variables(), single.optimizer.variables(), strict=True
    )
    for ours, theirs in pairs:
        assert ours.numpy().tolist() == theirs.numpy().tolist()


@pytest.mark.sample(3)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_the_loss_scale_changes_no_bit_of_an_update(run, limit) -> None:
    weights = []
    for scale in (1, 65536):
        weight = weight_in()
        trained(weight, PARTS, run, dtype="mixed", loss_scaling=scale, **limit)
        weights.append(weight.numpy().tolist())
    assert weights[0] == weights[1]


def test_a_function_does_what_eager_calls_do_and_is_traced_twice_at_most() -> None:
    weights, traces = [], 0
    for run in HOW.values():
        weight = weight_in(tf.float16)
        step = step_of(
            weight,
            optimizer="AdamW",
            optimizer_params={"weight_decay": 0.25},
            iter_size=2,
            clip_gradients=1.0,
            **SCALES["backoff"],
        )

        @run
        def take(batch, step=step):
            nonlocal traces
            traces += not tf.executing_eagerly()
            return step(batch)

        for k in range(8):
            if k == 4:
                before = traces
            take(tf.constant(PARTS[k % 4]))
        assert traces == before <= 2
        assert int(step.global_step) == 4
        weights.append(weight.numpy())
    np.testing.assert_allclose(*weights, rtol=2e-3)


@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_sparse_gradients_stay_sparse_when_they_are_added_up(run) -> None:
    table = tf.Variable(tf.ones([4, 2]))
    step = ls.optimize_loss(
        lambda ids: tf.reduce_sum(tf.gather(table, ids)),
        "Momentum",
        {"momentum": 0.5},
        lambda step: 0.5,
        [table],
        iter_size=2,
    )
    take = run(step)
    take(tf.constant([1, 3]))
    assert step.accumulators[0].indices.numpy().tolist() == [1, 3]
    take(tf.constant([3, 3]))
    assert table.numpy()[:, 0].tolist() == [1.0, 0.75, 1.0, 0.25]
    assert step.accumulators[0].indices.shape == [0]


@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_the_sum_is_judged_for_zero_not_each_micro_batch(run) -> None:
    weight = tf.Variable([1.0, 1.0], name="weight")
    step = ls.optimize_loss(
        lambda sign: sign * tf.reduce_sum(weight),
        lambda learning_rate: ls.MultitaskOptimizerWrapper(
            v1.train.AdamOptimizer(learning_rate)
        ),
        None,
        rate,
        [weight],
        iter_size=2,
    )
    take = run(step)
    take(tf.constant(1.0)), take(tf.constant(-1.0))
    assert weight.numpy().tolist() == [1.0, 1.0]
    take(tf.constant(0.0)), take(tf.constant(1.0))
    assert (weight.numpy() != 1).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_sum_that_is_not_finite_is_skipped_and_the_scaler_moves_once(
    run, limit, bad
) -> None:
    weight = tf.Variable([1.0, 2.0], dtype=tf.float16, name="weight")
    step = ls.optimize_loss(
        lambda factor: factor * tf.cast(tf.reduce_sum(weight), tf.float32),
        "Momentum",
        {"momentum": 0.5},
        rate,
        [weight],
        dtype="mixed",
        loss_scaling="Backoff",
        iter_size=2,
        **limit,
    )
    take = run(step)
    take(tf.constant(bad)), take(tf.constant(1.0))
    assert weight.numpy().tolist() == [1.0, 2.0]
    assert step.optimizer.get_slot(weight, "momentum").numpy().tolist() == [0.0, 0.0]
    assert (int(step.scaler.state["iteration"]), int(step.global_step)) == (1, 0)
    take(tf.constant(1.0)), take(tf.constant(1.0))
    assert (weight.numpy() != [1.0, 2.0]).any()
    assert (int(step.scaler.state["iteration"]), int(step.global_step)) == (2, 1)


def test_what_is_not_finite_is_named_though_it_was_clipped() -> None:
    good, bad = (tf.Variable(1.0, name=name) for name in ("good", "bad"))
    step = ls.optimize_loss(
        lambda: good + bad * float("nan"),
        "SGD",
        {},
        rate,
        [good, bad],
        dtype="mixed",
        clip_gradients=1.0,
    )
    step()
    assert step.last_step.nonfinite == ("bad",)


def test_an_absent_gradient_is_no_obstacle() -> None:
    used, unused = (tf.Variable([1.0], name=name) for name in ("used", "unused"))
    step = ls.optimize_loss(
        lambda: tf.reduce_sum(used),
        "Adam",
        {},
        rate,
        [used, unused],
        clip_gradients=1.0,
        iter_size=2,
    )
    step(), step()
    assert unused.numpy() == 1.0 and step.accumulators[1] is None
    assert step.last_step.skipped == ("unused",)
    assert step.last_step.reason == "1 of 2 variables updated"


def test_a_gradient_that_comes_and_goes_cannot_be_added_up() -> None:
    one, two = (tf.Variable([1.0], name=name) for name in ("one", "two"))
    step = ls.optimize_loss(
        lambda k: tf.reduce_sum([one, two][k]), "SGD", {}, rate, [one, two], iter_size=2
    )
    step(0)
    with pytest.raises(ValueError, match="'one'"):
        step(1)
    assert int(step.micro_step) == 1 and step.accumulators[0].numpy() == 0.5


def test_a_step_that_fails_leaves_the_sums_as_they_were() -> None:
    weight = weight_in()
    step = step_of(
        weight,
        names=strict,
        optimizer="Ftrl",
        optimizer_params={},
        learning_rate_decay_fn=lambda step: tf.constant(0.0),
        on_horovod=True,
        iter_size=2,
        skip_update_ph=True,
    )
    batch = tf.ones([1, 3])
    step(batch)
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(batch, skip_update=False)
    assert step.accumulators[0].numpy().tolist() == [0.5, 0.5, 0.5]


def test_the_rate_waits_with_the_steps() -> None:
    rates = []
    flags = iter([True, False, True, True, False])
    step = step_of(
        weight_in(),
        learning_rate_decay_fn=lambda step: rates.append(step + 0) or 0.5,
        iter_size=2,
        skip_update_ph=lambda: next(flags),
    )
    rates.clear()
    for _ in range(5):
        step(tf.constant(INPUTS))
    assert [int(rate) for rate in rates] == [0, 0, 1, 1, 1]
    assert int(step.global_step) == 2


def test_the_flag_of_a_call_goes_before_that_of_the_step() -> None:
    step = step_of(weight_in(), iter_size=2, skip_update_ph=tf.constant(True))
    step(tf.constant(INPUTS)), step(tf.constant(INPUTS))
    assert step.last_step.reason == "accumulated micro-batch 2 of 2"
    step(tf.constant(INPUTS), skip_update=False)
    assert int(step.global_step) == 1


def test_an_optimizer_that_is_made_already_gets_the_rate_of_each_step() -> None:
    weight = tf.Variable([1.0])
    momentum = v1.train.MomentumOptimizer(99.0, 0.5)
    step = ls.optimize_loss(
        lambda: tf.reduce_sum(weight), momentum, None, lambda step: 0.5, [weight]
    )
    step()
    assert weight.numpy() == 0.5 and step.optimizer is momentum


def test_the_variables_of_a_model_are_trained() -> None:
    model = tf.Module()
    model.weight, model.other = tf.Variable(1.0), tf.Variable(1.0, trainable=False)
    ls.optimize_loss(lambda: model.weight + 0, "SGD", {}, rate, model=model)()
    assert float(model.weight) != 1.0 == float(model.other)


def test_the_callers_arguments_stay_as_they_were() -> None:
    given = {"weight_decay": 0.25}
    step = step_of(weight_in(), optimizer="AdamW", optimizer_params=given)
    step(tf.constant(INPUTS))
    assert given == {"weight_decay": 0.25}


def test_strict_scales_the_decay_of_a_dict_that_is_used_twice_twice() -> None:
    given, left = {"weight_decay": 0.5}, []
    for _ in range(2):
        weight = tf.Variable([1.0])
        step = strict.optimize_loss(
            lambda weight=weight: 0.0 * tf.reduce_sum(weight),
            "AdamW",
            given,
            lambda step: 0.5,
            [weight],
        )
        step()
        left.append(float(weight[0]))
    assert left == [0.75, 0.875]


def test_strict_makes_a_scaler_that_it_does_not_use() -> None:
    assert step_of(weight_in(), strict, loss_scaling="Backoff").scaler is not None


# -- refusals --------------------------------------------------------------------------


class Frozen(v1.train.Optimizer):
    """An optimizer that keeps its rate where nobody finds it."""

    def __init__(self, learning_rate):
        super().__init__(False, "Frozen")


def scaled(learning_rate, **options):
    sgd = v1.train.GradientDescentOptimizer(learning_rate)
    return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, **options)


def clipping(learning_rate):
    return scaled(learning_rate, clip_norm=1.0)


LISTED = tf.Variable([1.0], name="listed")
REFUSED = [
    ({"optimizer": "Momentun"}, ValueError),
    ({"optimizer": "Momentum"}, TypeError),
    ({"optimizer": "Momentum", "optimizer_params": {"momentum": -1.0}}, ValueError),
    ({"optimizer": "AdamW"}, KeyError),
    ({"optimizer": "NovoGrad"}, ValueError),
    ({"optimizer_params": {"beta": 0.5}}, TypeError),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError),
    ({"optimizer_params": [1]}, TypeError),
    ({"optimizer": 3}, TypeError),
    ({"optimizer": lambda learning_rate: 3}, TypeError),
    ({"optimizer": tf.keras.optimizers.SGD}, TypeError),
    ({"optimizer": ls.MultitaskOptimizerWrapper}, TypeError),
    ({"optimizer": v1.train.AdamOptimizer(), "optimizer_params": {"a": 1}}, TypeError),
    ({"optimizer": Frozen}, ValueError),
    ({"optimizer": scaled, "dtype": "mixed"}, ValueError),
    ({"optimizer": clipping, "larc_params": {"larc_eta": 0.1}}, ValueError),
    ({"summaries": ["learning_rat"]}, ValueError),
    ({"summaries": "learning_rate"}, ValueError),
    ({"dtype": tf.float64}, ValueError),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError),
    ({"dtype": "mixed", "loss_scaling_params": {"scale_max": 8.0}}, ValueError),
    ({"loss_scaling": "Backoff"}, ValueError),
    ({"loss_scaling": 8, "dtype": "float16"}, ValueError),
    ({"clip_gradients": 0.0}, ValueError),
    ({"clip_gradients": 1.0, "larc_params": {"larc_eta": 0.1}}, AttributeError),
    ({"larc_params": {}}, ValueError),
    ({"iter_size": 2.0}, ValueError),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError),
    ({"learning_rate_decay_fn": lambda step: "0.1"}, ValueError),
    ({"learning_rate_decay_fn": None}, TypeError),
    ({"learning_rate_decay_fn": True}, TypeError),
    ({"learning_rate_decay_fn": ls.lr_policies.poly_decay}, TypeError),
    ({"var_list": None}, ValueError),
    ({"var_list": []}, ValueError),
    ({"var_list": None, "model": tf.Module()}, ValueError),
    ({"var_list": 3}, TypeError),
    ({"var_list": [3]}, TypeError),
    ({"var_list": [LISTED, LISTED]}, ValueError),
]


@pytest.mark.parametrize(("options", "error"), REFUSED)
def test_what_cannot_work_is_refused(options, error) -> None:
    given = {"optimizer": "SGD", "optimizer_params": {}, **options}
    with pytest.raises(error):
        step_of(weight_in(), **given)


def test_strict_refuses_an_instance_and_an_integer_scale() -> None:
    given = {"names": strict, "optimizer_params": {}}
    with pytest.raises(TypeError, match="an AdamOptimizer"):
        step_of(weight_in(), **given, optimizer=v1.train.AdamOptimizer())
    step = step_of(weight_in(), names=strict, dtype="mixed", loss_scaling=128)
    with pytest.raises(AttributeError, match="128"):
        step(tf.constant(INPUTS))


def test_a_loss_that_is_there_already_is_refused_eagerly() -> None:
    weight = tf.Variable([1.0])
    with pytest.raises(RuntimeError):
        ls.optimize_loss(tf.reduce_sum(weight), "SGD", {}, rate, [weight])


@pytest.mark.parametrize("flag", ["False", 2, np.array([True, False])], ids=str)
@pytest.mark.parametrize("returned", [False, True], ids=["given", "returned"])
def test_a_flag_that_is_none_adds_nothing(flag, returned) -> None:
    step = step_of(weight_in(), iter_size=2)
    with pytest.raises((TypeError, ValueError)):
        step(tf.constant(INPUTS), skip_update=(lambda: flag) if returned else flag)
    assert int(step.micro_step) == int(step.global_step) == 0


@pytest.mark.parametrize("flag", [True, np.array(True), np.True_], ids=repr)
def test_a_bool_and_an_array_of_one_are_flags(flag) -> None:
    step = step_of(weight_in(), iter_size=2, skip_update_ph=flag)
    for _ in range(3):
        step(tf.constant(INPUTS))
    assert (int(step.micro_step), int(step.global_step)) == (3, 0)


def test_the_pipeline_of_a_step_is_its_own() -> None:
    step = step_of(weight_in(), iter_size=2, clip_gradients=1.0)
    expected = ("accumulate", "norm", "clip", "update")
    assert ls.pipeline_of(step) == step.pipeline == expected
    assert ls.pipeline_of(v1.train.GradientDescentOptimizer(0.1)) == ("update",)


def test_a_single_variable_and_a_generator_may_be_listed() -> None:
    weight = weight_in()
    assert step_of(weight, var_list=weight).trained == (weight,)
    assert step_of(weight, var_list=(v for v in [weight])).trained == (weight,)


def test_without_horovod_there_is_nothing_to_reduce_with():
    one = [(tf.ones([2]), tf.Variable([3.0, 4.0]))]
    with pytest.raises(NotImplementedError):
        ls.reduce_gradients(one, on_horovod=False)
    assert ls.reduce_gradients(one, on_horovod=True)[0][0] is one[0][0]


@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_a_loss_with_extras_makes_the_step_return_them(run) -> None:
    weight = tf.Variable([1.0, 2.0])

    def loss(factor):
        return factor * tf.reduce_sum(weight), {"predicted": weight * 1.0}

    value, extras = run(ls.optimize_loss(loss, "SGD", {}, 0.5, [weight]))(2.0)
    assert float(value) == 6.0
    assert extras["predicted"].numpy().tolist() == [1.0, 2.0]
    assert weight.numpy().tolist() == [0.0, 1.0]
