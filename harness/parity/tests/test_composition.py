"""Stacks of two wrappers on every backend are what docs/composition.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import registry
from lockstep.spec.pipeline import STAGES, pipeline_of

PAGE = Path(__file__).parents[3] / "docs/composition.md"
WRAPPERS = ("multitask", "rows", "scale", "masters")
OWN = {
    "multitask": {"zero filter"},
    "rows": {"row clip"},
    "scale": {"unscale", "finite check"},
    "masters": {"unscale", "finite check"},
}
TITLES = {"pytorch": "PyTorch", "tf": "TensorFlow", "keras3": "Keras 3"}
LIMIT = 1.0


def stacks() -> list[tuple[str, ...]]:
    """Return the rows of the table: outside, inside, float32, masters."""
    lines = PAGE.read_text("utf-8").splitlines()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:5]) for line in lines]
    return [row for row in rows if row and row[0] in WRAPPERS]


def judged() -> list[tuple[str, str, str, str]]:
    """Return outside, inside, dtype and verdict of every stack that has one."""
    cases = []
    for outer, inner, single, half in stacks():
        for dtype, verdict in (("float32", single), ("float16", half)):
            if verdict != "-":
                cases.append((outer, inner, dtype, verdict))
    return cases


class Stack:
    """Two variables under two wrappers on one backend."""

    def __init__(self, backend: str, outer: str, inner: str, dtype: str) -> None:
        self.host = registry.host(backend, strict=False)
        values = {"a": [[3.0, 4.0]], "b": [[0.25, 0.5]]}
        self.variables = [
            self.host.variable(name, np.array(value, dtype))
            for name, value in values.items()
        ]
        arguments = {"learning_rate": 0.5, "momentum": 0.5}
        base = self.host.optimizer("Momentum", arguments, self.variables)
        self.optimizer = self.wrap(outer, self.wrap(inner, base))
        self.dtype = dtype

    def wrap(self, name: str, opt: Any) -> Any:
        names = self.host.names
        if name == "multitask":
            return names.MultitaskOptimizerWrapper(opt)
        if name == "rows":
            listed = {self.host.key(variable): [1] for variable in self.variables}
            return names.VariableClippingOptimizer(opt, listed, LIMIT)
        if name == "scale":
            return names.MixedPrecisionLossScaleOptimizer(opt, 8.0)
        return names.MixedPrecisionOptimizerWrapper(opt, 8.0)

    def step(self, a: float, b: float) -> list[Any]:
        """Take a step with gradients of these numbers; return the variables."""

        def train(gradients: list[Any]) -> list[Any]:
            loss = self.host.linear_loss(self.variables, gradients)
            pairs = self.optimizer.compute_gradients(loss, var_list=self.variables)
            return [self.optimizer.apply_gradients(pairs)]

        given = [np.full((1, 2), number, self.dtype) for number in (a, b)]
        with np.errstate(all="ignore"):
            self.host.compile(train)(given)
        return [np.array(self.host.read(variable)) for variable in self.variables]


def test_the_table_has_every_stack() -> None:
    expected = [(outer, inner) for outer in WRAPPERS for inner in WRAPPERS]
    assert [row[:2] for row in stacks()] == expected


@pytest.mark.parametrize("case", judged(), ids="-".join)
@pytest.mark.parametrize("backend", sorted(registry.BACKENDS))
def test_a_stack_is_right_or_refused_as_the_table_says(
    backend: str, case: tuple[str, str, str, str]
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    outer, inner, dtype, verdict = case
    if verdict in ("refused", f"refused on {TITLES.get(backend)}"):
        with pytest.raises(ValueError, match=r"expected (an optimizer|variables)"):
            Stack(backend, outer, inner, dtype).step(1.0, 1.0)
        return
    stack, active = Stack(backend, outer, inner, dtype), OWN[outer] | OWN[inner]
    expected = [s.name for s in STAGES if s.name in active | {"update"}]
    assert list(pipeline_of(stack.optimizer)) == expected
    first = stack.step(1.0, 1.0)
    assert bool(np.linalg.norm(first[0]) <= LIMIT + 1e-3) is ("row clip" in active)
    second = stack.step(1.0, 0.0)
    assert (first[0] != second[0]).any()
    assert np.array_equal(first[1], second[1]) is ("zero filter" in active)
    third = stack.step(np.inf, 1.0)
    if "finite check" in active:
        np.testing.assert_array_equal(third, second)
