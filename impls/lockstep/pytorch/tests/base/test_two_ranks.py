"""Two ranks that average their gradients take the same steps, to the bit."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    optimize_loss,
)
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks
from lockstep.pytorch.tests.subjects import TwoHeads, batches

pytestmark = needs_gloo


def do_all(rank: int) -> dict:
    """Do every job; return what it returned, or how it failed."""
    found = {}
    jobs = (
        alternating_heads,
        clipped_rows,
        skipped_steps,
        whole_steps,
        without_an_average,
    )
    for job in jobs:
        try:
            found[job.__name__] = job(rank)
        except Exception:
            found[job.__name__] = traceback.format_exc()
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Callable[[str], list]:
    """Return what a job returned on each rank; all jobs share two processes."""
    ranks = on_two_ranks(do_all, tmp_path_factory.mktemp("ranks"))

    def of(job: str) -> list:
        found = [rank[job] for rank in ranks]
        assert not any(isinstance(one, str) for one in found), found
        return found

    return of


class Table(nn.Module):
    """An embedding whose weight a forward pass uses twice."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.rows = nn.Embedding(6, 2, sparse=sparse)
        nn.init.constant_(self.rows.weight, 4.0)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (self.rows(first).sum() * self.rows(second).sum()) / 64


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def alternating_heads(rank: int) -> dict:
    """Train head b on rank 1 alone, then on none; watch it and its moments."""
    model = TwoHeads()
    ranks = DistributedDataParallel(model, find_unused_parameters=True)
    adam = torch.optim.Adam(model.named_parameters(), lr=0.125)
    optimizer = MultitaskOptimizerWrapper(adam)
    seen = {}
    for name, on in (("one", float(rank)), ("none", 0.0)):
        before = model.b.weight.detach().clone()
        # DDP fills in zeros for what a rank did not use.
        optimizer.zero_grad()
        ranks(torch.ones(2, 3), 1.0, on).backward()
        optimizer.step()
        seen[f"moved by {name}"] = not torch.equal(before, model.b.weight)
        seen[f"steps after {name}"] = float(adam.state[model.b.weight]["step"])
        moment = adam.state[model.b.weight]["exp_avg"]
        seen[f"moment after {name}"] = moment.clone()
    return seen | {"weights": weights(model)}


def test_two_ranks_skip_a_head_only_if_absent_on_both(seen) -> None:
    first, second = seen("alternating_heads")
    for rank in (first, second):
        assert rank["moved by one"] and not rank["moved by none"]
        assert rank["steps after one"] == rank["steps after none"] == 1
        assert torch.equal(rank["moment after one"], rank["moment after none"])
    for name, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][name]), name


def clipped_rows(rank: int) -> list:
    """Name other rows on each rank, one of them twice; dense and sparse gradients."""
    found = []
    for sparse in (False, True):
        model = Table(sparse)
        ranks = DistributedDataParallel(model)
        sgd = torch.optim.SGD(model.named_parameters(), lr=0.5)
        optimizer = VariableClippingOptimizer(sgd, {"rows.weight": [1]}, 1.0)
        rows = torch.tensor([[0, 1, 1], [2, 3, 3]])[rank]
        for _ in range(3):
            optimizer.zero_grad()
            ranks(rows, rows[:1]).backward()
            optimizer.step()
        found.append(model.rows.weight.detach().clone())
    return found


def test_row_clip_agrees_on_two_ranks(seen) -> None:
    first, second = seen("clipped_rows")
    for mine, his in zip(first, second, strict=True):
        assert torch.equal(mine, his)
        # What any rank has named is cut on both.
        assert (mine[:4].norm(dim=1) <= 1.000001).all()
    dense, sparse = first
    assert torch.equal(dense[:4], sparse[:4])
    assert (sparse[4:] == 4).all() and (dense[4:].norm(dim=1) <= 1.000001).all()


def skipped_steps(rank: int) -> list:
    """Let one rank's loss overflow in the second of four steps."""
    found = []
    for half in (False, True):
        model = TwoHeads()
        model = model.half() if half else model
        ranks = DistributedDataParallel(model)
        sgd = torch.optim.SGD(model.named_parameters(), lr=0.125)
        wrap = MixedPrecisionLossScaleOptimizer
        wrap = MixedPrecisionOptimizerWrapper if half else wrap
        optimizer = wrap(sgd, DynamicLossScale(8.0, 2))
        applied, scales = [], []
        for step in range(4):
            optimizer.zero_grad()
            inputs = torch.ones(2, 3, dtype=model.a.weight.dtype)
            loss = ranks(inputs, 1.0, 1.0)
            if step == 1 and rank == 1:
                loss = loss * torch.inf
            optimizer.scale_loss(loss).backward()
            optimizer.step()
            applied.append(optimizer.last_step.applied)
            scales.append(float(optimizer.loss_scale))
        found.append((applied, scales, weights(model)))
    return found


def test_two_ranks_agree_on_a_skipped_step(seen) -> None:
    first, second = seen("skipped_steps")
    for (applied, scales, mine), (others, theirs, his) in zip(
        first, second, strict=True
    ):
        assert applied == others == [True, False, True, True]
        assert scales == theirs == [8.0, 4.0, 4.0, 8.0]
        for name, weight in mine.items():
            assert torch.equal(weight, his[name]), name
            assert weight.isfinite().all(), name


def whole_steps(rank: int) -> list:
    """Take steps of ``optimize_loss`` whose loss calls a model inside DDP."""
    ended = []
    for options in WHOLE_STEPS:
        model = TwoHeads()
        parallel = DistributedDataParallel(model)

        def loss(data: torch.Tensor, parallel: nn.Module = parallel) -> torch.Tensor:
            return parallel(data, 1.0, 0.5)

        step = whole_step(model, loss, options)
        for data in batches(4, seed=rank):
            step(data)
        ended.append(weights(model))
    return ended


WHOLE_STEPS = (
    {"clip_gradients": 0.5},
    {"clip_gradients": 0.5, "iter_size": 2},
    {"dtype": "mixed", "loss_scaling": 8.0},
)


def whole_step(model: nn.Module, loss: Callable, options: dict) -> Callable:
    """Return a step on the parameters of ``model``."""
    parameters = dict(model.named_parameters())
    return optimize_loss(loss, "SGD", {}, 0.125, parameters.values(), **options)


def test_ddp_averages_in_optimize_loss_if_the_loss_calls_it(seen) -> None:
    first, second = seen("whole_steps")
    for options, mine, his in zip(WHOLE_STEPS, first, second, strict=True):
        model = TwoHeads()

        def joint(*inputs: torch.Tensor, model: nn.Module = model) -> torch.Tensor:
            return sum(model(data, 1.0, 0.5) for data in inputs) / 2

        step = whole_step(model, joint, options)
        for inputs in zip(batches(4, seed=0), batches(4, seed=1), strict=True):
            step(*inputs)
        for name, weight in weights(model).items():
            assert torch.equal(mine[name], his[name]), name
            # The sum over ranks is rounded elsewhere than that of the joint loss.
            torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-6)


def without_an_average(rank: int) -> list[bool]:
    """Judge gradients that nobody has averaged: an infinity stays on its rank."""
    weight = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([("weight", weight)], lr=0.5)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
    applied = []
    for averaged in (False, True):
        weight.grad = torch.full((2,), torch.inf if rank else 1.0)
        if averaged:
            distributed.all_reduce(weight.grad)
        optimizer.step()
        applied.append(optimizer.last_step.applied)
    return applied


def test_ranks_agree_once_gradients_are_averaged_before_the_step(seen) -> None:
    first, second = seen("without_an_average")
    assert (first, second) == ([True, False], [False, False])
