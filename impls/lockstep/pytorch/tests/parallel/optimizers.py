"""The optimizers of TensorFlow 1, and NovoGrad in data-parallel training."""

from __future__ import annotations

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import NORMS, RATE, Case
from lockstep.pytorch.tests.subjects import TF1

__all__ = ["CASES"]


CASES: dict[str, dict[str, Case]] = {
    "`NovoGrad`": {
        "NovoGrad": Case(lambda p: ls.NovoGrad(p, RATE, weight_decay=0.5), **NORMS)
    },
    "the optimizers of TensorFlow 1": {name: Case(make) for name, make in TF1.items()},
}
