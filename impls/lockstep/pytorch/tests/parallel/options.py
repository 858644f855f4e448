"""Options of every tool in data-parallel training."""

from __future__ import annotations

from torch.optim import Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import (
    RATE,
    Case,
    Named,
)

__all__ = ["CASES"]


def capturable(named: Named) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    return ls.MixedPrecisionLossScaleOptimizer(adam, 8.0, capturable=True)


CASES: dict[str, dict[str, Case]] = {
    "`capturable=True`": {
        "capturable": Case(capturable, refusal="leave capturable=True out"),
    },
}
