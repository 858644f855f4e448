"""Strict norms are added up in eight lanes, as the recording's kernel did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array
from lockstep.reference import strict as strict_reference
from lockstep.reference.clipping.clip_gradients import lane_sum

torch = pytest.importorskip("torch")
pytorch_strict = pytest.importorskip("lockstep.pytorch.strict")

SIZES = [1, 7, 8, 63, 64, 65, 1025, 3001, 8191, 8192]
"""From 8193 on the original divides the elements among threads."""


def torch_sum(values: Array) -> Array:
    from lockstep.pytorch.clipping.clip_gradients import lane_sum as torch_lane_sum

    others = values[::-1].copy(), values[1:]
    sums = torch_lane_sum(torch.tensor(v) for v in (others[0], values, others[1]))
    return np.asarray(sums[1])


SUMS = {"reference": lane_sum, "pytorch": torch_sum}
each_sum = pytest.mark.parametrize("total", SUMS.values(), ids=SUMS.keys())


def one_by_one(values: Array) -> np.float32:
    """Add in eight lanes, one element after the other: nothing of NumPy's order."""
    lanes, whole = [np.float32(0)] * 8, values.size - values.size % 8
    for position in range(whole):
        lanes[position % 8] = np.float32(lanes[position % 8] + values[position])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    rest = np.float32(0)
    for value in values[whole:]:
        rest = np.float32(rest + value)
    return lanes[0] + rest


def drawn(size: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, size]).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
@each_sum
def test_up_to_8192_elements_are_added_in_eight_lanes(
    total: Callable[[Array], Array], size: int
) -> None:
    squares = np.square(drawn(size))
    assert total(squares) == one_by_one(squares)


@each_sum
def test_more_are_added_up_accurately(total: Callable[[Array], Array]) -> None:
    squares = np.full(1_000_000, 0.1, np.float32)
    exact = np.sum(squares, dtype=np.float64)
    assert total(squares).dtype == np.float32
    assert float(total(squares)) == pytest.approx(float(exact), rel=1e-7)


def larc_of_torch(gradient: Any, weight: Any) -> Any:
    rate = torch.tensor(0.1)
    larc = {"larc_eta": 0.01}
    return pytorch_strict.post_process_gradients(
        [(gradient, weight)], [], rate, None, larc
    )


def larc_of_reference(gradient: Array, weight: Any) -> Any:
    rate, larc = np.float32(0.1), {"larc_eta": 0.01}
    return strict_reference.post_process_gradients(
        [(gradient, weight)], [], rate, None, larc
    )


def novograd_of_torch(gradient: Any, weight: Any) -> Any:
    pairs = [(gradient, weight)]
    pytorch_strict.NovoGrad([weight], learning_rate=0.1).apply_gradients(pairs)
    return pairs


def novograd_of_reference(gradient: Array, weight: Any) -> Any:
    pairs = [(gradient, weight)]
    strict_reference.NovoGrad(0.1).apply_gradients(pairs)
    return pairs


PAIRED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "clip": (
        lambda g, w: strict_reference.clip_gradients_by_norm([(g, w)], 1.5),
        lambda g, w: pytorch_strict.clip_gradients_by_norm([(g, w)], 1.5),
    ),
    "larc": (larc_of_reference, larc_of_torch),
    "novograd": (novograd_of_reference, novograd_of_torch),
}


@pytest.mark.parametrize("size", [8, 65, 1025, 8192])
@pytest.mark.parametrize(("ours", "theirs"), PAIRED.values(), ids=PAIRED.keys())
def test_strict_gradients_and_weights_have_the_same_bits(
    ours: Callable[..., Any], theirs: Callable[..., Any], size: int
) -> None:
    gradient, weight = drawn(size, 1), drawn(size, 2)
    variable = reference.Variable("w", weight)
    parameter = torch.nn.Parameter(torch.tensor(weight))
    [(right, _)] = ours(gradient, variable)
    [(got, _)] = theirs(torch.tensor(gradient), parameter)
    np.testing.assert_array_equal(got.numpy(), right)
    np.testing.assert_array_equal(parameter.detach().numpy(), variable.value)


@pytest.mark.parametrize("size", [8, 65, 1025, 8192])
def test_strict_novograd_of_the_reference_divides_by_that_norm(size: int) -> None:
    gradient, variable = drawn(size, 1), reference.Variable("w", drawn(size, 2))
    [(got, _)] = novograd_of_reference(gradient, variable)
    root = np.sqrt(one_by_one(np.square(gradient)) + np.float32(1e-8))
    np.testing.assert_array_equal(got, gradient * (np.float32(1) / root))
