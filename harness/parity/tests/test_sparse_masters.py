"""Masters of every rule, trained with sparse gradients, against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.distance import distance
from harness.parity.families import mixed_precision_wrapper
from lockstep import registry
from lockstep.interface import Array

RULES: Mapping[str, Mapping[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.1},
    "Momentum": {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": True},
    "Adam": {"learning_rate": 0.1},
    "AdamW": {"learning_rate": 0.1, "weight_decay": 0.1},
    "Adagrad": {"learning_rate": 0.1},
    "RMSProp": {"learning_rate": 0.1, "momentum": 0.5, "centered": True},
    "Ftrl": {"learning_rate": 0.1, "l1_regularization_strength": 0.01},
    "NovoGrad": {"learning_rate": 0.1, "weight_decay": 0.1},
}
BACKENDS = {"pytorch": 4.0, "tf:eager": 8.0}
"""Backend -> the distance allowed: kernels take rsqrt and fuse in different ways."""

SPARSE = next(
    case
    for case in read_cases(GOLDEN, ["mixed_precision_wrapper"])
    if case.kind == "sparse"
)
SHAPES = [(4, 2), (4,), (4, 2, 3)]


def with_rule(rule: str, shape: tuple[int, ...]) -> Case:
    """Return a case with another rule and random rows of another shape."""
    random = np.random.default_rng(3)
    [variable] = SPARSE.inputs["variables"]
    value = random.normal(size=shape).round(3).tolist()
    rows = [
        {
            "indices": [3, 1, 1][:count],
            "values": random.normal(size=(count, *shape[1:])).round(3).tolist(),
            "dense_shape": list(shape),
        }
        for count in (1, 3, 2, 3)
    ]
    inputs = {
        "optimizer": {"name": rule, "args": RULES[rule]},
        "loss_scale": 8.0,
        "variables": [{**variable, "shape": list(shape), "value": value}],
        "gradients": [[row] for row in rows],
    }
    return replace(SPARSE, inputs=inputs, expected={"steps": [{}] * len(rows)})


def states(
    name: str, case: Case, strict: bool | None = None
) -> Iterator[Mapping[str, Array]]:
    """Yield copies of the state of a backend after each step."""
    backend, _, mode = name.partition(":")
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    with closing(drivers.load(backend, mode or None, strict)) as driver:
        for state in mixed_precision_wrapper.replay(case, driver):
            yield {quantity: np.array(value) for quantity, value in state.items()}


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_sparse_gradients_train_the_masters_of_every_rule(
    rule: str, shape: tuple[int, ...], name: str
) -> None:
    case = with_rule(rule, shape)
    strict = registry.find(name.partition(":")[0]).has_strict
    right, got = [*states("reference", case, strict)], [*states(name, case)]
    assert any(
        np.any(value != right[-1][key])
        for key, value in right[0].items()
        if key.startswith("masters/")
    )
    for found, expected in zip(got, right, strict=True):
        assert found.keys() == expected.keys()
        for quantity, value in expected.items():
            assert distance(found[quantity], value).ulp <= BACKENDS[name], quantity
