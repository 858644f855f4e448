"""Workers of AGN that share one center."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import Parameter

from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.pytorch.agn_center import RemoteCenter

__all__ = ["RemoteTeam", "Team", "assert_follows_a_schedule", "same", "sgd", "single"]


class Team:
    """Workers, each with a small model; the first model's weights are the center's."""

    def __init__(self, make, count=2, period=2, commit="gradient") -> None:
        self.models, self.workers = [], []
        for number in range(count):
            with torch.random.fork_rng():
                torch.manual_seed(number)
                model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
            getter = AGNCustomGetter("cpu", center=self.center_for_next())
            opt = make(getter(model.named_parameters()))
            worker = AGNOptimizer(opt, count, getter, period, commit=commit)
            self.models.append(model)
            self.workers.append(worker)

    def center_for_next(self):
        return self.center if self.workers else None

    @property
    def center(self):
        return self.workers[0].custom_getter.center

    def start(self):
        for number, worker in enumerate(self.workers):
            worker.get_init_op(number)
        return self

    def step(self, number: int, seed: int = 0) -> None:
        inputs = torch.randn(4, 2, generator=torch.Generator().manual_seed(seed))
        self.workers[number].zero_grad()
        self.models[number](inputs).square().sum().backward()
        self.workers[number].step()

    def weights(self, number: int) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.models[number].parameters()]

    def shared(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.center.parameters.values()]


class RemoteTeam(Team):
    """Workers of one center that each see it from a process of their own."""

    def __init__(self, make, host, count=3, period=2, commit="gradient") -> None:
        self.host = host
        super().__init__(make, count, period, commit)

    def center_for_next(self):
        return RemoteCenter(self.host)

    def shared(self):
        return [torch.tensor(a) for a in self.host.center.present().values()]


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def sgd(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.5)


def single(opt=None, period=2, center=None, commit="gradient"):
    """Return a weight of three elements and a worker that trains it."""
    weight = Parameter(torch.tensor([1.0, 2.0, 3.0]))
    getter = AGNCustomGetter("cpu", center=center)
    opt = (opt or (lambda params: torch.optim.SGD(params, lr=0.5)))(getter([weight]))
    return weight, AGNOptimizer(opt, 1, getter, period, commit=commit)


def assert_follows_a_schedule(weight: Parameter, worker: AGNOptimizer) -> None:
    """Check that the shared weight moves by the worker's rate, which starts at 0.5."""
    schedule = torch.optim.lr_scheduler.LambdaLR(worker, lambda step: 1.0 / 2**step)
    for expected in (0.5, 0.25, 0.125):
        before = weight.detach().clone()
        weight.grad = torch.ones(3)
        worker.step()
        schedule.step()
        assert torch.equal(before - weight, torch.full((3,), expected))
