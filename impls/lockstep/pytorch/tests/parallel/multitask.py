"""The multitask wrapper in data-parallel training."""

from __future__ import annotations

from torch.optim import Adam

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import RATE, Case

__all__ = ["CASES"]


CASES: dict[str, dict[str, Case]] = {
    "`MultitaskOptimizerWrapper`": {
        "multitask": Case(lambda p: ls.MultitaskOptimizerWrapper(Adam(p, RATE)))
    },
}
