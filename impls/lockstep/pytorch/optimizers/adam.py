"""Adam and AdamW: a step size for each element, from two decaying means."""

from __future__ import annotations

from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.docstrings import documented
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.pytorch.optimizers.rate_names import torch_arguments
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import adam, adamw

__all__ = ["AdamOptimizer", "AdamWOptimizer"]


@documented
class AdamOptimizer(RuleOptimizer):
    """Adam as a torch optimizer, in the "epsilon hat" form of TensorFlow 1.

    ...

    Sparse gradients: duplicate rows are summed. The rule is not lazy, so m, v and w
    change in every row.

    ``torch.optim.Adam`` divides sqrt(v) by sqrt(1 - b2^t) before it adds eps, and
    counts the steps of each parameter.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Slots: ``m`` and ``v``, which start at 0. The powers ``beta1_power`` and
    ``beta2_power`` are float32 numbers in the groups. t counts the optimizer's steps,
    not those of each parameter.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6), optimizer.get_slot_names()
        (0.5, ['m', 'v'])
    """

    spec, rule = OPTIMIZERS["Adam"], adam

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
        }
        super().__init__(params, arguments, name, strict)


@documented
class AdamWOptimizer(RuleOptimizer):
    """AdamW as a torch optimizer, whose decay is not multiplied by the rate.

    ...

    Sparse gradients: weight decay changes only their rows, then Adam updates every row.

    ``torch.optim.AdamW`` multiplies the decay by the rate.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Slots: ``m`` and ``v``, which start at 0.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamWOptimizer([weight], weight_decay=0.25, learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6)
        0.25
    """

    spec, rule = OPTIMIZERS["AdamW"], adamw

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        weight_decay: float,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        arguments = {
            "weight_decay": weight_decay,
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
        }
        super().__init__(params, arguments, name, strict)
