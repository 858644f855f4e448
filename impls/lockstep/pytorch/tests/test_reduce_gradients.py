"""Gradients averaged over ranks: two processes on gloo, and engines of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from lockstep import pytorch as ls
from lockstep.errors import NotReducedError, UnsupportedError
from lockstep.pytorch import reduce_gradients
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks
from lockstep.pytorch.tests.subjects import TwoHeads

MICRO_BATCHES, STEPS, RATE = 4, 2, 0.125
INFINITE = float("inf")
# What the ranks multiply the losses of the tasks a and b by; None: not in the loss.
CASES = {
    "both have both": [(1.0, 2.0), (3.0, 4.0)],
    "one has one only": [(1.0, None), (3.0, 4.0)],
    "b on none": [(1.0, None), (3.0, None)],
    "b is zero on both": [(1.0, 0.0), (3.0, 0.0)],
    "b cancels": [(1.0, 2.0), (3.0, -2.0)],
    "one overflows": [(1.0, 2.0), (INFINITE, 4.0)],
}
EXPECTED = {
    "both have both": ([-2.0], [-3.0], 1),
    "one has one only": ([-2.0], [-2.0], 1),
    "b on none": ([-2.0], [0.0], 1),
    "b is zero on both": ([-2.0], [0.0], 1),
    "b cancels": ([-2.0], [0.0], 1),
    "one overflows": ([0.0], [0.0], 0),
}
"""The weights after a step at rate 1 from 0, and the steps that count."""


def means_of(rank: int) -> list[Any]:
    """Average dense, sparse and half gradients, some absent here, there or on both."""
    rows = torch.sparse_coo_tensor(
        [[0, 0]], torch.ones(2, 2), (3, 2), check_invariants=True
    )
    gradients = [
        torch.full((2,), 1.0 + rank),
        rows if rank else torch.ones(3, 2),
        torch.ones(()) if rank else None,
        None,
        torch.full((1,), 60000.0).half(),
    ]
    weights = [Parameter(torch.zeros(shape)) for shape in ((2,), (3, 2), (), (4,))]
    weights.append(Parameter(torch.zeros(1).half()))
    pairs = list(zip(gradients, weights, strict=True))
    reduced = reduce_gradients(pairs, on_horovod=True)
    return [None if g is None else g.tolist() for g, _ in reduced]


def multitask(parameters, learning_rate):
    sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
    return ls.MultitaskOptimizerWrapper(sgd)


def trained(factors, iter_size: int) -> Any:
    """Take a step of two tasks; return the weights and the steps that count."""
    a, b = Parameter(torch.zeros(1)), Parameter(torch.zeros(1))

    def loss():
        pairs = zip(factors, (a, b), strict=True)
        terms = [factor * w.sum() for factor, w in pairs if factor is not None]
        return sum(terms, torch.zeros(()))

    step = ls.optimize_loss(
        loss,
        multitask,
        None,
        lambda step: 1.0,
        [("a", a), ("b", b)],
        dtype="mixed",
        loss_scaling="Backoff",
        on_horovod=True,
        iter_size=iter_size,
    )
    for _ in range(iter_size):
        step()
    scale = step.scaler.state["loss_scale"]
    return a.tolist(), b.tolist(), int(step.global_step), scale


def batches(rank: int) -> Iterator[tuple[bool, Tensor]]:
    """Yield micro-batches of a rank, each with whether it is the last of its step."""
    generator = torch.Generator().manual_seed(rank)
    for k in range(STEPS * MICRO_BATCHES):
        yield (k + 1) % MICRO_BATCHES == 0, torch.randn(2, 3, generator=generator)


def whole_step(rank: int, calls_ddp: bool) -> tuple[list[int], dict[str, Tensor]]:
    """Count the collectives of ``optimize_loss`` after each micro-batch."""
    model, counts, all_reduce = TwoHeads(), [], distributed.all_reduce
    called = DistributedDataParallel(model) if calls_ddp else model

    def counted(*args: Any, **kwargs: Any) -> Any:
        counts[-1] += 1
        return all_reduce(*args, **kwargs)

    step = ls.optimize_loss(
        lambda inputs: called(inputs, 1.0, 1.0),
        "SGD",
        {},
        RATE,
        model=model,
        on_horovod=True,
        iter_size=MICRO_BATCHES,
    )
    distributed.all_reduce = counted
    try:
        for _, inputs in batches(rank):
            counts.append(0)
            step(inputs)
    finally:
        distributed.all_reduce = all_reduce
    return counts, {name: p.detach() for name, p in model.named_parameters()}


def in_ddp(rank: int) -> dict[str, Tensor]:
    """Train with DDP, which averages in ``backward`` unless ``no_sync`` holds it."""
    model = TwoHeads()
    ranks = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for is_last, inputs in batches(rank):
        with nullcontext() if is_last else ranks.no_sync():
            (ranks(inputs, 1.0, 1.0) / MICRO_BATCHES).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    return {name: p.detach() for name, p in model.named_parameters()}


def everything(rank: int) -> dict[str, Any]:
    model = DistributedDataParallel(nn.Linear(2, 1))
    with pytest.raises(UnsupportedError):
        ls.optimize_loss(lambda: model(torch.ones(2)), "SGD", {}, 0.1, model=model)
    return {
        "means": means_of(rank),
        "steps": {
            (name, size): trained(factors[rank], size)
            for name, factors in CASES.items()
            for size in (1, 2)
        },
        "optimize_loss": whole_step(rank, calls_ddp=False),
        "optimize_loss of DDP": whole_step(rank, calls_ddp=True),
        "DDP": in_ddp(rank),
    }


@needs_gloo
def test_two_ranks_take_the_same_steps(tmp_path) -> None:
    first, second = on_two_ranks(everything, tmp_path)
    rows = [[1.5, 1.5], [0.5, 0.5], [0.5, 0.5]]
    assert first["means"] == second["means"] == [[1.5, 1.5], rows, 0.5, None, [60000.0]]
    assert first["steps"] == second["steps"]
    for (name, _), state in first["steps"].items():
        assert state[:3] == EXPECTED[name]
    assert first["steps"]["one overflows", 1][3] == 2.0**13
    # One small message says which gradients are absent, one has the gradients.
    counts = [*[0] * (MICRO_BATCHES - 1), 2] * STEPS
    for name in ("optimize_loss", "optimize_loss of DDP"):
        assert first[name][0] == second[name][0] == counts
        for weight, value in first[name][1].items():
            expected = first["DDP"][weight]
            # Ranks are added up in another order: weights of about 1 in float32.
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
            assert torch.equal(value, second[name][1][weight])


class Doubling:
    """Two ranks that hold the same, but for a gradient that only the other has."""

    size = 2

    def any(self, flags):
        return [True for _ in flags]

    def all_reduce(self, tensors):
        return [tensor * 2 for tensor in tensors]


def test_an_engine_of_ones_own_is_asked_for_the_means():
    pairs = [
        (torch.ones(2), Parameter(torch.ones(2))),
        (None, Parameter(torch.ones(3))),
    ]
    reduced = reduce_gradients(pairs, True, reduction=Doubling())
    assert [g.tolist() for g, _ in reduced] == [[2.0, 2.0], [0.0, 0.0, 0.0]]
    assert [w for _, w in reduced] == [w for _, w in pairs]


def test_a_single_rank_keeps_its_gradients_and_without_horovod_there_are_none():
    gradient, weight = torch.ones(2), Parameter(torch.ones(2))
    assert reduce_gradients([(gradient, weight)], True)[0][0] is gradient
    with pytest.raises(NotReducedError):
        reduce_gradients([(gradient, weight)], on_horovod=False)
