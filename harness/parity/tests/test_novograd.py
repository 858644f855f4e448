"""The default of NovoGrad on each backend: the published rule, replayed by itself here.

The recordings are of the original, which never writes its second moment back. Where the
published rule must agree with it, the default is held to the recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.distance import distance
from harness.parity.drivers.protocol import Driver
from harness.parity.families import novograd
from lockstep import registry
from lockstep.interface import Array, Gradient, Rows

BACKENDS = {
    "reference": 0.0,
    "tf:eager": 0.0,
    "tf:graph": 0.0,
    "keras3": 0.0,
    "pytorch": 8.0,
}
"""Backend -> the distance allowed, as torch sums the squares in another order."""
OWN_SLOTS = ("tf:eager", "tf:graph", "keras3")
"""Backends whose slots have the dtype of the variable."""
OWN_MOMENTUM = ("keras3",)
"""Backends that compute momentum in the dtype of the variable."""

TRAINED = [
    case for case in read_cases(GOLDEN, ["novograd"]) if "gradients" in case.inputs
]
backends = pytest.mark.parametrize("name", BACKENDS)


def driver(name: str, strict: bool = False) -> Driver:
    backend, _, mode = name.partition(":")
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    return drivers.load(backend, mode or None, strict)


def with_arguments(case: Case, **args: Any) -> Case:
    return replace(
        case, inputs={**case.inputs, "args": {**case.inputs["args"], **args}}
    )


def assert_near(
    got: Mapping[str, Array], right: Mapping[str, Array], ulp: float
) -> None:
    """Compare variables and momentum; the second moment has tests of its own."""
    for quantity, value in right.items():
        if not quantity.startswith("slots/second_moment"):
            assert distance(np.array(got[quantity]), value).ulp <= ulp, quantity


@pytest.mark.sample(15)
@backends
@pytest.mark.parametrize("case", TRAINED, ids=lambda case: case.id)
def test_without_memory_the_default_is_the_original(name: str, case: Case) -> None:
    right = novograd.expectations(case)
    with closing(driver(name)) as made:
        got = novograd.replay(with_arguments(case, beta2=0.0), made)
        for found, recorded in zip(got, right, strict=True):
            assert_near(found, recorded, BACKENDS[name])


# -- the published rule, written down once more --------------------------------------

SETTINGS: Sequence[Mapping[str, Any]] = (
    {},
    {"learning_rate": 0.125, "beta1": 0.5, "beta2": 0.5, "epsilon": 0.25},
    {"learning_rate": 0.01, "beta2": 0.98, "weight_decay": 0.1},
    {"learning_rate": 0.1, "beta1": 0.9, "weight_decay": 0.01, "grad_averaging": True},
)


def published(
    weight: Array,
    gradients: Sequence[Array | None],
    given: Mapping[str, Any],
    slot: DTypeLike = np.float32,
    kind: Any = np.float32,
) -> Iterator[Mapping[str, Array]]:
    """Yield w, a and v after each step; |g|^2 starts v, and norms are float32.

    Momentum is computed in ``kind``; then w is rounded, and a to its dtype ``slot``.
    """
    full = {"learning_rate": 1.0, "beta1": 0.95, "beta2": 0.98, "epsilon": 1e-8}
    full |= {"weight_decay": 0.0, "grad_averaging": False, **given}
    dtype, f32 = weight.dtype.type, np.float32
    a, v = np.zeros_like(weight, slot), f32(0)
    for g in gradients:
        if g is not None:
            g2 = f32(np.sum(np.square(g.astype(f32)), dtype=f32))
            if v == 0:
                v = g2
            else:
                v = v * f32(full["beta2"]) + g2 * f32(1 - full["beta2"])
            direction = g.astype(f32) * (f32(1) / np.sqrt(v + f32(full["epsilon"])))
            if full["weight_decay"]:
                direction = direction + f32(full["weight_decay"]) * weight.astype(f32)
            if full["grad_averaging"]:
                direction = direction * f32(1 - full["beta1"])
            wide = a.astype(kind) * kind(full["beta1"]) + direction.astype(kind)
            moved = weight.astype(kind) - wide * kind(full["learning_rate"])
            a, weight = wide.astype(slot), moved.astype(dtype)
        yield {"w": weight, "momentum": a, "second_moment": np.asarray(v)}


def drawn(dtype: str, count: int = 6) -> tuple[Array, list[Array]]:
    generator = np.random.default_rng(5)
    weight = generator.normal(size=(2, 3)).astype(dtype)
    sizes = generator.choice([0.1, 1, 4], count)
    return weight, [(s * generator.normal(size=(2, 3))).astype(dtype) for s in sizes]


def trained(
    made: Driver, weight: Array, gradients: Sequence[Gradient], given: Mapping[str, Any]
) -> Iterator[Mapping[str, Array]]:
    """Yield w, a and v after each step; another variable is always there."""
    w, other = made.variable("w", weight), made.variable("o", weight[:1])
    optimizer = made.optimizer("NovoGrad", given, [w, other])
    step = made.compile(
        lambda g: [optimizer.apply_gradients(zip(g, (w, other), strict=True))]
    )
    for gradient in gradients:
        step([gradient, np.ones_like(weight[:1])])
        yield {
            "w": np.array(made.read(w)),
            "momentum": np.array(made.slot(optimizer, w, "momentum")),
            "second_moment": np.array(made.slot(optimizer, w, "second_moment")),
        }


def assert_published(
    name: str,
    weight: Array,
    given: Mapping[str, Any],
    dense: Sequence[Array | None],
    gradients: Sequence[Gradient] | None = None,
) -> None:
    slot = weight.dtype if name in OWN_SLOTS else np.float32
    kind = weight.dtype.type if name in OWN_MOMENTUM else np.float32
    right = published(weight, dense, given, slot, kind)
    with closing(driver(name)) as made:
        got = trained(made, weight, dense if gradients is None else gradients, given)
        for found, expected in zip(got, right, strict=True):
            for quantity, value in expected.items():
                assert found[quantity].dtype == value.dtype, quantity
                assert distance(found[quantity], value).ulp <= BACKENDS[name], quantity


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
@pytest.mark.sample(13)
@backends
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_the_default_is_the_published_rule(
    name: str, given: Mapping[str, Any], dtype: str
) -> None:
    weight, (first, *rest) = drawn(dtype)
    # An absent gradient leaves both moments alone.
    assert_published(name, weight, given, [first, None, *rest])


@backends
def test_rows_are_a_dense_gradient_with_duplicates_summed(name: str) -> None:
    weight, dense = drawn("float32")
    halves = [np.concatenate([g / 2, g / 2]) for g in dense]
    rows = [Rows(np.array([1, 0, 1, 0]), h[[1, 0, 3, 2]], (2, 3)) for h in halves]
    assert_published(name, weight, SETTINGS[2], dense, rows)


@backends
def test_zero_gradients_at_first_do_not_begin_the_mean(name: str) -> None:
    weight, dense = drawn("float32")
    assert_published(name, weight, SETTINGS[1], [np.zeros_like(weight), *dense])


@backends
def test_a_norm_that_overflows_is_forgotten_at_the_next_step(name: str) -> None:
    weight, (first, second, *_) = drawn("float32")
    huge = np.full_like(weight, 1e25)
    with closing(driver(name)) as made:
        states = list(trained(made, weight, [first, huge, second], {}))
    assert np.isinf(states[1]["second_moment"])
    expected = np.sum(np.square(second))
    assert distance(states[2]["second_moment"], expected).ulp <= BACKENDS[name]
    assert np.isfinite(states[2]["w"]).all()
