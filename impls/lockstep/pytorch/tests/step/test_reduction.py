"""Gradients averaged over ranks: two processes on gloo, and engines of one's own."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn import Parameter

from lockstep.pytorch import reduce_gradients
from lockstep.pytorch.step.reduction import GroupReduction
from lockstep.pytorch.tests.ranks import new_processes

TIMEOUT = 300


def gradients_of(rank):
    """Return dense, sparse, absent here or there, absent on both, and half."""
    sparse = torch.sparse_coo_tensor(
        [[0, 0]], torch.ones(2, 2), (3, 2), check_invariants=True
    )
    return [
        torch.full((2,), 1.0 + rank),
        sparse if rank else torch.ones(3, 2),
        torch.ones(()) if rank else None,
        None,
        torch.full((1,), 60000.0).half(),
    ]


def one_rank(rank, path, answers):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT),
    )
    shapes = [(2,), (3, 2), (), (4,), (1,)]
    weights = [Parameter(torch.zeros(shape)) for shape in shapes]
    weights[4] = Parameter(weights[4].detach().half())
    pairs = list(zip(gradients_of(rank), weights, strict=True))
    reduced = reduce_gradients(pairs, on_horovod=True)
    answers.put((rank, [None if g is None else g.tolist() for g, _ in reduced]))
    dist.destroy_process_group()


def test_two_ranks_get_the_mean_and_agree_on_what_is_absent(tmp_path):
    context = new_processes()
    answers = context.Queue()
    arguments = [(rank, tmp_path / "rendezvous", answers) for rank in range(2)]
    ranks = [context.Process(target=one_rank, args=a) for a in arguments]
    for process in ranks:
        process.start()
    try:
        found = dict(answers.get(timeout=TIMEOUT) for _ in ranks)
    finally:
        for process in ranks:
            process.join(TIMEOUT)
            process.kill()
    rows = [[1.5, 1.5], [0.5, 0.5], [0.5, 0.5]]
    wanted = [[1.5, 1.5], rows, 0.5, None, [60000.0]]
    assert found == {0: wanted, 1: wanted}


def test_the_means_of_one_rank_are_its_gradients(tmp_path):
    dist.init_process_group(
        "gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/ranks"
    )
    shapes = [((2, 3), torch.float32), ((), torch.float64), ((4,), torch.float32)]
    gradients = [torch.full(shape, 0.5, dtype=dtype) for shape, dtype in shapes]
    try:
        means = GroupReduction().all_reduce(gradients)
    finally:
        dist.destroy_process_group()
    for mean, gradient in zip(means, gradients, strict=True):
        torch.testing.assert_close(mean, gradient, rtol=0, atol=0)


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


def test_an_engine_that_loses_a_tensor_is_noticed(monkeypatch):
    monkeypatch.setattr(Doubling, "all_reduce", lambda self, tensors: [])
    with pytest.raises(ValueError, match=r"expected 1 means .* got 0"):
        reduce_gradients(
            [(torch.ones(2), Parameter(torch.ones(2)))], True, None, Doubling()
        )


def test_a_single_rank_keeps_its_gradients():
    gradient, weight = torch.ones(2), Parameter(torch.ones(2))
    assert reduce_gradients([(gradient, weight)], True)[0][0] is gradient


def test_without_horovod_there_is_nothing_to_reduce_with():
    with pytest.raises(
        NotImplementedError, match="expected on_horovod=True, got False"
    ):
        reduce_gradients([(torch.ones(2), Parameter(torch.ones(2)))], on_horovod=False)
