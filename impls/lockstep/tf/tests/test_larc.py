"""LARC: ratios, rates, summaries and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors, reference
from lockstep.reference.post_process import SummaryRecord
from lockstep.tf import post_process_gradients, strict

v1 = tf.compat.v1
LARC = {"larc_eta": 0.01}
NAMES = ["gradients", "global_gradient_norm", "larc_summaries"]
BOTH_MODES = pytest.mark.parametrize("mode", ["clip", "scale"])


def pairs_of(*values, dtype=tf.float32):
    return [
        (
            None if g is None else tf.constant(g, dtype),
            tf.Variable(w, name=f"v{k}", dtype=dtype),
        )
        for k, (g, w) in enumerate(values)
    ]


def drawn(*shapes, dtype=tf.float32):
    random = np.random.default_rng(0)
    return pairs_of(*(random.normal(size=(2, *shape)) for shape in shapes), dtype=dtype)


def larc(pairs, lr=0.1, **params):
    processed = post_process_gradients(pairs, [], lr, None, {**LARC, **params})
    return [gradient for gradient, _ in processed]


@BOTH_MODES
@pytest.mark.parametrize("options", [{}, {"min_update": 0.5}, {"epsilon": 3.0}])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.bfloat16])
def test_large_and_small_tensors_agree_with_the_reference(mode, dtype, options):
    pairs = drawn((300, 401), (5,), (), (1 << 14,), dtype=dtype)
    params = {**LARC, "larc_mode": mode, **options}
    for (gradient, weight), ours in zip(pairs, larc(pairs, **params), strict=True):
        variable = reference.Variable("w", weight.numpy().astype(np.float64))
        wide = gradient.numpy().astype(np.float64)
        ((expected, _),) = reference.post_process_gradients(
            [(wide, variable)], [], 0.1, None, params
        )
        # bfloat16 rounds twice, by half of 2^-7; else norms are sums in float32.
        within = 2.0**-7 if dtype == tf.bfloat16 else 4e-6
        np.testing.assert_allclose(ours.numpy().astype("f8"), expected, rtol=within)
        assert ours.dtype == dtype


@BOTH_MODES
def test_another_order_of_pairs_changes_no_bit(mode):
    pairs = drawn((3, 4), (5,), (5,), (20000,))
    expected = larc(pairs, larc_mode=mode)[::-1]
    for got, wanted in zip(larc(pairs[::-1], larc_mode=mode), expected, strict=True):
        assert np.array_equal(got, wanted)


def test_a_function_is_traced_once_and_takes_the_rate_as_it_changes():
    pairs, traces = pairs_of(([60.0, 80.0], [3.0, 4.0])), []

    @tf.function
    def step(rate):
        traces.append(rate)
        return larc(pairs, rate)[0]

    got = [step(tf.constant(rate))[0] for rate in (0.1, 0.01, 1e-6)]
    # A rate, a ratio and a product in float32.
    np.testing.assert_allclose(got, [0.3, 3.0, 60.0], rtol=1e-6)
    assert len(traces) == 1


def test_pairs_come_back_with_the_variables_that_were_given_and_absent_ones():
    pairs = pairs_of(([1.0], [2.0]), (None, [3.0]))
    processed = post_process_gradients(iter(pairs), [], 0.1, 1.0, LARC)
    assert all(v is w for (_, v), (_, w) in zip(processed, pairs, strict=True))
    assert processed[1][0] is None


@BOTH_MODES
@pytest.mark.parametrize("zero", ["weight", "gradient", "rate"])
def test_where_a_norm_or_the_rate_is_zero_the_gradient_stays(mode, zero):
    weight = [float(zero != "weight")] * 2
    gradient = [3.0 * (zero != "gradient"), 4.0 * (zero != "gradient")]
    pairs = pairs_of((gradient, weight))
    (scaled,) = larc(pairs, lr=0.1 * (zero != "rate"), larc_mode=mode)
    assert np.array_equal(scaled, gradient) == (zero != "rate" or mode == "clip")


def test_a_norm_of_nan_is_not_hidden_by_a_norm_of_zero():
    (got,) = larc(pairs_of(([0.0, 0.0], [float("nan"), 1.0])))
    assert np.isnan(got).all()


def test_a_ratio_beyond_float16_is_its_largest_number():
    pairs = pairs_of(([2.0**-14], [2.0**15]), dtype=tf.float16)
    (scaled,) = larc(pairs, larc_eta=1.0, larc_mode="scale")
    assert float(scaled[0]) == pytest.approx(65504 * 2.0**-14)


def test_sparse_gradients_stay_sparse_and_their_duplicates_count_once_summed():
    rows = tf.IndexedSlices(tf.constant([[3.0, 0.0], [0.0, 4.0]]), tf.constant([1, 1]))
    table = tf.Variable(tf.ones([3, 2]))
    (got,) = larc([(rows, table)], larc_mode="scale")
    dense = tf.math.unsorted_segment_sum(rows.values, rows.indices, 3)
    (wanted,) = larc([(dense, table)], larc_mode="scale")
    assert isinstance(got, tf.IndexedSlices)
    np.testing.assert_array_equal(got.values, [wanted[1] * [1, 0], wanted[1] * [0, 1]])


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
    written = []
    monkeypatch.setattr(tf.summary, "scalar", lambda *a: written.append(a))
    pairs = pairs_of(([3.0, 4.0], [3.0, 4.0]))
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=3):
        post_process_gradients(pairs, ["global_gradient_norm"], 0.1, None, None)
    post_process_gradients(pairs, NAMES, 0.1, None, LARC)  # Without a writer.
    assert [(tag, float(v)) for tag, v in written] == [("global_gradient_norm", 5.0)]


def test_a_recorder_gets_tensors():
    record = SummaryRecord()
    pairs = pairs_of(([3.0, 4.0], [1.0, 1.0]), (None, [1.0]))
    names = [*NAMES, "variable_norm"]
    post_process_gradients(pairs, names, 0.1, 2.5, LARC, record)
    assert float(record.scalars["global_gradient_norm"]) == 5.0
    assert float(record.scalars["global_clipped_gradient_norm"]) == 2.5
    assert float(record.scalars["variable_norm/v0_0"]) == pytest.approx(2**0.5)
    ratio = record.scalars["larc_grad_update/v0_0"]
    assert float(ratio) == pytest.approx(0.01 * 2**0.5 / (0.1 * 2.5))
    assert int(record.scalars["larc_clip_on/v0_0"]) == 1
    assert list(record.histograms) == ["gradients/v0_0"]


ONE = pairs_of(([1.0, 2.0], [3.0, 4.0]))
ODD = [(tf.ones([3]), ONE[0][1])]
HALF = [(tf.ones([2], tf.float16), ONE[0][1])]
BAD = {
    "an unknown name": (ONE, 0.1, {"larc_etta": 1.0}, ValueError),
    "an integer": (ONE, 0.1, {"larc_eta": 1}, ValueError),
    "no eta": (ONE, 0.1, {"larc_mode": "clip"}, ValueError),
    "an unknown mode": (ONE, 0.1, {**LARC, "larc_mode": "clap"}, ValueError),
    "a negative eta": (ONE, 0.1, {"larc_eta": -1.0}, ValueError),
    "an eta of 0": (ONE, 0.1, {"larc_eta": 0.0}, ValueError),
    "a negative epsilon": (ONE, 0.1, {**LARC, "epsilon": -1.0}, ValueError),
    "an infinite ratio": (ONE, 0.1, {**LARC, "min_update": np.inf}, ValueError),
    "a number": (ONE, 0.1, 0.001, ValueError),
    "a negative rate": (ONE, -0.1, LARC, ValueError),
    "a rate of NaN": (ONE, float("nan"), LARC, ValueError),
    "two rates": (ONE, [0.1, 0.2], LARC, ValueError),
    "another shape": (ODD, 0.1, LARC, ValueError),
    "another dtype": (HALF, 0.1, LARC, TypeError),
    "no pairs": ([], 0.1, LARC, ValueError),
    "a number as pairs": (7, 0.1, LARC, TypeError),
    "no gradient": ([(object(), ONE[0][1])], 0.1, LARC, TypeError),
    "a name": ([(ONE[0][0], "w")], 0.1, LARC, TypeError),
}


@pytest.mark.parametrize(("pairs", "lr", "params", "error"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(pairs, lr, params, error):
    with pytest.raises(error) as caught:
        post_process_gradients(pairs, [], lr, None, params)
    assert isinstance(caught.value, errors.LockstepError)


def test_strict_makes_rows_dense_and_refuses_absent_gradients():
    rows = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]))
    table = tf.Variable(tf.ones([3, 2]))
    ((dense, _),) = strict.post_process_gradients([(rows, table)], [], 0.1, None, LARC)
    assert dense.shape == [3, 2]
    with pytest.raises(errors.UnsupportedError):
        strict.post_process_gradients([(None, table)], [], 0.1, None, LARC)
    half = tf.constant(0.1, tf.float16)
    with pytest.raises(TypeError):
        strict.post_process_gradients([(rows, table)], [], half, None, LARC)


def test_a_rate_in_float64_is_taken():
    pairs = pairs_of(([60.0, 80.0], [3.0, 4.0]))
    rate = tf.constant(0.125, tf.float64)
    assert np.array_equal(larc(pairs, rate), larc(pairs, 0.125))
