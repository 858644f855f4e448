"""torch's own Adam over NumPy variables, and what its optimizers share.

They are the standard for the wrapper around torch's own optimizers. Golden data -> the
reference with TF1's rules verifies the logic of a wrapper. The reference with torch's
rules -> the wrapper around ``torch.optim`` verifies it on that backend.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.parity.drivers.framework_rules import torch_adam
from lockstep.interface import Array
from lockstep.optimizers import TORCH_ADAM
from lockstep.reference.arrays import Variable
from lockstep.reference.optimizers import RuleOptimizer, Slots

__all__ = ["TorchAdam", "TorchOptimizer"]


class TorchOptimizer(RuleOptimizer):
    """A rule of torch: dense gradients, a step count per parameter, float64 numbers."""

    def hyper(self, dtype: np.dtype[Any], shared: Slots) -> Any:
        """Return the hyper-parameters without a cast: torch casts in each kernel."""
        return SimpleNamespace(**self.arguments)

    def initial_slots(self, variable: Variable) -> dict[str, Array]:
        """Return new slots, and a step counter for this variable."""
        return {**super().initial_slots(variable), "step": np.zeros((), np.int64)}


class TorchAdam(TorchOptimizer):
    """``torch.optim.Adam(lr, (beta1, beta2), eps)``."""

    spec, rule = TORCH_ADAM, staticmethod(torch_adam.update_dense)
