"""Two ranks of gloo in processes of their own, each with a time limit."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

__all__ = ["on_two_ranks"]

SECONDS = 120
"""How long the ranks may take together; they need three or four on an idle machine."""

Job = Callable[[int], Any]


def run_rank(rank: int, folder: str, job: Job) -> None:
    """Meet the other rank in a file, do the job, and save what it returned."""
    torch.set_num_threads(1)
    meeting = Path(folder, "meeting").as_uri()
    distributed.init_process_group(
        "gloo",
        init_method=meeting,
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=SECONDS),
    )
    try:
        torch.save(job(rank), Path(folder, f"{rank}.pt"))
        # A rank that leaves while the other is at work may bring it down.
        distributed.barrier()
    except Exception:
        Path(folder, f"{rank}.txt").write_text(traceback.format_exc())
        raise
    finally:
        distributed.destroy_process_group()


def on_two_ranks(job: Job, folder: Path) -> list[Any]:
    """Return what ``job(rank)`` returned on rank 0 and rank 1.

    Args:
        job: a function of a module; it returns tensors, numbers, strings, or nests.
        folder: an empty one.
    """
    spawn = multiprocessing.get_context("spawn")
    ranks = [
        spawn.Process(target=run_rank, args=(rank, str(folder), job)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    told = "".join(path.read_text() for path in sorted(folder.glob("*.txt")))
    codes = [process.exitcode for process in ranks]
    assert not late and codes == [0, 0], f"exit codes {codes}\n{told}"
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
