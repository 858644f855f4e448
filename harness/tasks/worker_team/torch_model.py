"""What a process of the team does in PyTorch: train with a center, or as a rank."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.tasks.worker_team.settings import TeamSettings
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.ray import RayCenter
from lockstep.ray.center import host_of
from lockstep.ray.shared_weights import Start, SummedWeights, layout
from lockstep.ray.worker import Member, membership

__all__ = ["Adder", "Model", "Pushed", "Worker"]

RATE = 1e-3
GRADIENT = 1e-3
TENSORS = 4
"""The weights are in some tensors, as those of a net are."""

PATIENCE = timedelta(seconds=60)
"""How long a rank waits for one that is gone."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Model(torch.nn.Module):
    """Weights whose gradient is the same at each step."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        parts = torch.zeros(weights).tensor_split(min(TENSORS, weights))
        self.parts = torch.nn.ParameterList(part.clone() for part in parts)
        self.gradients = [torch.full_like(part, GRADIENT) for part in parts]

    def forward(self) -> Tensor:
        """Return a loss that is linear in the weights."""
        pairs = zip(self.parts, self.gradients, strict=True)
        return sum((part * gradient).sum() for part, gradient in pairs)


class Pushed(NamedTuple):
    """When a process pushed, in seconds of the clock."""

    begin: float
    end: float


class Worker:
    """A process that Ray starts, which holds one model after the other."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def join(self, settings: TeamSettings, center: RayCenter, period: int) -> None:
        """Make a model whose optimizer shares a center."""
        self.wait = settings.step_ms / 1000
        self.model = Model(settings.weights)
        getter = AGNCustomGetter("cpu", center=center)
        sgd = torch.optim.SGD(getter(self.model), lr=RATE)
        self.optimizer = AGNOptimizer(sgd, 1, getter, period)
        self.optimizer.get_init_op(0)

    def train(self, begin: float, end: float) -> int:
        """Train until a time of the clock; return the steps that began in between."""
        count = 0
        while (now := time.time()) < end:
            count += now >= begin
            self.step()
        return count

    def step(self) -> None:
        """Take a step: wait as for an accelerator, then hand over the gradient."""
        time.sleep(self.wait)
        self.optimizer.zero_grad()
        self.model().backward()
        self.optimizer.step()

    def connect(self, settings: TeamSettings, file: str, ranks: int, rank: int) -> None:
        """Become a rank of DDP, on loopback unless the environment names a network."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        self.wait = settings.step_ms / 1000
        store = dist.FileStore(file, ranks)
        options = {"rank": rank, "world_size": ranks, "timeout": PATIENCE}
        dist.init_process_group("gloo", store=store, **options)
        self.model = DistributedDataParallel(Model(settings.weights))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def reduce(self, steps: int) -> float:
        """Take as many steps as the other ranks; return the seconds."""
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - start

    def disconnect(self) -> None:
        """Leave the other ranks."""
        del self.model, self.optimizer
        dist.destroy_process_group()

    def push(self, center: RayCenter, weights: int, count: int) -> Pushed:
        """Push without a pause to a center that adds."""
        change = {"w": np.full(weights, GRADIENT, np.float32)}
        first = {"w": np.zeros(weights, np.float32)}
        own = membership("pytorch", "delta", layout(first))
        member = Member(host_of(center), lambda: Start(SummedWeights(first), own))
        member.join()
        return _repeated(count, lambda: member.push(change, None))

    def add(self, adder: Any, weights: int, count: int) -> Pushed:
        """Do the same with an actor that does nothing else."""
        import ray  # Only in processes that Ray has started.

        change = np.full(weights, GRADIENT, np.float32)
        return _repeated(count, lambda: ray.get(adder.add.remote(change)))


class Adder:
    """An actor of Ray without anything of ours: it adds, and returns the sum."""

    def __init__(self, weights: int) -> None:
        self.weights = np.zeros(weights, np.float32)

    def add(self, change: Any) -> Any:
        """Add to the weights, and return them."""
        self.weights = self.weights + change
        return self.weights


def _repeated(count: int, call: Any) -> Pushed:
    """Call once for a start, then ``count`` times, and return when that was."""
    call()
    begin = time.time()
    for _ in range(count):
        call()
    return Pushed(begin, time.time())
