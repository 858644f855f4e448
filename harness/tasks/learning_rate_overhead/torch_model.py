"""Schedulers in PyTorch: ours, and a ``LambdaLR`` with the same formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from harness.timing import Makers, Prepared, Step
from lockstep.pytorch import PolicyLR

STEPS = 1024
"""The steps of one timing, within which ours computes this many rates in advance."""

TOTAL, WARM_UP = 1_000_000, 4000

POLICIES = {
    "poly_decay": {"decay_steps": TOTAL, "power": 2.0, "warmup_steps": WARM_UP},
    "cosine_decay": {"decay_steps": TOTAL, "warmup_steps": WARM_UP},
    "transformer_policy": {"d_model": 512, "warmup_steps": WARM_UP},
}


def poly(step: int) -> float:
    """Return the factor of ``poly_decay`` at a step, of power 2 after a warm-up."""
    return min(1.0, step / WARM_UP) * (1 - min(step, TOTAL) / TOTAL) ** 2


def cosine(step: int) -> float:
    """Return the factor of ``cosine_decay`` at a step, after a warm-up."""
    wave = math.cos(math.pi * min(step, TOTAL) / TOTAL)
    return min(1.0, step / WARM_UP) * (1 + wave) / 2


def transformer(step: int) -> float:
    """Return the factor of ``transformer_policy`` at a step, of width 512."""
    return 512**-0.5 * min((step + 1) * WARM_UP**-1.5, (step + 1) ** -0.5)


LAMBDAS: dict[str, Callable[[int], float]] = {
    "poly_decay": poly,
    "cosine_decay": cosine,
    "transformer_policy": transformer,
}


def makers(seed: int, device: str, policy: str) -> Makers:
    """Return the builder of each block of steps: ``ours``, ``lambda``."""
    torch.set_num_threads(1)

    def ours() -> Step:
        return block(PolicyLR(optimizer(device), policy, **POLICIES[policy]))

    def peer() -> Step:
        return block(LambdaLR(optimizer(device), LAMBDAS[policy]))

    return {"ours": ours, "lambda": peer}


def optimizer(device: str) -> torch.optim.SGD:
    """Return an optimizer with two groups."""
    weights = [torch.nn.Parameter(torch.ones(1, device=device)) for _ in range(2)]
    return torch.optim.SGD([{"params": [weight]} for weight in weights], lr=0.1)


def block(scheduler: LRScheduler) -> Step:
    """Return a block of steps, after one optimizer step that is not timed."""
    scheduler.optimizer.step()

    def steps(step: Step) -> None:
        for _ in range(STEPS):
            step()

    return Prepared(lambda: None, partial(steps, scheduler.step), STEPS)
