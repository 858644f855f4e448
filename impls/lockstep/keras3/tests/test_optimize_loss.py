"""Laws of ``optimize_loss`` for Keras, eagerly and in functions, and bad input."""

from __future__ import annotations

import doctest
import importlib
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from lockstep import keras3 as ls
from lockstep.keras3 import strict

INPUTS = np.random.default_rng(7).integers(-4, 5, (32, 3)).astype(np.float32)
"""Whole numbers: their sums and means over powers of two are exact."""
PARTS = np.split(INPUTS, 4)
START = [0.5, -1.0, 2.0]

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
HOW = {"eager": lambda step: step, "function": tf.function}


def rate(global_step):
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def variable(value, name: str, dtype: str = "float32") -> keras.Variable:
    return keras.Variable(value, dtype=dtype, name=name)


def weight_in(dtype="float32") -> keras.Variable:
    return variable(START, "weight", dtype)


def step_of(weight: keras.Variable, /, names=ls, **options):
    def loss(batch):
        return ops.mean(ops.matmul(batch, ops.cast(weight, "float32")))

    given = {"optimizer": "Momentum", "optimizer_params": {"momentum": 0.5}}
    given |= {"learning_rate_decay_fn": rate, "var_list": [weight]}
    return names.optimize_loss(loss, **{**given, **options})


def trained(weight, batches, run, **options):
    step = step_of(weight, **options)
    take = run(step)
    for batch in batches:
        take(tf.constant(batch))
    return step


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_four_micro_batches_of_8_are_one_batch_of_32(run, limit, scale, dtype) -> None:
    parts, whole = weight_in(dtype), weight_in(dtype)
    several = trained(parts, PARTS, run, iter_size=4, **limit, **scale)
    single = trained(whole, [INPUTS], run, **limit, **scale)
    assert int(several.global_step) == int(single.global_step) == 1
    assert parts.numpy().tolist() == whole.numpy().tolist() != START
    pairs = zip(several.optimizer.variables, single.optimizer.variables, strict=True)
    for ours, theirs in pairs:
        assert ours.numpy().tolist() == theirs.numpy().tolist()


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_the_loss_scale_changes_no_bit_of_an_update(run, limit) -> None:
    weights = []
    for scale in (1, 65536):
        weight = weight_in()
        trained(weight, PARTS, run, dtype="mixed", loss_scaling=scale, **limit)
        weights.append(weight.numpy().tolist())
    assert weights[0] == weights[1]


OPTIMIZERS = {
    "SGD": {},
    "Momentum": {"momentum": 0.5},
    "Adam": {},
    "Adagrad": {},
    "RMSProp": {},
    "Ftrl": {},
    "AdamW": {"weight_decay": 0.25},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_function_does_what_eager_calls_do_and_is_traced_twice_at_most(
    optimizer,
) -> None:
    weights, traces = [], 0
    for run in HOW.values():
        weight = weight_in("float16")
        step = step_of(
            weight,
            optimizer=optimizer,
            optimizer_params=OPTIMIZERS[optimizer],
            dtype="mixed",
            loss_scaling="Backoff",
            clip_gradients=1.0,
            iter_size=2,
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


def test_the_variables_of_a_model_are_trained() -> None:
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.build((None, 3))
    before = model.get_weights()[0]
    step = ls.optimize_loss(
        lambda x: ops.mean(model(x)), "SGD", {}, lambda step: 0.5, model=model
    )
    step(tf.constant(INPUTS))
    mean = INPUTS.mean(0)[:, None]
    np.testing.assert_allclose(model.get_weights()[0], before - 0.5 * mean, rtol=1e-5)


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


def test_a_gradient_that_comes_and_goes_cannot_be_added_up() -> None:
    both = [variable([1.0], name) for name in ("one", "two")]
    step = ls.optimize_loss(
        lambda k: ops.sum(both[k]), "SGD", {}, rate, both, iter_size=2
    )
    step(0)
    with pytest.raises(ValueError, match="another kind for 'one'"):
        step(1)
    assert step.accumulators[0].numpy() == 0.5


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


def test_the_flag_of_a_call_goes_before_that_of_the_step() -> None:
    step = step_of(weight_in(), iter_size=2, skip_update_ph=tf.constant(True))
    step(tf.constant(INPUTS)), step(tf.constant(INPUTS))
    assert step.last_step.reason == "accumulated micro-batch 2 of 2"
    step(tf.constant(INPUTS), skip_update=False)
    assert int(step.global_step) == 1


def test_the_callers_arguments_stay_as_they_were_unless_strict() -> None:
    given = {"weight_decay": 0.25}
    options = {"optimizer": "AdamW", "optimizer_params": given}
    options["learning_rate_decay_fn"] = lambda step: 0.5
    step_of(weight_in(), **options)
    assert given == {"weight_decay": 0.25}
    step_of(weight_in(), strict, **options)
    assert given == {"weight_decay": 0.125}


def made(**options):
    given = {"optimizer": "SGD", "optimizer_params": {}}
    return partial(step_of, weight_in(), **{**given, **options})


def scheduled():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))


REFUSED = [
    ({"optimizer": "Momentun"}, ValueError, "did you mean 'Momentum'"),
    ({"optimizer": "Momentum"}, TypeError, "'momentum'"),
    ({"optimizer": "AdamW"}, KeyError, "'weight_decay'"),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError, "decay_fn"),
    ({"optimizer": 3}, TypeError, "a int"),
    ({"optimizer": lambda learning_rate: 3}, TypeError, "a int"),
    (
        {"optimizer": keras.optimizers.SGD(), "optimizer_params": {"a": 1}},
        TypeError,
        "beside a",
    ),
    (
        {"optimizer": scheduled(), "optimizer_params": None},
        ValueError,
        "with a schedule",
    ),
    ({"summaries": ["learning_rat"]}, ValueError, "did you mean 'learning_rate'"),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError, "'Backoff'"),
    ({"clip_gradients": 0.0}, ValueError, "clip_gradients"),
    ({"iter_size": 2.0}, ValueError, "iter_size"),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError, "finite rate"),
    ({"var_list": None}, ValueError, "var_list"),
    ({"var_list": [3]}, TypeError, "int"),
    ({"names": strict, "dtype": "mixed", "loss_scaling": 128}, AttributeError, "128"),
    (
        {"names": strict, "optimizer": keras.optimizers.SGD()},
        TypeError,
        "an instance of SGD",
    ),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_what_cannot_work_is_refused_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        made(**options)()
    assert str(caught.value).rstrip("'\"").endswith((".", "?"))


def test_a_loss_that_is_there_already_is_refused() -> None:
    weight = weight_in()
    with pytest.raises(RuntimeError, match="each step calls it"):
        ls.optimize_loss(ops.sum(weight), "SGD", {}, rate, [weight])


def test_a_loss_is_not_scaled_twice() -> None:
    def scaled(learning_rate):
        sgd = keras.optimizers.SGD(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)

    with pytest.raises(ValueError, match="not scaled yet"):
        made(optimizer=scaled, dtype="mixed")()


def test_larc_beside_a_wrapper_that_clips_is_refused() -> None:
    def clipping(learning_rate):
        sgd = keras.optimizers.SGD(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)

    with pytest.raises(ValueError, match="clip"):
        made(optimizer=clipping, larc_params={"larc_eta": 0.1})()


def test_the_examples_in_the_docstrings_run() -> None:
    module = importlib.import_module("lockstep.keras3.optimize_loss")
    failed, tried = doctest.testmod(module, extraglobs={"keras": keras, **vars(ls)})
    assert tried and not failed
