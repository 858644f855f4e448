"""What AGN cannot take in PyTorch, and the sentence that says so."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.workers.worker_pairs import sgd, single


def test_masters_are_refused() -> None:
    weight = Parameter(torch.ones(2).half())
    getter = AGNCustomGetter("cpu")
    opt = MixedPrecisionOptimizerWrapper(torch.optim.SGD(getter([weight]), lr=1.0))
    with pytest.raises(ValueError, match="got MixedPrecisionOptimizerWrapper;"):
        AGNOptimizer(opt, 1, getter)


@pytest.mark.parametrize(
    "layer", [lambda opt: opt, MultitaskOptimizerWrapper], ids=["next", "deeper"]
)
def test_masters_around_are_refused(layer) -> None:
    weight, worker = single()
    opt = layer(worker)
    with pytest.raises(ValueError, match="got AGNOptimizer; AGNOptimizer shares"):
        MixedPrecisionOptimizerWrapper(opt, 8.0)
    with pytest.raises(ValueError, match="got AGNOptimizer; AGNOptimizer shares"):
        pytorch.optimize_loss(weight.sum, opt, None, lambda step: 0.5, dtype="mixed")


def refused(**changes):
    weight = Parameter(torch.ones(2))
    getter = AGNCustomGetter("cpu")
    given = {
        "optimizer": torch.optim.SGD(getter([weight]), lr=0.1),
        "num_worker": 1,
        "custom_getter": getter,
        **changes,
    }
    return lambda: AGNOptimizer(**given)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (refused(optimizer=3), TypeError, "expected a torch.optim.Optimizer, got int"),
        (refused(custom_getter=None), TypeError, "custom_getter: expected an AGNCust"),
        (refused(num_worker=0), ValueError, "num_worker: expected an integer >= 1"),
        (refused(communication_period=0), ValueError, "communication_period: expected"),
        (refused(communication_period=2.5), ValueError, "got 2.5"),
        (refused(communication_period=True), ValueError, "got True"),
        (refused(commit="sum"), ValueError, "commit: expected one of delta, gradient"),
        (refused(commit="delta", strict=True), ValueError, "the original has no other"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error, told) -> None:
    with pytest.raises(error, match=told):
        make()


def test_a_parameter_that_the_getter_was_not_given_is_refused_before_the_step() -> None:
    weight, stranger = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    getter = AGNCustomGetter("cpu")
    getter([weight])
    opt = torch.optim.SGD([weight, stranger], lr=0.1)
    worker = AGNOptimizer(opt, 1, getter)
    weight.grad = stranger.grad = torch.ones(2)
    with pytest.raises(KeyError, match="and again if it was frozen"):
        worker.step()
    assert torch.equal(weight, torch.ones(2))
    assert worker.local_step == 0


def test_workers_with_other_parameters_are_refused() -> None:
    first = AGNCustomGetter("cpu")
    own = first([(name, Parameter(torch.ones(2))) for name in "wv"])
    AGNOptimizer(sgd(own[:1]), 2, first)
    other = AGNCustomGetter("cpu", center=first.center)
    with pytest.raises(ValueError, match=r"'w' to be torch\.float32"):
        other([("w", Parameter(torch.ones(3)))])
    weights = other([("v", Parameter(torch.ones(2)))])
    with pytest.raises(ValueError, match="the variables w, as the other workers'"):
        AGNOptimizer(sgd(weights), 2, other)


def test_parameters_on_another_device_are_refused() -> None:
    with pytest.raises(ValueError, match="'w' on meta, got cpu"):
        AGNCustomGetter("meta")([("w", Parameter(torch.ones(2)))])
