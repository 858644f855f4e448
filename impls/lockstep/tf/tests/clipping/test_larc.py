"""LARC, clipping and their summaries as citizens of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from harness.tests.shared_processes import TWO_DEVICES
from lockstep.errors import DtypeError
from lockstep.messages.step.summaries import SummaryRecord
from lockstep.tf import (
    _clip_by_global_norm,
    _clip_gradients_by_norm,
    clip_by_global_norm,
    clip_gradients_by_norm,
    get_regularization_loss,
    post_process_gradients,
    reduce_gradients,
    strict,
)

v1 = tf.compat.v1
LARC = {"larc_eta": 0.01}
NAMES = ["gradients", "global_gradient_norm", "larc_summaries"]


def pairs_of(*values):
    return [
        (None if g is None else tf.constant(g), tf.Variable(w, name=f"v{k}"))
        for k, (g, w) in enumerate(values)
    ]


def larc(pairs, lr=0.1, **params):
    processed = post_process_gradients(pairs, [], lr, None, {**LARC, **params})
    return [gradient for gradient, _ in processed]


@pytest.mark.parametrize("mode", ["clip", "scale"])
def test_larc_does_not_depend_on_the_loss_scale_once_gradients_are_unscaled(mode):
    rng = np.random.default_rng(0)
    g, w = rng.standard_normal((2, 7, 3)).astype("f4")
    (plain,) = larc(pairs_of((g, w)), larc_mode=mode)
    (scaled,) = larc(pairs_of((g * 65536 / 65536, w)), larc_mode=mode)
    assert np.array_equal(plain, scaled)


def test_a_function_is_traced_once_and_takes_the_rate_as_it_changes():
    (pair,) = pairs_of(([60.0, 80.0], [3.0, 4.0]))
    traces = []

    @tf.function
    def step(rate):
        traces.append(rate)
        return larc([pair], rate)[0]

    got = [step(tf.constant(rate))[0] for rate in (0.1, 0.01, 1e-6)]
    np.testing.assert_allclose(got, [0.3, 3.0, 60.0], rtol=1e-6)
    assert len(traces) == 1


def test_pairs_come_back_with_the_variables_that_were_given_and_absent_ones():
    pairs = pairs_of(([1.0], [2.0]), (None, [3.0]))
    processed = post_process_gradients(iter(pairs), [], 0.1, 1.0, LARC)
    assert [v is w for (_, v), (_, w) in zip(processed, pairs, strict=True)] == [
        True
    ] * 2
    assert processed[1][0] is None


def test_a_norm_of_nan_is_not_hidden_by_a_norm_of_zero():
    (got,) = larc(pairs_of(([0.0, 0.0], [float("nan"), 1.0])))
    assert np.isnan(got).all()


@pytest.mark.parametrize("mode", ["clip", "scale"])
def test_a_new_weight_of_zeros_learns_at_the_full_rate(mode):
    (scaled,) = larc(pairs_of(([3.0, 4.0], [0.0, 0.0])), larc_mode=mode)
    assert scaled.numpy().tolist() == [3.0, 4.0]


def test_sparse_gradients_stay_sparse():
    rows = tf.IndexedSlices(tf.constant([[3.0, 0.0], [0.0, 4.0]]), tf.constant([1, 1]))
    table = tf.Variable(tf.ones([3, 2]))
    (got,) = larc([(rows, table)], larc_mode="scale")
    dense = tf.math.unsorted_segment_sum(rows.values, rows.indices, 3)
    (wanted,) = larc([(dense, table)], larc_mode="scale")
    assert isinstance(got, tf.IndexedSlices)
    np.testing.assert_allclose(got.values, [wanted[1] * [1, 0], wanted[1] * [0, 1]])


def test_in_a_graph_summaries_are_operations_of_its_collection():
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[3.0, 4.0])
        pairs = [(tf.constant([1.0, float("inf")]), variable)]
        post_process_gradients(pairs, NAMES, 0.1, 1.0, LARC)
        made = v1.get_collection(v1.GraphKeys.SUMMARIES)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            written = v1.Summary.FromString(session.run(v1.summary.merge(made)))
    assert {value.tag for value in written.value} == {
        "global_gradient_norm",
        "global_clipped_gradient_norm",
        "gradients/w_0",
        "larc_clip_on/w_0",
        "larc_grad_update/w_0",
        "larc_final_lr/w_0",
    }


def test_eagerly_the_default_writer_writes_them(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(tf.summary, "scalar", lambda *a: told.append(a), raising=False)
    pairs = pairs_of(([3.0, 4.0], [3.0, 4.0]))
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=3):
        post_process_gradients(pairs, ["global_gradient_norm"], 0.1, None, None)
    assert [(tag, float(value)) for tag, value in told] == [
        ("global_gradient_norm", 5.0)
    ]


def test_without_a_writer_nothing_is_computed(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a summary was computed")

    monkeypatch.setattr(
        "lockstep.tf.shared.clipping.post_process.norm_in_float32", refuse
    )
    monkeypatch.setattr("lockstep.tf.shared.step.summaries.tensor_norms", refuse)
    post_process_gradients(pairs_of(([1.0], [2.0])), NAMES, 0.1, None, LARC)


def test_a_recorder_gets_the_hosts_tensors():
    record = SummaryRecord()
    pairs = pairs_of(([3.0, 4.0], [1.0, 1.0]), (None, [1.0]))
    post_process_gradients(pairs, NAMES, 0.1, None, None, record)
    assert float(record.scalars["global_gradient_norm"]) == 5.0
    assert list(record.histograms) == ["gradients/v0_0"]


ONE = pairs_of(([1.0, 2.0], [3.0, 4.0]))


@pytest.mark.parametrize(
    ("pairs", "lr", "params", "error", "sentence"),
    [
        (ONE, 0.1, {"larc_etta": 1.0}, ValueError, "did you mean 'larc_eta'"),
        (ONE, 0.1, {"larc_eta": 1}, ValueError, "expected a float, got 1"),
        (ONE, "fast", LARC, ValueError, "LARC: lr: expected a number or a 0-d tensor"),
        (ONE, None, LARC, ValueError, "LARC: lr: expected a number or a 0-d tensor"),
        (ONE, -0.1, LARC, ValueError, "LARC: lr: expected a finite number >= 0"),
        (ONE, float("nan"), LARC, ValueError, "a finite number >= 0, got nan"),
        (ONE, [0.1, 0.2], LARC, ValueError, "LARC: lr: expected a number"),
        ([(ONE[0][0], "w")], 0.1, LARC, TypeError, "got str; put the gradient first"),
        (
            [(object(), ONE[0][1])],
            0.1,
            LARC,
            TypeError,
            "or None for 'v0:0', got object",
        ),
        ([(tf.ones([3]), ONE[0][1])], 0.1, LARC, ValueError, r"shape \[2\] for 'v0:0'"),
        ([], 0.1, LARC, ValueError, "at least one"),
        (7, 0.1, LARC, TypeError, "pairs"),
    ],
)
def test_nonsense_is_answered_with_a_sentence(pairs, lr, params, error, sentence):
    with pytest.raises(error, match=sentence):
        post_process_gradients(pairs, [], lr, None, params)


@pytest.mark.parametrize("limit", [0.0, -1, float("nan"), "1"])
def test_a_limit_that_is_no_positive_number_is_refused(limit):
    with pytest.raises(ValueError, match="clip_gradients: expected a finite number"):
        clip_gradients_by_norm(ONE, limit)
    with pytest.raises(ValueError, match="clip_norm: expected a finite number > 0"):
        clip_by_global_norm([tf.ones([2])], limit)


def test_lists_and_norms_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="a sequence of tensors, got an EagerTensor"):
        clip_by_global_norm(tf.ones([2]), 1.0)
    with pytest.raises(TypeError, match="at position 0, got str"):
        clip_by_global_norm(["abc"], 1.0)
    with pytest.raises(TypeError, match=r"use_norm: .* got shape \[2\]"):
        clip_by_global_norm([tf.ones([2])], 1.0, [1.0, 2.0])


@pytest.mark.parametrize("norm", [-2.0, -1])
def test_a_norm_that_is_a_negative_number_is_refused_unless_strict(norm):
    with pytest.raises(ValueError, match="use_norm: expected a number >= 0, got -"):
        clip_by_global_norm([tf.ones([2])], 1.0, norm)
    strict.clip_by_global_norm([tf.ones([2])], 1.0, norm)
    assert np.isnan(clip_by_global_norm([tf.ones([2])], 1.0, float("nan"))[1])


def test_a_gradient_of_another_shape_is_not_clipped_unless_strict():
    odd = [(tf.ones([3]), ONE[0][1])]
    for clip in (
        lambda: clip_gradients_by_norm(odd, 1.0),
        lambda: post_process_gradients(odd, [], 0.1, 1.0, None),
    ):
        with pytest.raises(ValueError, match=r"shape \[2\] for .*, got \[3\]"):
            clip()
    assert len(strict.clip_gradients_by_norm(odd, 1.0)) == 1


def test_what_is_no_recorder_is_refused_before_it_is_told_anything():
    writer = type("SummaryWriter", (), {"add_scalar": None})()
    for recorder, sentence in ((3, "got an int"), (writer, "wrap it: TensorBoardRec")):
        with pytest.raises(TypeError, match=sentence):
            post_process_gradients(ONE, [], 0.1, None, None, recorder)


def test_the_names_of_the_original_are_there():
    assert _clip_by_global_norm is clip_by_global_norm
    assert _clip_gradients_by_norm is clip_gradients_by_norm
    clipped, norm = strict._clip_by_global_norm([tf.constant(3.0)], 1.0, 5.0)
    assert (clipped[0].shape, float(norm)) == ([1], 5.0)


def test_losses_of_a_v1_graph_are_found_by_scope():
    with tf.Graph().as_default():
        for scope in ("encoder", "decoder"):
            with v1.variable_scope(scope):
                v1.get_variable("w", [2], regularizer=tf.nn.l2_loss)
        total = get_regularization_loss("encoder")
        collected = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        assert total.op.name == "total_regularization_loss"
        assert len(collected) == 2


def test_eagerly_losses_have_to_be_handed_over():
    with pytest.raises(ValueError, match=r"expected losses=.*pass losses=\{name:"):
        get_regularization_loss()
    assert float(get_regularization_loss(losses=[tf.constant(1.5), None])) == 1.5


def test_without_horovod_there_is_nothing_to_reduce_with():
    with pytest.raises(NotImplementedError, match="expected on_horovod=True"):
        reduce_gradients(ONE, on_horovod=False)
    assert reduce_gradients(ONE, on_horovod=True)[0][0] is ONE[0][0]


TWO_REPLICAS = """
import tensorflow as tf
from lockstep.tf import reduce_gradients

cpus = tf.config.list_physical_devices("CPU")
logical = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpus[0], [logical, logical])
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    shapes = [2], [3, 1], [1], [4]
    weights = [tf.Variable(tf.zeros(shape)) for shape in shapes]


@tf.function
def step():
    here = tf.distribute.get_replica_context().replica_id_in_sync_group
    first = tf.get_static_value(here) == 0
    rows = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 0]))
    rank = tf.cast(here, tf.float32)
    gradients = [tf.ones([2]) + rank, rows, tf.ones([1]) if first else None, None]
    pairs = reduce_gradients(zip(gradients, weights), on_horovod=True)
    assert pairs[3][0] is None
    return [gradient for gradient, _ in pairs[:3]]


found = strategy.run(step)
for gradient in found:
    results = strategy.experimental_local_results(gradient)
    print([value.numpy().tolist() for value in results])
try:
    with strategy.scope():
        reduce_gradients(list(zip([None] * 4, weights)), on_horovod=True)
except RuntimeError as error:
    print(error)
"""


def test_two_replicas_get_the_mean_and_agree_on_what_is_absent(shared):
    dense, rows, absent, refused = shared(TWO_DEVICES, TWO_REPLICAS).splitlines()
    assert dense == "[[1.5, 1.5], [1.5, 1.5]]"
    assert rows == "[[[2.0], [0.0], [0.0]], [[2.0], [0.0], [0.0]]]"
    assert absent == "[[0.5], [0.5]]"
    assert "call it inside strategy.run" in refused


def test_a_rate_in_float64_is_taken_unless_strict():
    pairs = pairs_of(([60.0, 80.0], [3.0, 4.0]))
    rate = tf.constant(0.125, tf.float64)
    assert np.array_equal(larc(pairs, rate), larc(pairs, 0.125))
    with pytest.raises(DtypeError, match="a float32 tensor, got float64"):
        strict.post_process_gradients(pairs, [], rate, None, LARC)
