"""A call that fails leaves the step that ``optimize_loss`` returned as it was."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter
from torch.nn.functional import embedding

from lockstep import pytorch as ls


class Unreliable:
    """Two ranks alike, whose connection fails as long as ``fails``."""

    size, fails = 2, True

    def any(self, flags):
        return flags

    def all_reduce(self, tensors):
        if self.fails:
            raise ConnectionError
        return tensors


class Fussy(torch.optim.SGD):
    """An optimizer that fails as long as ``fails``."""

    fails = True

    def step(self, closure=None):
        if self.fails:
            raise MemoryError
        return super().step(closure)


def step_of(loss, weights, optimizer="SGD", **options):
    given = {} if isinstance(optimizer, str) else None
    return ls.optimize_loss(
        loss, optimizer, given, lambda step: 1.0, weights, **options
    )


def no_answer():
    raise ConnectionError


def test_a_reduction_that_fails_may_be_tried_again() -> None:
    weight, engine = Parameter(torch.zeros(2)), Unreliable()
    options = {"iter_size": 2, "on_horovod": True, "reduction": engine}
    step = step_of(weight.sum, [weight], **options)
    step()
    with pytest.raises(ConnectionError):
        step()
    assert (step.micro_step, step.accumulators[0].tolist()) == (1, [0.5, 0.5])
    assert step.global_step.item() == 0
    assert step.last_step.reason == "accumulated micro-batch 1 of 2"
    engine.fails = False
    step()
    assert weight.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_clipping_does_not_write_into_sums_that_are_needed_again(sparse) -> None:
    weight, other = Parameter(torch.zeros(2, 1)), Parameter(torch.zeros(1))
    fussy, rows = Fussy([weight, other], lr=1.0), torch.tensor([0, 1])

    def loss(also):
        total = embedding(rows, weight, sparse=sparse).sum() * 8
        return total + other.sum() * 8 if also else total

    step = step_of(loss, None, fussy, iter_size=2, clip_gradients=1.0)
    step(True)
    with pytest.raises(MemoryError):
        step(False)
    kept = [total.to_dense().flatten().tolist() for total in step.accumulators]
    assert (step.micro_step, kept) == (1, [[4.0, 4.0], [4.0]])
    fussy.fails = False
    step(False)
    assert torch.cat([weight.flatten(), other]).tolist() == pytest.approx(
        [-2 / 3, -2 / 3, -1 / 3]
    )


def test_a_flag_that_fails_adds_nothing() -> None:
    weight = Parameter(torch.zeros(2))
    step = step_of(weight.sum, [weight], iter_size=2)
    with pytest.raises(ConnectionError):
        step(skip_update=no_answer)
    assert (step.micro_step, step.accumulators) == (0, [None])
