"""A process of the team in PyTorch, which trains with a center or as a DDP rank."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.tasks.worker_team.task import TeamSettings
from lockstep._version import __version__
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.ray import RayCenter
from lockstep.ray.center import RayHost
from lockstep.ray.served_center import Membership, Start, SummedWeights, layout
from lockstep.ray.worker import Member

RATE = GRADIENT = 1e-3
TENSORS = 4
"""The number of tensors that the weights are split into, as in a net."""

PATIENCE = timedelta(seconds=60)
"""The timeout of a rank that waits for another one."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Model(torch.nn.Module):
    """Weights with the same gradient in each step."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        parts = torch.zeros(weights).tensor_split(min(TENSORS, weights))
        self.parts = torch.nn.ParameterList(part.clone() for part in parts)
        self.gradients = [torch.full_like(part, GRADIENT) for part in parts]

    def forward(self) -> Tensor:
        """Return a loss that is linear in the weights."""
        pairs = zip(self.parts, self.gradients, strict=True)
        return sum((part * gradient).sum() for part, gradient in pairs)


class Worker:
    """A process that Ray starts, with one model at a time."""

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
        """Train until ``end``; return how many steps began after ``begin``."""
        count = 0
        while (now := time.time()) < end:
            count += now >= begin
            self.step()
        return count

    def step(self) -> None:
        """Take a step: wait as for an accelerator, then compute and apply gradients."""
        time.sleep(self.wait)
        self.optimizer.zero_grad()
        self.model().backward()
        self.optimizer.step()

    def connect(self, settings: TeamSettings, file: str, ranks: int, rank: int) -> None:
        """Join DDP as a rank, on loopback unless the environment names an interface."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        self.wait = settings.step_ms / 1000
        store = dist.FileStore(file, ranks)
        options = {"rank": rank, "world_size": ranks, "timeout": PATIENCE}
        dist.init_process_group("gloo", store=store, **options)
        self.model = DistributedDataParallel(Model(settings.weights))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def reduce(self, steps: int) -> float:
        """Take ``steps`` steps together with the other ranks; return the seconds."""
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return time.perf_counter() - start

    def disconnect(self) -> None:
        del self.model, self.optimizer
        dist.destroy_process_group()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def push(self, center: RayCenter, weights: int, count: int) -> tuple[float, float]:
        """Push without pauses to a center that adds; return the begin and the end."""
        change = {"w": np.full(weights, GRADIENT, np.float32)}
        first = {"w": np.zeros(weights, np.float32)}
        own = Membership(__version__, "pytorch", "delta", layout(first), [])
        member = Member(RayHost(center), lambda: Start(SummedWeights(first), own))
        member.join()
        return _repeated(count, lambda: member.push(change, None))

    def add(self, adder: Any, weights: int, count: int) -> tuple[float, float]:
        """Push without pauses to an actor that only adds."""
        import ray  # Only in processes that Ray has started.

        change = np.full(weights, GRADIENT, np.float32)
        return _repeated(count, lambda: ray.get(adder.add.remote(change)))


class Adder:
    """A plain actor of Ray that adds, and returns the sum."""

    def __init__(self, weights: int) -> None:
        self.weights = np.zeros(weights, np.float32)

    def add(self, change: Any) -> Any:
        """Add a change to the weights, and return them."""
        self.weights = self.weights + change
        return self.weights


def _repeated(count: int, call: Callable[[], object]) -> tuple[float, float]:
    """Call once as a warm-up, then ``count`` times; return begin and end of these."""
    call()
    begin = time.time()
    for _ in range(count):
        call()
    return begin, time.time()
