"""Micro-batches are averaged over ranks once a step, and not in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep import pytorch as ls
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks
from lockstep.pytorch.tests.subjects import TwoHeads

pytestmark = needs_gloo
MICRO_BATCHES, STEPS, RATE = 4, 2, 0.125


def batches(rank: int) -> Iterator[tuple[bool, Tensor]]:
    """Yield micro-batches of a rank, each with whether it is the last of its step."""
    generator = torch.Generator().manual_seed(rank)
    for k in range(STEPS * MICRO_BATCHES):
        yield (k + 1) % MICRO_BATCHES == 0, torch.randn(2, 3, generator=generator)


def whole(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: getattr(p, "full_tensor", lambda p=p: p)().detach().clone()
        for name, p in model.named_parameters()
    }


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
    return counts, whole(model)


def in_ddp(rank: int) -> tuple[list[int], dict[str, Tensor]]:
    """Count the all-reduces of DDP, which ``no_sync`` holds back."""
    model, counts = TwoHeads(), []
    ranks = DistributedDataParallel(model)

    # DDP refuses annotations that are strings, as they are here.
    def counted(_, bucket):
        counts[-1] += 1
        mean = bucket.buffer() / 2
        work = distributed.all_reduce(mean, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    ranks.register_comm_hook(None, counted)
    optimizer = optimizer_of(model)
    for is_last, inputs in batches(rank):
        counts.append(0)
        with nullcontext() if is_last else ranks.no_sync():
            backward(optimizer, ranks(inputs, 1.0, 1.0))
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    return counts, whole(model)


def in_fsdp(rank: int) -> tuple[list[int], dict[str, Tensor]]:
    """Count the reductions of FSDP2 by the gradients that are there afterwards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, counts = TwoHeads(), []
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = optimizer_of(model)
    for is_last, inputs in batches(rank):
        model.set_requires_gradient_sync(is_last)
        backward(optimizer, model(inputs, 1.0, 1.0))
        counts.append(int(model.body.weight.grad is not None))
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    return counts, whole(model)


def optimizer_of(model: nn.Module) -> Any:
    sgd = torch.optim.SGD(model.named_parameters(), RATE)
    return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)


def backward(optimizer: Any, loss: Tensor) -> None:
    optimizer.scale_loss(loss / MICRO_BATCHES).backward()


def count(rank: int) -> dict[str, Any]:
    return {
        "optimize_loss": whole_step(rank, calls_ddp=False),
        "optimize_loss of DDP": whole_step(rank, calls_ddp=True),
        "DDP": in_ddp(rank),
        "FSDP2": in_fsdp(rank),
    }


def test_ranks_talk_once_a_step(tmp_path) -> None:
    first, second = on_two_ranks(count, tmp_path)
    silence = [0] * (MICRO_BATCHES - 1)
    # optimize_loss first finds out in a small message which gradients are absent.
    messages = {"optimize_loss": 2, "optimize_loss of DDP": 2, "DDP": 1, "FSDP2": 1}
    for name, number in messages.items():
        assert first[name][0] == second[name][0] == [*silence, number] * STEPS
    expected = first["optimize_loss"][1]
    # DDP averages in ``backward`` alone, so optimize_loss averages once.
    for name in ("optimize_loss of DDP", "DDP", "FSDP2"):
        for weight, value in first[name][1].items():
            torch.testing.assert_close(value, expected[weight], rtol=0, atol=1e-6)
            assert torch.equal(value, second[name][1][weight])
