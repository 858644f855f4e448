"""Float32 masters in data-parallel training."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import (
    NORMS,
    RATE,
    Case,
    Named,
    momentum,
)

__all__ = ["CASES"]

MASTERS = {"dtype": torch.bfloat16}


def masters(named: Named, scale: Any = 8.0, **options: Any) -> Optimizer:
    return ls.MixedPrecisionOptimizerWrapper(Adam(named, RATE), scale, **options)


def masters_of_logmax(named: Named) -> Optimizer:
    return masters(named, ls.AutomaticLossScaler("LogMax"), clip_norm=0.5)


def masters_around_wrappers(named: Named) -> Optimizer:
    inner = ls.MultitaskOptimizerWrapper(
        ls.VariableClippingOptimizer(momentum(named), {"body.weight": [1]}, 0.5)
    )
    return ls.MixedPrecisionOptimizerWrapper(inner, "dynamic")


CASES: dict[str, dict[str, Case]] = {
    "`MixedPrecisionOptimizerWrapper`": {
        "masters": Case(masters, **MASTERS),
        "masters, by hand": Case(masters, by_hand=True, **MASTERS),
        "masters of LogMax": Case(masters_of_logmax, **MASTERS, **NORMS),
        "masters around wrappers": Case(masters_around_wrappers, **MASTERS),
    },
}
