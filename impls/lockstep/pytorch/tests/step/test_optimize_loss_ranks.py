"""Two ranks take the same steps, whatever each of them sees."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.pytorch.tests.ranks import new_processes

SECONDS = 300
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


def multitask(parameters, learning_rate):
    sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
    return ls.MultitaskOptimizerWrapper(sgd)


def trained(factors, iter_size):
    """Take a step of two tasks; return the weights and the steps that count."""
    a, b = Parameter(torch.zeros(1)), Parameter(torch.zeros(1))

    def loss():
        terms = [
            f * w.sum() for f, w in zip(factors, (a, b), strict=True) if f is not None
        ]
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


def train_rank(rank: int, folder: Path) -> None:
    """Take every case on one rank; runs in a process of its own."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    wait = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=wait)
    found = {
        (name, size): trained(factors[rank], size)
        for name, factors in CASES.items()
        for size in (1, 2)
    }
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank has after each case."""
    folder = tmp_path_factory.mktemp("ranks")
    context = new_processes()
    started = [context.Process(target=train_rank, args=(k, folder)) for k in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in started] == [0, 0]
    return [torch.load(folder / f"{k}.pt", weights_only=True) for k in range(2)]


@pytest.mark.parametrize("iter_size", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_ranks_take_the_same_step(ranks, name, iter_size) -> None:
    mine, theirs = (found[name, iter_size] for found in ranks)
    assert mine == theirs
    assert mine[:3] == EXPECTED[name]


def test_an_overflow_on_one_rank_halves_the_scale_of_both(ranks) -> None:
    scales = [found["one overflows", 1][3] for found in ranks]
    assert scales == [2.0**13, 2.0**13]
