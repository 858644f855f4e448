"""Workers and center in the reference where no recorded case speaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Rows
from lockstep.reference import Variable, strict

ONES = np.ones(2, np.float32)


def worker_of(
    *variables: Variable, names: Any = reference, center: Any = None, **options: Any
) -> Any:
    """Return a worker of these variables that pushes at every second step."""
    getter = names.AGNCustomGetter("/cpu:0", center)
    getter(variables)
    base = options.pop("base", None) or reference.GradientDescentOptimizer(0.5)
    period = options.pop("communication_period", 2)
    return names.AGNOptimizer(base, 1, getter, period, **options)


def weight(name: str = "w", *values: float) -> Variable:
    return Variable(name, values or (1.0, 2.0), np.float32)


def gathered(worker: Any, variable: Variable) -> list[Any]:
    return list(worker.custom_getter._grad_map[variable].value.tolist())


def shared(worker: Any, variable: Variable) -> list[float]:
    found = worker.custom_getter._global_map[variable].value
    return [float(number) for number in found]


def test_an_absent_gradient_at_the_end_of_a_round_is_neither_pushed_nor_pulled() -> (
    None
):
    a, b = weight("a"), weight("b")
    worker = worker_of(a, b)
    worker.apply_gradients([(ONES, a), (ONES, b)])
    worker.apply_gradients([(ONES, a), (None, b)])
    assert a.value.tolist() == [0.5, 1.5] == shared(worker, a)
    assert b.value.tolist() == [0.5, 1.5]
    assert shared(worker, b) == [1.0, 2.0]
    assert gathered(worker, b) == [1.0, 1.0]
    worker.apply_gradients([(ONES, a), (ONES, b)])
    worker.apply_gradients([(ONES, a), (ONES, b)])
    # Three gradients of b, divided by two.
    assert shared(worker, b) == [0.25, 1.25]


def test_the_mean_of_differences_is_added_without_the_rule() -> None:
    w = weight()
    momentum = reference.MomentumOptimizer(0.5, 0.5)
    worker = worker_of(w, base=momentum, commit="delta")
    worker.apply_gradients([(ONES, w)])
    assert gathered(worker, w) == [-0.5, -0.5]
    worker.apply_gradients([(ONES, w)])
    # Steps of 0.5 and 0.75, their mean.
    assert shared(worker, w) == [1.0 - 0.625, 2.0 - 0.625]
    assert not worker.custom_getter.center.slots


def test_the_init_op_pulls_and_forgets() -> None:
    one, other = weight(), weight("w", 7.0, 7.0)
    first = worker_of(one)
    late = worker_of(other, center=first.custom_getter.center)
    late.apply_gradients([(ONES, other)])
    late.get_init_op(1)
    assert other.value.tolist() == [1.0, 2.0]
    assert gathered(late, other) == [0.0, 0.0]


def test_strict_divides_by_any_period() -> None:
    w = weight()
    worker = worker_of(w, names=strict, communication_period=0)
    with pytest.raises(ZeroDivisionError):
        worker.apply_gradients([(ONES, w)])


def test_what_a_step_did_says_when_the_next_push_is_due() -> None:
    w, v = weight(), weight("v")
    worker = worker_of(w, v, communication_period=3)
    told = []
    for _ in range(3):
        worker.apply_gradients([(ONES, w), (None, v)])
        told.append(worker.last_step.reason)
    assert told == [
        "of 2 gradients 1 absent; local step 1, 2 more before the push",
        "of 2 gradients 1 absent; local step 2, 1 more before the push",
        "of 2 gradients 1 absent; local step 3, pushed and pulled",
    ]
    assert worker.last_step.skipped == ("v",)


def test_a_sparse_gradient_is_gathered_as_its_sum() -> None:
    table = Variable("t", np.zeros((3, 1)), np.float32)
    worker = worker_of(table)
    rows = Rows(np.array([2, 0, 2]), np.float32([[1], [2], [3]]), (3, 1))
    worker.apply_gradients([(rows, table)])
    assert gathered(worker, table) == [[2], [0], [4]]


def test_a_variable_that_the_getter_was_not_given_is_refused_before_the_step() -> None:
    w, stranger = weight(), weight("stranger")
    worker = worker_of(w)
    with pytest.raises(KeyError):
        worker.apply_gradients([(ONES, w), (ONES, stranger)])
    assert w.value.tolist() == [1.0, 2.0]
    assert int(worker.local_step.value) == 0
