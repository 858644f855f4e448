"""A worker in PyTorch: its net, and how each method shares the weights."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from harness.tasks.digits import CLASSES, INPUTS, split
from harness.tasks.worker_processes.task import Settings
from lockstep.interface import Array
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.ray import RayCenter

SNAPSHOTS = 50
"""The most measurements of the shared weights in a run."""

PATIENCE = timedelta(seconds=60)
"""The timeout of a rank that waits for another one."""

INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
"""The network interface of this machine alone."""

Measured = tuple[float, float, bool]
"""Seconds, the accuracy on held-out images, and whether all weights are finite."""


class Worker:
    """A process that Ray starts, with one model at a time."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def begin(
        self, number: int, of: Settings, seed: int, folder: str, place: dict[str, float]
    ) -> None:
        """Make the net, the same for all workers, and what shares its weights.

        Args:
            number: of this worker, from 0.
            folder: the folder of the run's files.
            place: Ray's resources of a center.
        """
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Linear(INPUTS, of.hidden), nn.Tanh(), nn.Linear(of.hidden, CLASSES)
        )
        self.training, self.held_out = split(np.random.default_rng(seed))
        self.stream = np.random.default_rng([seed, number])
        self.batch = of.batch
        method = {"agn": AGN, "easgd": EASGD, "ddp": DDP}[of.method]
        self.sharing = method(self.net, number, of, Path(folder), place)

    def train(
        self, number: int, begin: float, end: float
    ) -> tuple[int, float, list[Measured]]:
        """Train from ``begin`` to ``end``, seconds since 1970.

        Returns:
            Steps and seconds; the accuracies of the shared weights, of worker 0 only.
        """
        start = parameters_to_vector(self.net.parameters()).detach()
        seen = [(0.0, start.clone())]
        pause, steps = (end - begin) / SNAPSHOTS, 0
        time.sleep(max(0.0, begin - time.time()))
        while self.sharing.goes_on(steps, end):
            steps += 1
            shared = self.sharing.step(self.loss, steps)
            now = time.time() - begin
            if number == 0 and shared is not None and now >= seen[-1][0] + pause:
                seen.append((now, shared.clone()))
        seconds = time.time() - begin
        return steps, seconds, [(at, *self.measure(weights)) for at, weights in seen]

    def end(self, number: int) -> None:
        """Leave the center or the other ranks."""
        self.sharing.end(number)
        del self.sharing, self.net

    def loss(self, model: nn.Module) -> Tensor:
        """Return the mean cross-entropy of a new minibatch."""
        rows = self.stream.integers(len(self.training.digit), size=self.batch)
        images = torch.from_numpy(self.training.features[rows])
        digits = torch.from_numpy(self.training.digit[rows]).long()
        return F.cross_entropy(model(images), digits)

    @torch.no_grad()
    def measure(self, weights: Tensor) -> tuple[float, bool]:
        """Return the held-out accuracy of weights, and whether all are finite."""
        vector_to_parameters(weights, self.net.parameters())
        guesses = self.net(torch.from_numpy(self.held_out.features)).argmax(1).numpy()
        accuracy = float((guesses == self.held_out.digit).mean())
        return accuracy, bool(weights.isfinite().all())


Loss = Callable[[nn.Module], Tensor]


class AGN:
    """Adam, and after each period a push of the mean change to a center on Ray."""

    def __init__(
        self,
        net: nn.Module,
        number: int,
        of: Settings,
        folder: Path,
        place: dict[str, float],
    ) -> None:
        self.net, self.period = net, of.period
        self.center = RayCenter(
            f"center-{folder.name}", directory=folder / "center", resources=place
        )
        getter = AGNCustomGetter("cpu", center=self.center)
        adam = torch.optim.Adam(getter(net), lr=of.learning_rate)
        self.optimizer = AGNOptimizer(
            adam, of.workers, getter, of.period, commit="delta"
        )
        self.optimizer.get_init_op(0)

    def goes_on(self, steps: int, end: float) -> bool:
        """Whether to take another step."""
        return time.time() < end

    def step(self, loss: Loss, number: int) -> Tensor | None:
        """Take step ``number``; return the shared weights if they are known now."""
        self.optimizer.zero_grad()
        loss(self.net).backward()
        self.optimizer.step()
        if number % self.period:
            return None
        return parameters_to_vector(self.net.parameters()).detach()

    def end(self, number: int) -> None:
        if number == 0:
            self.center.remove()


class EASGD:
    """Adam, and after each period a worker and the center move towards each other.

    With alpha = 0.9 / n of n workers: d = alpha (w - c), w = w - d, c = c + d, as in
    S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", 2015
    (arXiv:1412.6651).
    """

    def __init__(
        self,
        net: nn.Module,
        number: int,
        of: Settings,
        folder: Path,
        place: dict[str, float],
    ) -> None:
        import ray  # Only in processes that Ray has started.

        self.get, self.kill = ray.get, ray.kill
        self.net, self.period, self.alpha = net, of.period, 0.9 / of.workers
        self.optimizer = torch.optim.Adam(net.parameters(), lr=of.learning_rate)
        elastic = ray.remote(Elastic).options(
            name=f"elastic-{folder.name}",
            get_if_exists=True,
            num_cpus=0,
            resources=place,
        )
        start = parameters_to_vector(net.parameters()).detach().numpy()
        self.center = elastic.remote(start, self.alpha)
        ray.get(self.center.__ray_ready__.remote())

    def goes_on(self, steps: int, end: float) -> bool:
        return time.time() < end

    @torch.no_grad()
    def step(self, loss: Loss, number: int) -> Tensor | None:
        self.optimizer.zero_grad()
        with torch.enable_grad():
            loss(self.net).backward()
        self.optimizer.step()
        if number % self.period:
            return None
        own = parameters_to_vector(self.net.parameters())
        before = torch.tensor(self.get(self.center.exchange.remote(own.numpy())))
        moved = self.alpha * (own - before)
        vector_to_parameters(own - moved, self.net.parameters())
        return before + moved

    def end(self, number: int) -> None:
        if number == 0:
            self.kill(self.center)


class Elastic:
    """The center of EASGD, an actor of Ray."""

    def __init__(self, weights: Array, alpha: float) -> None:
        self.weights, self.alpha = weights, np.float32(alpha)

    def exchange(self, own: Array) -> Array:
        """Move the weights towards a worker's; return those before it."""
        before = self.weights
        self.weights = before + self.alpha * (own - before)
        return before


class DDP:
    """Adam with the mean gradient of all ranks, in every step."""

    LAST_STEPS = 5
    """The steps that are still taken when rank 0 has decided to stop."""

    def __init__(
        self,
        net: nn.Module,
        number: int,
        of: Settings,
        folder: Path,
        place: dict[str, float],
    ) -> None:
        # On loopback unless the environment names an interface.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACE)
        self.store = dist.FileStore(str(folder / "ranks"), of.workers)
        options = {"rank": number, "world_size": of.workers, "timeout": PATIENCE}
        dist.init_process_group("gloo", store=self.store, **options)
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(net.parameters(), lr=of.learning_rate)
        self.last, self.number = 0, number

    def goes_on(self, steps: int, end: float) -> bool:
        """Whether to take another step: no rank may wait for one that has stopped."""
        if steps % self.LAST_STEPS == 0 and not self.last:
            # Ranks differ by less than a step, so all read what rank 0 wrote before.
            if self.store.check(["last"]):
                self.last = int(self.store.get("last"))
            elif self.number == 0 and time.time() >= end:
                self.store.set("last", str(steps + self.LAST_STEPS))
        return not self.last or steps < self.last

    def step(self, loss: Loss, number: int) -> Tensor | None:
        self.optimizer.zero_grad()
        loss(self.model).backward()
        self.optimizer.step()
        return parameters_to_vector(self.model.parameters()).detach()

    def end(self, number: int) -> None:
        del self.model
        dist.destroy_process_group()
