"""A call that fails leaves the step that ``optimize_loss`` returned as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lockstep import reference as ls
from lockstep.interface import NO_STEP, Array

ONES = np.ones(2, np.float32)


class Unreliable:
    """Two ranks alike, whose connection fails as long as ``fails``."""

    size, fails = 2, True

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        return flags

    def all_reduce(self, tensors: Sequence[Array]) -> Sequence[Array]:
        if self.fails:
            raise ConnectionError
        return tensors


def step_of(loss: Any, **options: Any) -> Any:
    variable = ls.Variable("w", np.zeros(2, np.float32))
    return ls.optimize_loss(loss, "SGD", {}, lambda step: 1.0, [variable], **options)


def no_answer() -> bool:
    raise ConnectionError


def test_a_reduction_that_fails_may_be_tried_again() -> None:
    engine = Unreliable()
    step = step_of(lambda: [ONES], iter_size=2, on_horovod=True, reduction=engine)
    step()
    with pytest.raises(ConnectionError):
        step()
    assert (step.micro_step, step.accumulators[0].tolist()) == (1, [0.5, 0.5])
    assert step.global_step.value == 0
    engine.fails = False
    step()
    assert step.variables[0].value.tolist() == [-1.0, -1.0]


def test_a_flag_that_fails_adds_nothing() -> None:
    step = step_of(lambda: [ONES], iter_size=2)
    with pytest.raises(ConnectionError):
        step(skip_update=no_answer)
    assert (step.micro_step, step.accumulators) == (0, [None])


def test_a_gradient_of_another_shape_is_not_added() -> None:
    step = step_of(lambda: [np.ones(3, np.float32)], iter_size=2)
    with pytest.raises(ValueError):
        step()
    assert (step.micro_step, step.accumulators) == (0, [None])


COUNTERS = [5, np.int64(5), ls.Variable("f", 0.0), ls.Variable("v", [0, 0], np.int64)]


@pytest.mark.parametrize("counter", COUNTERS, ids=["5", "int64", "float", "vector"])
@pytest.mark.parametrize("wrapper", ["none", "agn", "scale", "masters", "multitask"])
def test_what_cannot_count_is_refused_before_the_step(wrapper, counter) -> None:
    variable = ls.Variable("w", np.zeros(2, np.float32))
    optimizer: Any = ls.GradientDescentOptimizer(1.0)
    getter = ls.AGNCustomGetter("/cpu:0")
    getter([variable])
    wrap: Any = {
        "none": lambda opt: opt,
        "agn": lambda opt: ls.AGNOptimizer(opt, 1, getter),
        "scale": lambda opt: ls.MixedPrecisionLossScaleOptimizer(opt, 8.0),
        "masters": lambda opt: ls.MixedPrecisionOptimizerWrapper(opt, 8.0),
        "multitask": ls.MultitaskOptimizerWrapper,
    }
    with pytest.raises(TypeError):
        wrap[wrapper](optimizer).apply_gradients([(ONES, variable)], counter)
    assert variable.value.tolist() == [0.0, 0.0]


def test_a_step_of_zeros_refuses_a_counter_that_cannot_count() -> None:
    w, counter = ls.Variable("w", [1.0]), ls.Variable("step", 1.5)
    wrapper = ls.MultitaskOptimizerWrapper(ls.GradientDescentOptimizer(0.5))
    with pytest.raises(TypeError):
        wrapper.apply_gradients([(np.zeros(1), w)], counter)
    assert counter.value == 1.5 and wrapper.last_step == NO_STEP


def test_a_gradient_of_a_wider_dtype_is_not_added() -> None:
    variable = ls.Variable("w", np.zeros(2, np.float16))
    step = ls.optimize_loss(
        lambda: [ONES], "SGD", {}, lambda step: 1.0, [variable], iter_size=2
    )
    with pytest.raises(TypeError):
        step()
    assert (step.micro_step, step.accumulators) == (0, [None])
