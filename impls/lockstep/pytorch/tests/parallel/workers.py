"""The optimizer of a worker in data-parallel training."""

from __future__ import annotations

from torch.optim import SGD, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import RATE, Case, Named

__all__ = ["CASES"]


def agn(named: Named) -> Optimizer:
    getter = ls.AGNCustomGetter("cpu")
    return ls.AGNOptimizer(SGD(getter([p for _, p in named]), RATE), 1, getter, 2)


CASES: dict[str, dict[str, Case]] = {
    "`AGNOptimizer`": {"agn": Case(agn)},
}
