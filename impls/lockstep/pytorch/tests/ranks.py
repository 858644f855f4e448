"""Ranks of gloo in processes of their own, each with a time limit."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

__all__ = [
    "errors_of",
    "exit_codes",
    "needs_gloo",
    "new_processes",
    "on_ranks",
    "on_two_ranks",
]

needs_gloo = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="this torch has no gloo",
)

PRELOADED = [
    "lockstep.pytorch",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
]
"""What a process has imported that is there to be copied."""

SECONDS = 120
"""How long the ranks may take together; they need three or four on an idle machine."""

Job = Callable[[int], Any]


def new_processes() -> Any:
    """Return a context of ``multiprocessing`` whose processes know of no test.

    Where it can be done, they are copies of one that has imported torch, and no more.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def run_rank(rank: int, count: int, folder: str, job: Job) -> None:
    """Meet the other ranks in a file, do the job, and save what it returned."""
    torch.set_num_threads(1)
    meeting = Path(folder, "meeting").as_uri()
    distributed.init_process_group(
        "gloo",
        init_method=meeting,
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=SECONDS),
    )
    try:
        torch.save(job(rank), Path(folder, f"{rank}.pt"))
        # A rank that leaves while others are at work may bring them down.
        distributed.barrier()
    except Exception:
        Path(folder, f"{rank}.txt").write_text(traceback.format_exc())
        raise
    finally:
        distributed.destroy_process_group()
    # Without the end of Python, in which threads of gloo that PyTorch's caches keep may
    # abort the process.
    os._exit(0)


def on_two_ranks(job: Job, folder: Path) -> list[Any]:
    """Return what ``job(rank)`` returned on rank 0 and rank 1: see :func:`on_ranks`."""
    return on_ranks(2, job, folder)


def on_ranks(count: int, job: Job, folder: Path) -> list[Any]:
    """Return what ``job(rank)`` returned on each rank.

    Args:
        count: how many ranks.
        job: a function of a module; it returns tensors, numbers, strings, or nests.
        folder: an empty one.
    """
    codes = exit_codes(count, job, folder)
    assert not any(codes), f"exit codes {codes}\n{errors_of(folder)}"
    paths = [folder / f"{rank}.pt" for rank in range(count)]
    return [torch.load(path, weights_only=True) for path in paths]


def exit_codes(count: int, job: Job, folder: Path) -> list[int | None]:
    """Return how the process of each rank ended; one that is late is killed.

    Args: see :func:`on_ranks`.
    """
    context = new_processes()
    ranks = [
        context.Process(target=run_rank, args=(rank, count, str(folder), job))
        for rank in range(count)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    assert not late, f"{len(late)} ranks were still at work\n{errors_of(folder)}"
    return [process.exitcode for process in ranks]


def errors_of(folder: Path) -> str:
    """Return the tracebacks of the ranks that raised."""
    return "".join(path.read_text() for path in sorted(folder.glob("*.txt")))
