"""Options of every tool in data-parallel training."""

from __future__ import annotations

from torch.optim import Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import (
    RATE,
    Case,
    Named,
    Pairs,
    momentum,
    multitask,
)

__all__ = ["CASES"]

STRICT = {"refusal": "leave strict=True out"}


def capturable(named: Named) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    return ls.MixedPrecisionLossScaleOptimizer(adam, 8.0, capturable=True)


def clipped_as_original(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_norm(pairs, 0.5, strict=True)


CASES: dict[str, dict[str, Case]] = {
    "`strict=True`, `capturable=True`": {
        "strict": Case(
            lambda p: ls.MultitaskOptimizerWrapper(momentum(p), strict=True),
            **STRICT,
        ),
        "strict rule": Case(lambda p: ls.AdamOptimizer(p, RATE, strict=True), **STRICT),
        "strict norm": Case(multitask, clipped_as_original, **STRICT),
        "capturable": Case(capturable, refusal="leave capturable=True out"),
    },
}
