"""Gradient descent and momentum as torch optimizers."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.docstrings import documented
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.pytorch.optimizers.rate_names import torch_arguments
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import gradient_descent, momentum

__all__ = ["GradientDescentOptimizer", "MomentumOptimizer"]


@documented
class GradientDescentOptimizer(RuleOptimizer):
    """Gradient descent as a torch optimizer.

    ...

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> optimizer = GradientDescentOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: (weight * weight).sum())
        >>> weight.tolist()
        [0.0, 0.0]
    """

    spec, rule = OPTIMIZERS["GradientDescent"], gradient_descent
    _cpu_piece = None  # With a single operation, the cache saves nothing.
    sums_duplicates = False

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        use_locking: bool = False,
        name: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        super().__init__(params, {"learning_rate": learning_rate}, name, strict)


@documented
class MomentumOptimizer(RuleOptimizer):
    """Gradient descent with momentum, as a torch optimizer.

    ...

    Sparse gradients: duplicate rows are summed, and only these rows are updated. The
    momentum of other rows does not decay.

    ``torch.optim.SGD`` computes the same in another order of operations.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Slots: ``momentum``, which starts at 0.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = MomentumOptimizer([weight], 0.25, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.minimize(lambda: weight.sum())
        >>> weight.item(), optimizer.get_slot(weight, "momentum").item()
        (0.375, 1.5)
    """

    spec, rule = OPTIMIZERS["Momentum"], momentum
    _cpu_piece = None  # It writes only the momentum and the weights.

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        momentum: float,
        use_locking: bool = False,
        name: str | None = None,
        use_nesterov: bool = False,
        *,
        strict: bool = False,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "momentum": momentum,
            "use_nesterov": use_nesterov,
        }
        super().__init__(params, arguments, name, strict)
