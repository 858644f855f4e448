"""How far a value is from the recorded one, and how recorded values are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.parity.cases import Case, array, gradient
from harness.parity.cases import Variable as Recorded
from harness.parity.distance import distance, largest_weights, operands
from harness.parity.tests.judged import single
from lockstep.interface import Rows


@pytest.mark.parametrize(
    ("got", "expected", "ulp", "raw"),
    [
        (single(1.0), single(1.0), 0, 0),
        (single(np.nextafter(np.float32(1), 2)), single(1.0), 1, 1),
        (single(-0.0), single(0.0), 0, 0),
        (single(np.nan), single(np.nan), 0, 0),
        (single(np.nan), single(1.0), math.inf, math.inf),
        (single(np.inf), single(-np.inf), math.inf, math.inf),
        (single(np.inf), single(3e38), math.inf, math.inf),
        (single(1e-45), single(-1e-45), 2, 2),
        (single(1.0, 1e-9), single(1.0, 0.0), 1e-9 / 2**-23, None),
        (single(1.0, dtype=np.float16), single(1.0009766, dtype=np.float16), 1, 1),
        (np.array(3), np.array(4), math.inf, math.inf),
        (np.array("absent"), np.array("absent"), 0, 0),
        (single(1.0), single(1.0, 2.0), math.inf, math.inf),
        (single(1.0, dtype=np.float64), single(1.0), math.inf, math.inf),
        (single(), single(), 0, 0),
    ],
)
def test_distances(got: Any, expected: Any, ulp: float, raw: float | None) -> None:
    found = distance(got, expected)
    assert found.ulp == pytest.approx(ulp)
    assert raw is None or found.raw == raw


def test_half_precision_is_rounded_before_it_is_widened() -> None:
    value = array(0.577, "float16")
    assert value.dtype == np.float16
    assert float(value) != 0.577


def test_strings_are_the_values_json_does_not_have() -> None:
    decoded = array(["inf", "-inf", "nan", -0.0], "float32")
    assert np.isposinf(decoded[0])
    assert np.isneginf(decoded[1])
    assert np.isnan(decoded[2])
    assert np.signbit(decoded[3])


def test_a_sparse_gradient_without_rows_keeps_its_trailing_dimensions() -> None:
    recorded = Recorded("t", np.zeros((4, 2), np.float32))
    empty = gradient({"indices": [], "values": [], "dense_shape": [4, 2]}, recorded)
    assert isinstance(empty, Rows)
    assert empty.values.shape == (0, 2)


def test_what_differs_by_the_floor_is_equal() -> None:
    got, expected = single(1e-38, 2.0), single(0.0, 2.0)
    assert distance(got, expected).ulp > 0
    assert distance(got, expected, floor=1e-37).ulp == 0
    assert distance(single(2e-37, 2.0), expected, floor=1e-37).ulp > 0
    assert distance(single(np.nan), single(0.0), floor=1e-37).ulp == math.inf


def test_the_largest_half_is_spaced_as_the_one_before() -> None:
    largest, before = (
        single(65504.0, dtype=np.float16),
        single(65472.0, dtype=np.float16),
    )
    assert distance(before, largest).ulp == 1
    assert distance(largest, before).ulp == 1


# Operands


@pytest.mark.parametrize(
    ("args", "largest"),
    [
        ({"learning_rate": 0.5}, 3.0 / 0.5 * 2.0),
        ({"learning_rate": 0.5, "learning_rate_power": -1.0}, 9.0 / 0.5 * 2.0),
    ],
)
def test_what_ftrl_subtracts_is_far_larger_than_its_linear(
    args: dict[str, float], largest: float
) -> None:
    first = {"variables/w": single(0.25, -2.0, 1.0)}
    before = largest_weights(first, {"variables/w": single(0.125, 0.5, -4.0)})
    after = {
        "slots/accum/w": single(4.0, 9.0, np.inf),
        "slots/linear/w": single(0.1, 0.1, np.nan),
        "variables/w": single(7.0, 7.0, np.nan),
    }
    given = {"optimizer": {"name": "Ftrl", "args": args}}
    found = operands(Case("base_optimizers", "id", "dense", given, {}), before, after)
    assert found == {"slots/linear/w": pytest.approx(largest)}
    given = {"optimizer": {"name": "Adagrad", "args": args}}
    assert not operands(Case("base_optimizers", "id", "", given, {}), before, after)
