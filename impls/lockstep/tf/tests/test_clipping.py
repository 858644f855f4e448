"""Clipping by the global norm: three functions, and their norm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors, reference
from lockstep.reference import strict as reference_strict
from lockstep.tf import (
    _clip_by_global_norm,
    _clip_gradients_by_norm,
    clip_by_global_norm,
    clip_gradients_by_global_norm,
    clip_gradients_by_norm,
    post_process_gradients,
    strict,
)

SPARSE = tf.IndexedSlices(
    tf.constant([[1.0], [4.0], [2.0]]), tf.constant([2, 0, 2]), tf.constant([3, 1])
)


def by_list(gradients, limit):
    """Clip a list of tensors."""
    return clip_by_global_norm(gradients, limit)[0]


def by_norm(gradients, limit):
    """Clip pairs with variables of the same dtypes."""
    pairs = [(g, variable_for(g)) for g in gradients]
    return [gradient for gradient, _ in clip_gradients_by_norm(pairs, limit)]


def by_global_norm(gradients, limit):
    """Clip pairs with anything as variables."""
    pairs = [(g, k) for k, g in enumerate(gradients)]
    clipped, _ = clip_gradients_by_global_norm(pairs, limit)
    assert [k for _, k in clipped] == list(range(len(gradients)))
    return [gradient for gradient, _ in clipped]


def variable_for(gradient):
    if gradient is None:
        return tf.Variable(0.0)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.Variable(tf.zeros([3, 1]))
    return tf.Variable(tf.zeros_like(gradient))


FUNCTIONS = {"list": by_list, "norm": by_norm, "global norm": by_global_norm}
each = pytest.mark.parametrize("clip", FUNCTIONS.values(), ids=FUNCTIONS)


def normal(*sizes):
    random = np.random.default_rng(1)
    return [tf.constant(random.normal(size=n).astype(np.float32)) for n in sizes]


@each
def test_gradients_above_the_norm_are_scaled_down_to_it(clip):
    given = [tf.constant([3.0]), None, tf.constant([[4.0]]), tf.constant(0.0)]
    first, absent, second, third = clip(given, 2.5)
    assert (first.numpy().tolist(), absent) == ([1.5], None)
    assert (second.numpy().tolist(), third.shape) == ([[2.0]], ())


@each
def test_gradients_below_the_norm_keep_their_bits(clip):
    (gradient,) = normal(50)
    (below,) = clip([gradient], 64.0)
    assert np.array_equal(below, gradient)


@each
@pytest.mark.parametrize("power", [-20, -1, 3, 40])
def test_scaling_all_by_a_power_of_two_changes_no_bit(clip, power):
    gradients = normal(3, 50, 5000)
    clipped = clip([g * 2.0**power for g in gradients], 2.0**power)
    for got, expected in zip(clipped, clip(gradients, 1.0), strict=True):
        assert np.array_equal(got, expected * 2.0**power)


@each
def test_the_rows_of_a_sparse_gradient_are_summed_in_the_norm_and_stay_sparse(clip):
    (clipped,) = clip([SPARSE], 2.5)
    assert clipped.indices is SPARSE.indices
    assert clipped.values.numpy().flatten().tolist() == [0.5, 2.0, 1.0]


@each
def test_dtypes_mix_and_float16_does_not_overflow(clip):
    half = tf.constant([300.0], tf.float16)
    first, second = clip([half, tf.constant([400.0])], 250.0)
    assert (float(first[0]), float(second[0])) == (150.0, 200.0)
    assert first.dtype == (tf.float32 if clip is by_list else tf.float16)


@each
def test_complex_gradients_are_refused(clip):
    with pytest.raises(errors.DtypeError, match="complex64"):
        clip([tf.ones([2]), tf.constant([3 + 4j, 0j], tf.complex64)], 2.5)


@each
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_shows(clip, value):
    first, second = clip([tf.constant([value]), tf.ones([2])], 1.0)
    assert np.isnan(first).all()
    finite = value == math.inf and clip is not by_global_norm
    assert np.nan_to_num(second, nan=-1.0).tolist() == [finite - 1.0] * 2


@each
@pytest.mark.parametrize("gradient", [None, tf.zeros([2]), tf.zeros([0])])
def test_without_a_nonzero_element_nothing_changes(clip, gradient):
    (clipped,) = clip([gradient], 1.0)
    assert gradient is None or not np.any(clipped)


@each
@pytest.mark.parametrize("limit", [0, -1.0, math.inf, math.nan, "1", None, True, 1e-45])
def test_a_limit_that_is_no_positive_number_is_refused(clip, limit):
    with pytest.raises(errors.OutOfRangeError, match="clip"):
        clip([tf.ones([2])], limit)


def test_a_function_is_traced_once_and_clips_as_eagerly():
    weight, traces = tf.Variable(tf.zeros([7])), []

    def clip(gradient):
        traces.append(1)
        first = clip_gradients_by_norm([(gradient, weight)], 1.5)
        second, _ = clip_gradients_by_global_norm(first, 1.25)
        return clip_by_global_norm([second[0][0]], 1.125)[0][0]

    step = tf.function(clip)
    results = [step(g) for g in (*normal(7), tf.ones([7]), tf.zeros([7]))]
    assert len(traces) == 1
    assert np.array_equal(results[0], clip(*normal(7)))


def test_the_default_limit_is_twenty_and_the_norm_is_returned():
    pairs, norm = clip_gradients_by_global_norm([(tf.constant([40.0]), "w")])
    assert pairs[0][0].numpy().tolist() == [20.0]
    assert (norm.shape, norm.dtype, float(norm)) == ((), tf.float32, 40.0)


def test_a_norm_that_is_not_finite_can_be_an_error():
    def clip(gradient):
        return clip_gradients_by_global_norm(
            [(gradient, None)], 1.0, error_if_nonfinite=True
        )[0][0][0]

    bad = tf.constant([3.0, np.inf])
    with pytest.raises(errors.NonFiniteNormError, match="a finite global norm"):
        clip(bad)
    in_graph = tf.function(clip)
    assert np.array_equal(
        in_graph(tf.constant([3.0, 4.0])), clip(tf.constant([3.0, 4.0]))
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="a finite global norm"):
        in_graph(bad)


def test_the_norm_may_be_given_left_out_or_come_with_an_iterator():
    tensors = [tf.constant([3.0, 4.0]), None, tf.constant(12.0)]
    clipped, norm = clip_by_global_norm(iter(tensors), 6.5)
    again, _ = clip_by_global_norm(tensors, 6.5, 13)
    assert float(norm) == 13.0
    assert np.array_equal(clipped[0], again[0])
    assert (clipped[1], clipped[2].shape, float(clipped[2])) == (
        None,
        (),
        float(again[2]),
    )
    assert np.isnan(clip_by_global_norm(tensors, 1.0, math.nan)[1])


W = tf.Variable([1.0, 2.0], name="w")
BAD = {
    "a tensor": (lambda: clip_by_global_norm(tf.ones([2, 2]), 1.0), TypeError),
    "a string": (lambda: clip_by_global_norm("ab", 1.0), TypeError),
    "no tensor": (lambda: clip_by_global_norm([object()], 1.0), TypeError),
    "text": (lambda: clip_by_global_norm(["ab"], 1.0), TypeError),
    "a negative norm": (lambda: clip_by_global_norm([W], 1.0, -2), ValueError),
    "no pairs": (lambda: clip_gradients_by_global_norm([]), ValueError),
    "None": (lambda: clip_gradients_by_global_norm(None), TypeError),
    "integers": (
        lambda: clip_gradients_by_global_norm([(tf.constant([3]), None)]),
        TypeError,
    ),
    "another shape": (
        lambda: clip_gradients_by_global_norm([(tf.ones([3]), W)]),
        ValueError,
    ),
    "no pair": (lambda: clip_gradients_by_norm([W], 1.0), TypeError),
    "swapped": (lambda: clip_gradients_by_norm([(W, tf.ones([2]))], 1.0), TypeError),
    "a name": (lambda: clip_gradients_by_norm([(tf.ones([2]), "w")], 1.0), TypeError),
    "no gradient": (lambda: clip_gradients_by_norm([(object(), W)], 1.0), TypeError),
    "a shape": (lambda: clip_gradients_by_norm([(tf.ones([3]), W)], 1.0), ValueError),
    "a shape, processed": (
        lambda: post_process_gradients([(tf.ones([3]), W)], [], 0.1, 1.0, None),
        ValueError,
    ),
}


@pytest.mark.parametrize(("call", "error"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(call, error):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, errors.LockstepError)


def test_the_names_of_the_original_are_there():
    assert _clip_by_global_norm is clip_by_global_norm
    assert _clip_gradients_by_norm is clip_gradients_by_norm
    clipped, norm = strict._clip_by_global_norm([tf.constant(3.0)], 1.0, 5.0)
    assert (clipped[0].shape, float(norm)) == ([1], 5.0)


def test_strict_refuses_only_what_the_originals_could_not_do():
    clip, sparse = strict.clip_gradients_by_global_norm, [(SPARSE, None)]
    half = [(tf.ones([1]), None), (tf.ones([1], tf.float16), None)]
    for pairs, error in (sparse, errors.UnsupportedError), (half, errors.DtypeError):
        with pytest.raises(error):
            clip(pairs)
    with pytest.raises(errors.UnsupportedError):
        strict.clip_gradients_by_norm([(None, W)], 1.0)
    with pytest.raises(TypeError):
        clip_by_global_norm(iter([W]), 1.0, 1.0, strict=True)
    assert clip([(tf.ones([1]), None)], 0.0)[0][0][0].numpy().tolist() == [0.0]
    strict.clip_by_global_norm([W], -1.0, -2.0)
    assert len(strict.clip_gradients_by_norm([(tf.ones([3]), W)], 1.0)) == 1


def test_strict_does_not_sum_duplicate_rows_in_opensequences_norm():
    pairs = [(SPARSE, tf.Variable(tf.zeros([3, 1])))]
    ((clipped, _),) = clip_gradients_by_norm(pairs, 1.0, strict=True)
    # sqrt(1 + 16 + 4) in place of sqrt(9 + 16).
    assert float(clipped.values[1, 0]) == pytest.approx(4 / math.sqrt(21))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("clip_norm", [5.21e38, 2.00097656250001, 20, np.float64(0.7)])
def test_strict_rounds_the_limit_once_and_takes_any_number(clip_norm, dtype):
    """Beyond the dtype it is infinite; 2.000976... in float32 is a tie of float16."""
    gradient = np.array([3.0, 4.0], dtype)
    pairs = [(tf.constant(gradient), tf.Variable(np.zeros(2, dtype)))]
    clipped, _ = clip_gradients_by_global_norm(pairs, clip_norm, strict=True)
    variable = reference.Variable("w", np.zeros(2, dtype))
    with np.errstate(all="ignore"):
        wanted, _ = reference_strict.clip_gradients_by_global_norm(
            [(gradient, variable)], clip_norm
        )
    np.testing.assert_array_equal(clipped[0][0].numpy(), wanted[0][0])
