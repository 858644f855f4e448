"""Loss scales and the optimizer that applies them in data-parallel training."""

from __future__ import annotations

from typing import Any

from torch.optim import Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import (
    NORMS,
    RATE,
    Case,
    Named,
    Pairs,
    momentum,
    multitask,
)

__all__ = ["CASES"]


def scaled(named: Named, **options: Any) -> Optimizer:
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(momentum(named), scale, **options)


def fused(named: Named) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(adam, scale, clip_norm=0.5)


def moved_scales(pairs: Pairs) -> Pairs:
    """Multiply by what loss scales find in the gradients."""
    scale = ls.DynamicLossScale(8.0, 1)
    assert scale.update([gradient for gradient, _ in pairs])[1]
    has_nan, largest = ls.AutomaticLossScaler.check_grads(pairs)
    factor = float(scale()) / (16 + float(largest)) / (1 + float(has_nan))
    return [(gradient * factor, parameter) for gradient, parameter in pairs]


CASES: dict[str, dict[str, Case]] = {
    "`MixedPrecisionLossScaleOptimizer`": {
        "scaled": Case(scaled),
        "scaled, clipped": Case(lambda p: scaled(p, clip_norm=0.5), **NORMS),
        "scaled, fused": Case(fused, **NORMS),
        "scaled, by hand": Case(scaled, by_hand=True),
    },
    "`DynamicLossScale`, `AutomaticLossScaler`": {
        "loss scales": Case(multitask, moved_scales)
    },
}
