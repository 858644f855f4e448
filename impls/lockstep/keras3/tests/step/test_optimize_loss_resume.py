"""What ``optimize_loss`` for Keras keeps in a checkpoint, and what it tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from lockstep import keras3 as ls
from lockstep.keras3.tests.steps import HOW, PARTS, step_of, variable, weight_in


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
