"""Steps outside of graphs: resume to the bit, and what is found in event files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as ls

HOW = {"eager": lambda step: step, "function": tf.function}
LARC = {"larc_params": {"larc_eta": 0.02}}
SETTINGS = {
    # An epsilon that float16 can hold.
    "adam": {"optimizer": "Adam", "optimizer_params": {"epsilon": 1e-3}},
    "masters": {
        "optimizer": "Momentum",
        "optimizer_params": {"momentum": 0.5},
        "dtype": "mixed",
        "loss_scaling": "LogMax",
        "iter_size": 3,
        **LARC,
    },
}


class Training(tf.Module):
    """A program: a table, a layer, and their step."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.table = tf.Variable(tf.ones([4, 2]), name="table")
        self.layer = tf.Variable([0.5, -1.0], dtype=tf.float16, name="layer")
        self.step = ls.optimize_loss(
            self.loss,
            learning_rate_decay_fn=lambda step: 0.5 / tf.cast(2 + step, tf.float32),
            var_list=[self.table, self.layer],
            **options,
        )

    def loss(self, ids):
        rows = tf.reduce_sum(tf.gather(self.table, ids) ** 2)
        return rows + tf.cast(tf.reduce_sum(self.layer**2), tf.float32)

    def state(self) -> list[np.ndarray]:
        own = [self.table, self.layer, self.step.global_step]
        scaler = [] if self.step.scaler is None else self.step.scaler.state.values()
        held = [*own, *scaler, *self.step.optimizer.variables()]
        sums = [total for total in self.step.accumulators if total is not None]
        held += [tf.convert_to_tensor(total) for total in sums]
        return [variable.numpy() for variable in held]


@pytest.mark.sample(2)
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_a_checkpoint_carries_everything_on_to_the_bit(
    options, run, tmp_path: Path
) -> None:
    given = [tf.constant([k % 4, 3, 3]) for k in range(10)]
    first = Training(**options)
    take = run(first.step)
    for ids in given[:5]:
        take(ids)
    saved = tf.train.Checkpoint(step=first.step).save(str(tmp_path / "model"))
    second = Training(**options)
    restored = tf.train.Checkpoint(step=second.step).restore(saved)
    again = run(second.step)
    for ids in given[5:]:
        take(ids), again(ids)
    restored.assert_consumed()
    assert len(first.state()) == len(second.state()) > 4
    for ours, theirs in zip(first.state(), second.state(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def plain_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``tf.summary`` write bare tensors: its kinds come with TensorBoard only."""

    def write(tag, values, step):
        return tf.summary.write(tag, values, step)

    monkeypatch.setattr(tf.summary, "scalar", write)
    monkeypatch.setattr(tf.summary, "histogram", write)


def step_of(**options):
    """Return a step whose gradient is (3, 4) times its argument."""
    weight = tf.Variable([6.0, 8.0], name="layer:weight")
    return ls.optimize_loss(
        lambda factor: factor * tf.reduce_sum(weight * [3.0, 4.0]),
        "SGD",
        {},
        lambda step: 0.5 / tf.cast(1 + step, tf.float32),
        [weight],
        **options,
    )


def written(folder: Path, take, factors) -> dict[tuple[str, int], np.ndarray]:
    """Take steps with a writer; return what the event files hold, by tag and step."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for factor in factors:
            take(tf.constant(factor))
    writer.close()
    found = {}
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for entry in event.summary.value:
                found[entry.tag, event.step] = tf.make_ndarray(entry.tensor)
    return found


@pytest.mark.usefixtures("plain_summaries")
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_all_eight_are_told_under_the_tags_of_the_original(run, tmp_path) -> None:
    step = step_of(
        summaries=ls.OPTIMIZER_SUMMARIES,
        dtype="mixed",
        loss_scaling=8,
        larc_params={"larc_eta": 0.125},
    )
    found = written(tmp_path, run(step), [1.0])
    ratio = 0.125 * 10 / (0.5 * 5)
    assert {key: value.tolist() for key, value in found.items()} == {
        ("learning_rate", 1): 0.5,
        ("loss_scale", 1): 8.0,
        ("global_gradient_norm", 1): 5.0,
        ("gradients/layer_weight_0", 1): [3.0, 4.0],
        ("gradient_norm/layer_weight_0", 1): 5.0,
        ("variables/layer_weight_0", 1): [6.0, 8.0],
        ("variable_norm/layer_weight_0", 1): 10.0,
        ("larc_clip_on/layer_weight_0", 1): 1,
        ("larc_grad_update/layer_weight_0", 1): pytest.approx(ratio),
        ("larc_final_lr/layer_weight_0", 1): pytest.approx(0.5 * ratio),
    }


@pytest.mark.usefixtures("plain_summaries")
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_histograms_are_masked_where_a_step_is_taken_all_the_same(
    run, tmp_path
) -> None:
    found = written(tmp_path, run(step_of(summaries=["gradients"])), [np.nan])
    assert found["gradients/layer_weight_0", 1].tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("plain_summaries")
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_nothing_is_told_of_micro_batches_and_skipped_steps(run, tmp_path) -> None:
    step = step_of(dtype="mixed", loss_scaling=8, iter_size=2, clip_gradients=2.5)
    found = written(tmp_path, run(step), [1.0, np.inf, 1.0, 3.0, 1.0])
    assert {key: float(value) for key, value in found.items()} == {
        ("learning_rate", 1): 0.5,
        ("loss_scale", 1): 8.0,
        ("global_gradient_norm", 1): 10.0,
        ("global_clipped_gradient_norm", 1): 2.5,
    }


@pytest.mark.usefixtures("plain_summaries")
@pytest.mark.parametrize("run", HOW.values(), ids=HOW)
def test_who_records_decides_about_the_summaries_too(run, tmp_path) -> None:
    step = step_of()
    with tf.summary.record_if(False):
        assert not written(tmp_path, run(step), [1.0])
    assert int(step.global_step) == 1
