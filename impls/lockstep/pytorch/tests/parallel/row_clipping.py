"""Row clipping in data-parallel training."""

from __future__ import annotations

from torch.optim import Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import Case, Named, momentum

__all__ = ["CASES"]


def rows(named: Named, limits: dict[str, list[int]]) -> Optimizer:
    return ls.VariableClippingOptimizer(momentum(named), limits, 0.5)


CASES: dict[str, dict[str, Case]] = {
    "`VariableClippingOptimizer`, rows whole": {
        "rows": Case(lambda p: rows(p, {"body.weight": [1], "b.weight": [1]}))
    },
    "`VariableClippingOptimizer`, rows split": {
        "columns": Case(
            lambda p: rows(p, {"body.weight": [0]}),
            refusal="expected the axes [0] of 'body.weight' whole on each rank",
        )
    },
}
