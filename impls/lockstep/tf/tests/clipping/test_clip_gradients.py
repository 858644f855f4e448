"""Clipping by the global norm, against the reference and at its edges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors, reference
from lockstep.interface import Rows
from lockstep.reference import strict as reference_strict
from lockstep.tf import clip_by_global_norm, clip_gradients_by_global_norm
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import draw, rows, scaled_ulp

GRADIENTS = draw(11, [(3,), (40, 2), ()], steps=0)[0]
HALF = [gradient.astype(np.float16) for gradient in GRADIENTS]
TABLE = rows([2, 0, 2], [[1, -2], [3, 0.5], [-0.25, 4]], 4, 2)

CASES = {
    "dense": GRADIENTS,
    "absent": [GRADIENTS[0], None, GRADIENTS[2]],
    "all absent": [None, None],
    "all zero": [np.zeros(3, np.float32), np.float32(0)],
    "float16": HALF,
    "a NaN": [np.float32([1, np.nan]), np.float32([0, 0])],
    "an overflowing square": [np.float32([1e30, 1]), np.float32([0, 0])],
}
ONLY_BY_DEFAULT = {
    "sparse": [GRADIENTS[0], TABLE],
    "rows that cancel": [rows([1, 1], [[3, 4], [-3, -4]], 4, 2), GRADIENTS[0]],
    "mixed dtypes": [GRADIENTS[0], HALF[1]],
    "a float16 norm above 65504": [np.float16([6e4, 6e4]), HALF[0]],
}


def arrays(gradient: Any) -> np.ndarray:
    return gradient.values if isinstance(gradient, Rows) else np.asarray(gradient)


def assert_equal_to(oracle: Any, clip: Callable, gradients: list, driver: Any) -> None:
    expected, norm = oracle([(gradient, 0) for gradient in gradients], 1.5)

    def step(given: list[Any]) -> list[Any]:
        pairs, found = clip([(gradient, 0) for gradient in given], 1.5)
        return [[gradient for gradient, _ in pairs], found]

    clipped, found = driver.compile(step)(gradients)
    assert found.dtype == norm.dtype
    assert scaled_ulp(found, norm) <= 1
    for ours, (theirs, _) in zip(clipped, expected, strict=True):
        if theirs is None:
            assert ours is None
            continue
        assert arrays(ours).dtype == arrays(theirs).dtype
        assert scaled_ulp(arrays(ours), arrays(theirs)) <= 2


@pytest.mark.parametrize("case", CASES | ONLY_BY_DEFAULT)
def test_default_clips_as_the_reference(case: str, new_driver: Callable) -> None:
    gradients = (CASES | ONLY_BY_DEFAULT)[case]
    oracle = reference.clip_gradients_by_global_norm
    assert_equal_to(oracle, clip_gradients_by_global_norm, gradients, new_driver())


@pytest.mark.parametrize("case", CASES)
def test_strict_clips_as_the_reference(case: str, new_driver: Callable) -> None:
    oracle = reference_strict.clip_gradients_by_global_norm
    clip = lockstep_strict.clip_gradients_by_global_norm
    assert_equal_to(oracle, clip, CASES[case], new_driver())


def test_strict_refuses_what_the_original_refused() -> None:
    clip = lockstep_strict.clip_gradients_by_global_norm
    slices = tf.IndexedSlices(tf.ones([1, 2]), [0])
    with pytest.raises(errors.UnsupportedError, match="a sparse one"):
        clip([(slices, None)])
    with pytest.raises(errors.DtypeError, match="got float16 and float32"):
        clip([(tf.ones([1]), None), (tf.ones([1], tf.float16), None)])


def test_strict_takes_any_norm() -> None:
    pairs, _ = lockstep_strict.clip_gradients_by_global_norm(
        [(tf.ones([1]), None)], 0.0
    )
    assert pairs[0][0].numpy().tolist() == [0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_norm_that_is_not_finite_can_be_an_error(bad: float) -> None:
    pairs = [(tf.constant([1.0, bad]), None)]
    clipped, _ = clip_gradients_by_global_norm(pairs)
    assert np.isnan(clipped[0][0]).all()
    with pytest.raises(
        errors.NonFiniteNormError, match="expected a finite global norm"
    ):
        clip_gradients_by_global_norm(pairs, error_if_nonfinite=True)


def test_in_a_graph_that_is_an_assertion() -> None:
    @tf.function(autograph=False)
    def clip(gradient: tf.Tensor) -> tf.Tensor:
        pairs, _ = clip_gradients_by_global_norm(
            [(gradient, None)], 1.0, error_if_nonfinite=True
        )
        return pairs[0][0]

    assert clip(tf.constant([3.0, 4.0])).numpy() == pytest.approx([0.6, 0.8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a finite global norm"):
        clip(tf.constant([3.0, np.inf]))


@pytest.mark.parametrize(
    "gradient",
    [
        tf.ones([2, 1]),
        tf.IndexedSlices(tf.ones([1, 4]), tf.constant([0])),
    ],
    ids=["dense", "rows"],
)
def test_a_gradient_of_another_shape_than_its_variable_is_refused(
    gradient: tf.Tensor | tf.IndexedSlices,
) -> None:
    w = tf.Variable(tf.ones([1, 2]), name="w")
    with pytest.raises(errors.ShapeError, match=r"gradient of shape .* for 'w'"):
        clip_gradients_by_global_norm([(gradient, w)])


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
def test_what_is_no_tensor_is_refused_in_a_sentence(in_graph: bool) -> None:
    # TensorFlow itself raises a ValueError eagerly and a TypeError in a graph.
    graph = tf.Graph().as_default() if in_graph else contextlib.nullcontext()
    refusal = pytest.raises(errors.MalformedPairsError, match="None at position 0, got")
    with graph, refusal:
        clip_by_global_norm([object()], 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("clip_norm", [5.21e38, 2.00097656250001, 20, np.float64(0.7)])
def test_strict_rounds_the_limit_once_and_takes_any_number(
    clip_norm: float, dtype: type
) -> None:
    """Beyond the dtype it is infinite; 2.000976... in float32 is a tie of float16."""
    gradient = np.array([3.0, 4.0], dtype)
    weight = tf.Variable(np.zeros(2, dtype))
    pairs = [(tf.constant(gradient), weight)]
    clipped, _ = lockstep_strict.clip_gradients_by_global_norm(pairs, clip_norm)
    variable = reference.Variable("w", np.zeros(2, dtype))
    with np.errstate(all="ignore"):
        wanted, _ = reference_strict.clip_gradients_by_global_norm(
            [(gradient, variable)], clip_norm
        )
    np.testing.assert_array_equal(clipped[0][0].numpy(), wanted[0][0])
