"""Laws of ``optimize_loss`` for Keras, eagerly and in functions."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from lockstep import keras3 as ls
from lockstep.keras3.tests.steps import (
    HOW,
    INPUTS,
    PARTS,
    START,
    rate,
    step_of,
    variable,
    weight_in,
)

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


def trained(weight, batches, run, **options):
    step = step_of(weight, **options)
    take = run(step)
    for batch in batches:
        take(tf.constant(batch))
    return step


CASES = [("eager", *case, "float32") for case in product(LIMITS, SCALES)]
CASES += [
    ("function", *case, "float16") for case in zip(LIMITS, [*SCALES] * 2, strict=False)
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("run", "limit", "scale", "dtype"), CASES)
def test_four_micro_batches_of_8_are_one_batch_of_32(run, limit, scale, dtype) -> None:
    run, limit, scale = HOW[run], LIMITS[limit], SCALES[scale]
    parts, whole = weight_in(dtype), weight_in(dtype)
    several = trained(parts, PARTS, run, iter_size=4, **limit, **scale)
    single = trained(whole, [INPUTS], run, **limit, **scale)
    assert int(several.global_step) == int(single.global_step) == 1
    assert parts.numpy().tolist() == whole.numpy().tolist() != START
    pairs = zip(several.optimizer.variables, single.optimizer.variables, strict=True)
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
        weight = weight_in("float16")
        step = step_of(
            weight,
            optimizer="AdamW",
            optimizer_params={"weight_decay": 0.25},
            clip_gradients=1.0,
            iter_size=2,
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


@pytest.mark.parametrize("options", [{"learning_rate": 0.5}, {}], ids=["own", "none"])
@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.AdamW])
def test_optimizers_of_keras_are_trained_with_its_own_rules(make, options) -> None:
    ours, theirs = weight_in(), weight_in()
    given = make(**options) if options else make
    step = step_of(ours, optimizer=given, optimizer_params=None)
    bare = make(0.1)
    for k in range(3):
        step(tf.constant(INPUTS))
        bare.learning_rate = rate(k)
        bare.apply([tf.reduce_mean(INPUTS, 0)], [theirs])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_sparse_gradients_stay_sparse_when_they_are_added_up(run) -> None:
    table = variable(np.ones((4, 2)), "table")
    step = ls.optimize_loss(
        lambda ids: tf.reduce_sum(tf.gather(table.value, ids)),
        "Adagrad",
        {"initial_accumulator_value": 0.5},
        lambda step: 0.5,
        [table],
        iter_size=2,
    )
    take = run(step)
    take(tf.constant([1, 3]))
    assert step.accumulators[0].indices.numpy().tolist() == [1, 3]
    take(tf.constant([3, 3]))
    assert step.accumulators[0].indices.shape == [0]
    slot = step.optimizer.get_slot(table, "accumulator")
    assert slot.numpy()[:, 0].tolist() == [0.5, 0.75, 0.5, 2.75]


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_sum_that_is_not_finite_is_skipped_and_the_scaler_moves_once(
    run, limit, bad
) -> None:
    weight = variable([1.0, 2.0], "weight", "float16")
    step = ls.optimize_loss(
        lambda factor: factor * ops.cast(ops.sum(weight), "float32"),
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
    assert (int(step.scaler.state["iteration"]), int(step.global_step)) == (1, 0)
    take(tf.constant(1.0)), take(tf.constant(1.0))
    assert (weight.numpy() != [1.0, 2.0]).any()
    assert (int(step.scaler.state["iteration"]), int(step.global_step)) == (2, 1)


def test_an_absent_gradient_is_no_obstacle() -> None:
    used, unused = variable([1.0], "used"), variable([1.0], "unused")
    step = ls.optimize_loss(
        lambda: ops.sum(used),
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


def test_what_an_engine_averages_is_what_is_applied() -> None:
    class Twice:
        """Stand for a second rank with three times this one's gradients."""

        size = 2

        def any(self, flags):
            return flags

        def all_reduce(self, tensors):
            return [2 * tensor for tensor in tensors]

    weight = variable([1.0], "weight")
    step = ls.optimize_loss(
        lambda: ops.sum(weight),
        "SGD",
        {},
        lambda step: 0.25,
        [weight],
        on_horovod=True,
        reduction=Twice(),
    )
    step()
    assert weight.numpy() == 0.5


@pytest.mark.sample(1)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_a_checkpoint_carries_everything_on_to_the_bit(run, tmp_path: Path) -> None:
    options = {"dtype": "mixed", "loss_scaling": "LogMax", "iter_size": 3}
    weights = [weight_in("float16"), weight_in("float16")]
    steps = [
        step_of(weight, optimizer_params={"momentum": 0.5}, **options)
        for weight in weights
    ]
    takes = [run(step) for step in steps]
    for k in range(5):
        takes[0](tf.constant(PARTS[k % 4]))
    saved = tf.train.Checkpoint(step=steps[0]).save(str(tmp_path / "model"))
    restored = tf.train.Checkpoint(step=steps[1]).restore(saved)
    for k in range(5, 11):
        takes[0](tf.constant(PARTS[k % 4]))
        takes[1](tf.constant(PARTS[k % 4]))
    restored.assert_consumed()
    held = [
        [weight, step.global_step, *step.optimizer.variables, step.accumulators[0]]
        for weight, step in zip(weights, steps, strict=True)
    ]
    assert int(steps[1].global_step) == 3
    for ours, theirs in zip(*held, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_summaries_reach_the_default_writer(run, monkeypatch, tmp_path) -> None:
    for kind in ("scalar", "histogram"):
        monkeypatch.setattr(tf.summary, kind, lambda t, v, s: tf.summary.write(t, v, s))
    weight = variable([6.0, 8.0], "weight")
    step = ls.optimize_loss(
        lambda factor: factor * ops.sum(weight * [3.0, 4.0]),
        "SGD",
        {},
        lambda step: 0.5,
        [weight],
        summaries=["global_gradient_norm", "gradients"],
        clip_gradients=2.5,
        dtype="mixed",
    )
    take, writer = run(step), tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        take(tf.constant(np.inf)), take(tf.constant(1.0))
    writer.close()
    found = {
        (entry.tag, event.step): tf.make_ndarray(entry.tensor).tolist()
        for path in tmp_path.iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for entry in event.summary.value
    }
    assert found == {
        ("global_gradient_norm", 1): 5.0,
        ("global_clipped_gradient_norm", 1): 2.5,
        ("gradients/weight", 1): [1.5, 2.0],
    }


def made(**options):
    given = {"optimizer": "SGD", "optimizer_params": {}}
    return partial(step_of, weight_in(), **{**given, **options})


def scheduled():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))


def scaled(learning_rate):
    sgd = keras.optimizers.SGD(learning_rate)
    return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)


# What the base of all steps refuses is tested with TensorFlow's.
REFUSED = [
    ({"optimizer": "Momentun"}, ValueError),
    ({"optimizer": "Momentum"}, TypeError),
    ({"optimizer": "AdamW"}, KeyError),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError),
    ({"optimizer": lambda learning_rate: 3}, TypeError),
    ({"optimizer": keras.optimizers.SGD(), "optimizer_params": {"a": 1}}, TypeError),
    ({"optimizer": scheduled(), "optimizer_params": None}, ValueError),
    ({"optimizer": scaled, "dtype": "mixed"}, ValueError),
    ({"optimizer": scaled, "larc_params": {"larc_eta": 0.1}}, ValueError),
    ({"var_list": None}, ValueError),
    ({"var_list": [3]}, TypeError),
]


@pytest.mark.parametrize(("options", "error"), REFUSED, ids=map(str, range(11)))
def test_what_cannot_work_is_refused(options, error) -> None:
    with pytest.raises(error):
        made(**options)()


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_a_loss_may_return_more_than_the_loss(mode: str) -> None:
    w = keras.Variable([2.0], name="w")

    def loss(x: Any) -> Any:
        product = w * x
        return tf.reduce_sum(product), product, {"x": x}

    step = ls.optimize_loss(loss, "SGD", {}, 0.5, [w], on_horovod=True)
    take = tf.function(step) if mode == "function" else step
    value, product, named = take(tf.constant([3.0]))
    assert (float(value), float(product[0]), float(named["x"][0])) == (6.0, 6.0, 3.0)
    assert w.numpy().tolist() == [0.5]
