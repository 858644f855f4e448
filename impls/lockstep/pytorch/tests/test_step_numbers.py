"""The numbers of a step reach a writer or a function, from any wrapper."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)


def rows(opt):
    return VariableClippingOptimizer(opt, {"w": [1]}, max_norm=0.5)


def scaled(opt, **options):
    scale = DynamicLossScale(8.0, 2)
    return MixedPrecisionLossScaleOptimizer(opt, scale, clip_norm=1.0, **options)


def masters(opt, **options):
    scale = DynamicLossScale(8.0, 2)
    return MixedPrecisionOptimizerWrapper(opt, scale, clip_norm=1.0, **options)


def agn(opt):
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter, communication_period=2)


STEP = {"applied": 1, "skipped_variables": 1}
SCALED = {"loss_scale": 8.0, "skipped_steps": 0, "skipped_in_a_row": 0}
CLIPPED = {"global_gradient_norm": 4.0, "clip_factor": 0.25}
ROWS = {"rows": 2, "clipped_rows": 1}
AGN = {"local_step": 1, "ended_round": 0}
STACKS = {
    "multitask": ((MultitaskOptimizerWrapper,), STEP),
    "rows": ((rows,), STEP | ROWS),
    "scaled": ((scaled,), STEP | SCALED | CLIPPED),
    "masters": ((masters,), STEP | SCALED | CLIPPED),
    "agn": ((agn,), STEP | AGN),
    "scaled around two": (
        (scaled, MultitaskOptimizerWrapper, rows),
        STEP | SCALED | CLIPPED | ROWS,
    ),
    "rows around scaled": ((rows, scaled), STEP | SCALED | CLIPPED | ROWS),
}
stacks = pytest.mark.parametrize("stack", STACKS)


def started(*wrappers):
    weight, head = (
        Parameter(torch.tensor([[3.0, 4.0], [0.0, 0.0]])),
        Parameter(torch.ones(1)),
    )
    optimizer = torch.optim.SGD([("w", weight), ("head", head)], lr=0.0, fused=True)
    for wrap in reversed(wrappers):
        optimizer = wrap(optimizer)
    return weight, optimizer


def advance(weight, optimizer, value=2.0):
    weight.grad = torch.full_like(weight, value)
    optimizer.step()


class Writer:
    """What a ``SummaryWriter`` has to have."""

    def __init__(self):
        self.found = {}

    def add_scalar(self, tag, value, global_step):
        self.found.setdefault(global_step, {})[tag] = value


@stacks
def test_every_wrapper_has_its_numbers(stack):
    wrappers, expected = STACKS[stack]
    weight, optimizer = started(*wrappers)
    assert optimizer.step_numbers()["applied"] == 0
    advance(weight, optimizer)
    assert optimizer.step_numbers() == expected


@stacks
def test_a_writer_and_a_function_get_the_same(stack):
    wrappers, _ = STACKS[stack]
    weight, optimizer = started(*wrappers)
    writer, found = Writer(), {}
    optimizer.summaries_to(writer)
    advance(weight, optimizer)
    optimizer.summaries_to(lambda numbers, step: found.update({step: numbers}), start=1)
    advance(weight, optimizer, 3.0)
    assert list(writer.found) == [1] and list(found) == [2]
    assert writer.found[1].keys() == found[2].keys()
    assert found[2] == optimizer.step_numbers()


@pytest.mark.parametrize(
    ("wrap", "options"), [(scaled, {}), (scaled, {"capturable": True}), (masters, {})]
)
def test_a_skipped_step_has_no_norm(wrap, options):
    weight, optimizer = started(lambda opt: wrap(opt, **options))
    advance(weight, optimizer)
    advance(weight, optimizer, torch.inf)
    numbers = optimizer.step_numbers()
    assert numbers == {
        "applied": 0,
        "skipped_variables": 2,
        "loss_scale": 4.0,
        "skipped_steps": 1,
        "skipped_in_a_row": 1,
    }
    assert all(isinstance(number, int | float) for number in numbers.values())


def test_a_skipped_step_of_a_worker_ends_no_round():
    weight, optimizer = started(scaled, agn)
    for value in (2.0, 2.0, torch.inf):
        advance(weight, optimizer, value)
    numbers = optimizer.step_numbers()
    assert (numbers["local_step"], numbers["ended_round"]) == (2, 0)


def test_every_so_many_steps_and_until_it_is_stopped():
    weight, optimizer = started(scaled)
    steps = []
    optimizer.summaries_to(lambda numbers, step: steps.append(step), every=3, start=10)
    for _ in range(6):
        advance(weight, optimizer)
    copy.deepcopy(optimizer).step()
    optimizer.apply_gradients([(torch.ones_like(weight), weight)])
    optimizer.summaries_to(None)
    for _ in range(3):
        advance(weight, optimizer)
    assert steps == [12, 15]
