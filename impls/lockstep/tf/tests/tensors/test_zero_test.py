"""What counts as all zero, and that the batched look agrees with the single one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from harness.parity.drivers.numpy_values import to_tensor
from lockstep.reference.tensors.zero_test import is_all_zero as reference_is_all_zero
from lockstep.tf.shared.tensors.zero_test import (
    GLIMPSE,
    all_zero_flags,
    is_all_zero,
    some_may_be_zero,
)
from lockstep.tf.tests.trajectory import rows

LATE = np.eye(1, 3 * GLIMPSE, 2 * GLIMPSE, dtype=np.float32)[0]

CASES = {
    "zeros": (np.zeros((2, 3), np.float32), True),
    "negative zeros": (np.array([-0.0, 0.0], np.float32), True),
    "a zero scalar": (np.float32(0), True),
    "no elements": (np.zeros((0, 3), np.float32), True),
    "one nonzero element": (np.array([0, 0, 1], np.float32), False),
    "a nonzero element behind many zeros": (LATE, False),
    "a scalar": (np.float32(-2), False),
    "NaN": (np.array([0, np.nan], np.float32), False),
    "infinity": (np.array([0, -np.inf], np.float32), False),
    "a square that underflows": (np.array([1e-30, 0], np.float32), False),
    "float32 subnormals": (np.array([1e-40, -1e-42], np.float32), True),
    "float64 subnormals": (np.array([1e-310]), True),
    "float16 subnormals": (np.array([6e-8], np.float16), False),
    "float16 zeros": (np.zeros(3, np.float16), True),
    "float64 below float32": (np.array([1e-200]), False),
    "complex zeros": (np.zeros((2, 3), np.complex64), True),
    "an imaginary number": (np.array([0, 1j], np.complex64), False),
    "rows": (rows([2, 0], [[0, 0], [0, 1]], 4, 2), False),
    "rows of zeros": (rows([1, 3], [[0, 0], [0, 0]], 4, 2), True),
    "rows that cancel": (rows([1, 1, 1], [[2, 0], [-1, 0], [-1, 0]], 4, 2), True),
    "rows that cancel but one": (rows([1, 1, 2], [[1], [-1], [3]], 4, 1), False),
    "equal values in other rows": (rows([1, 2], [[1], [-1]], 4, 1), False),
    "no rows": (rows([], [], 4, 2), True),
    "no dense_shape": (rows([0], [[0.0]]), True),
}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("case", CASES)
def test_zero_is_what_the_table_says(case: str, traced: bool) -> None:
    gradient, expected = CASES[case]
    test = tf.function(is_all_zero, autograph=False) if traced else is_all_zero
    assert bool(test(to_tensor(gradient))) is expected


@pytest.mark.parametrize("case", CASES)
def test_the_reference_says_the_same(case: str) -> None:
    gradient, expected = CASES[case]
    assert reference_is_all_zero(gradient, flush=True) is expected


def test_flags_of_many_gradients_are_those_of_each() -> None:
    flags = all_zero_flags([to_tensor(gradient) for gradient, _ in CASES.values()])
    assert flags.numpy().tolist() == [expected for _, expected in CASES.values()]


@pytest.mark.parametrize("case", CASES)
def test_a_glimpse_never_misses_a_zero_gradient(case: str) -> None:
    gradient, expected = CASES[case]
    others = [tf.ones([3]), to_tensor(gradient), tf.ones([], tf.float16)]
    assert bool(some_may_be_zero(others)) or not expected


def test_a_glimpse_settles_the_usual_step() -> None:
    gradients = [
        tf.ones([2, 3]),
        tf.constant([np.nan]),
        to_tensor(rows([1], [[4.0]], 2, 1)),
        tf.constant([0j, 1j], tf.complex64),
    ]
    assert not some_may_be_zero(gradients)
