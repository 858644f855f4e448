"""A rank of a DDP job, of which one is killed once; ``torchrun`` may start it again."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.pytorch import DynamicLossScale, MixedPrecisionLossScaleOptimizer

__all__ = ["KILLED_AT", "STEPS", "Job", "train"]

STEPS, KILLED_AT = 5, 3


class Job:
    """A model of one weight, and its optimizer."""

    def __init__(self) -> None:
        self.net = nn.Linear(2, 1, bias=False)
        nn.init.constant_(self.net.weight, 1.0)
        adam = torch.optim.Adam(self.net.named_parameters(), lr=0.125)
        scale = DynamicLossScale(8.0, 2)
        self.optimizer = MixedPrecisionLossScaleOptimizer(adam, scale)
        self.steps = 0

    def step(self, called: nn.Module, inputs: torch.Tensor) -> None:
        """Take one step."""
        self.optimizer.zero_grad()
        self.optimizer.scale_loss(called(inputs).mean()).backward()
        self.optimizer.step()
        self.steps += 1

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint has."""
        optimizer = self.optimizer.state_dict()
        net = self.net.state_dict()
        return {"net": net, "optimizer": optimizer, "steps": self.steps}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a checkpoint."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]


def batch(step: int) -> torch.Tensor:
    """Return the examples of all ranks: small whole numbers, so all sums are exact."""
    return torch.tensor([[step + 1.0, 2.0], [3.0, step - 1.0]])


def train(rank: int, folder: str) -> None:
    """Train from the checkpoint on, if there is one; rank 1 is killed the first time.

    A line says with which weights the other rank was left.
    """
    job, path, mark = Job(), Path(folder, "checkpoint.pt"), Path(folder, "killed")
    if path.exists():
        job.load(torch.load(path, weights_only=True))
    ranks = DistributedDataParallel(job.net)
    while job.steps < STEPS:
        if rank == 1 and job.steps == KILLED_AT and not mark.exists():
            mark.touch()
            # The other rank may still be receiving what the last step sent.
            while not is_saved(path, KILLED_AT):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            job.step(ranks, batch(job.steps)[rank : rank + 1])
        except RuntimeError:
            torch.save(job.state(), Path(folder, "left.pt"))
            raise
        if rank == 0:
            torch.save(job.state(), path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)


def is_saved(path: Path, steps: int) -> bool:
    """Return whether the checkpoint is of so many steps."""
    return path.exists() and torch.load(path, weights_only=True)["steps"] == steps


def main(folder: str) -> None:
    """Train as one rank of ``torchrun``."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    train(distributed.get_rank(), folder)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
