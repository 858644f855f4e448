"""Workers and center in the reference where no recorded case speaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Rows
from lockstep.reference import AGNCustomGetter, Variable, strict

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


def test_strict_gathers_on_top_of_the_value_before_the_init_op() -> None:
    for names, expected in ((reference, [0.5, 1.5]), (strict, [0.0, 0.5])):
        w = weight()
        worker = worker_of(w, names=names, communication_period=1)
        worker.apply_gradients([(ONES, w)])
        assert w.value.tolist() == expected


def test_strict_divides_by_any_period() -> None:
    w = weight()
    worker = worker_of(w, names=strict, communication_period=0)
    with pytest.raises(ZeroDivisionError):
        worker.apply_gradients([(ONES, w)])


def test_an_iterator_of_pairs_is_kept_by_default_and_refused_under_strict() -> None:
    w = weight()
    worker_of(w).apply_gradients(iter([(ONES, w)]))
    assert w.value.tolist() == [0.5, 1.5]
    with pytest.raises(ValueError):
        worker_of(w, names=strict).apply_gradients(iter([(ONES, w)]))
    assert w.value.tolist() == [0.5, 1.5]


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


def test_the_report_is_that_of_the_local_step_inside() -> None:
    w, v = weight(), weight("v")
    base = reference.MultitaskOptimizerWrapper(reference.GradientDescentOptimizer(0.5))
    worker = worker_of(w, v, base=base, communication_period=1)
    worker.apply_gradients([(ONES, w), (0 * ONES, v)])
    assert worker.last_step.skipped == ("v",)
    assert worker.last_step.reason.startswith("of 2 gradients 1 all zero; local step 1")


def test_a_sparse_gradient_is_gathered_as_its_sum() -> None:
    table = Variable("t", np.zeros((3, 1)), np.float32)
    worker = worker_of(table)
    rows = Rows(np.array([2, 0, 2]), np.float32([[1], [2], [3]]), (3, 1))
    worker.apply_gradients([(rows, table)])
    assert gathered(worker, table) == [[2], [0], [4]]


def test_masters_are_refused_inside_and_around() -> None:
    variable = weight()
    worker = worker_of(variable)
    masters = reference.MixedPrecisionOptimizerWrapper(worker.inner_optimizer, 8.0)
    with pytest.raises(ValueError):
        worker_of(weight(), base=reference.MultitaskOptimizerWrapper(masters))
    with pytest.raises(ValueError):
        reference.MixedPrecisionOptimizerWrapper(worker, 8.0)
    with pytest.raises(ValueError):
        reference.optimize_loss(
            lambda: [ONES], worker, None, lambda step: 0.5, [variable], dtype="mixed"
        )


def test_a_variable_that_the_getter_was_not_given_is_refused_before_the_step() -> None:
    w, stranger = weight(), weight("stranger")
    worker = worker_of(w)
    with pytest.raises(KeyError):
        worker.apply_gradients([(ONES, w), (ONES, stranger)])
    assert w.value.tolist() == [1.0, 2.0]
    assert int(worker.local_step.value) == 0


def test_row_clipping_inside_cuts_the_shared_rows_too_but_not_under_strict() -> None:
    for names, expected in ((reference, [1.5, 2.0]), (strict, [3.0, 4.0])):
        w = weight("w", 3.0, 4.0)
        base = reference.GradientDescentOptimizer(0.5)
        rows = names.VariableClippingOptimizer(base, {w: [0]}, 2.5)
        worker = worker_of(w, names=names, base=rows, communication_period=1)
        worker.get_init_op(0)
        worker.apply_gradients([(0 * ONES, w)])
        np.testing.assert_allclose(shared(worker, w), expected, rtol=1e-6)
        assert w.value.tolist() == shared(worker, w)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"base": 3}, TypeError),
        ({"communication_period": 0}, ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused(options: Any, error: Any) -> None:
    with pytest.raises(error):
        worker_of(weight(), **options)


def test_two_variables_of_a_worker_do_not_share_weights_by_accident() -> None:
    with pytest.raises(ValueError):
        AGNCustomGetter("/cpu:0")([weight("w"), weight("w")])
