"""Adagrad, RMSProp and Ftrl as torch optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.docstrings import documented
from lockstep.messages.optimizers import refusals
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.pytorch.optimizers.rate_names import torch_arguments
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import adagrad, ftrl, rmsprop

__all__ = ["AdagradOptimizer", "FtrlOptimizer", "RMSPropOptimizer"]


@documented
class AdagradOptimizer(RuleOptimizer):
    """Adagrad as a torch optimizer, without an epsilon.

    ...

    ``torch.optim.Adagrad`` starts at 0 and adds an epsilon to the root.

    Sparse gradients: duplicate rows are summed, and only these rows are updated.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Slots: ``accumulator``, which starts at ``initial_accumulator_value``.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdagradOptimizer([weight], 0.5, initial_accumulator_value=3.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item(), optimizer.get_slot(weight, "accumulator").item()
        (0.75, 4.0)
    """

    spec, rule = OPTIMIZERS["Adagrad"], adagrad

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(params, arguments, name, strict)


@documented
class RMSPropOptimizer(RuleOptimizer):
    """RMSProp as a torch optimizer, whose mean square starts at one.

    ...

    ``torch.optim.RMSprop`` starts at 0, adds eps outside of the root, and multiplies by
    the learning rate after the momentum.

    Sparse gradients: duplicate rows are summed, and only these rows are updated.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.

    Slots: ``rms``, which starts at 1; ``momentum`` and, if centered, ``mg``, at 0.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = RMSPropOptimizer([weight], 0.5, epsilon=0.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item()
        0.5
    """

    spec, rule = OPTIMIZERS["RMSProp"], rmsprop

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "decay": decay,
            "momentum": momentum,
            "epsilon": epsilon,
            "centered": centered,
        }
        super().__init__(params, arguments, name, strict)


@documented
class FtrlOptimizer(RuleOptimizer):
    """FTRL-proximal as a torch optimizer, with l1, l2 and l2 shrinkage.

    ...

    Sparse gradients: duplicate rows are summed, and only these rows are updated.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        strict: as the original: compute in the dtype of the parameter, also in half
            precision; raise at rate 0, such as the first step of a warm-up; set a
            weight to 0 if its gradient is NaN.

    Raises:
        ...
        ValueError: a step at rate 0 under ``strict``.

    Slots: ``accum``, which starts at ``initial_accumulator_value``; ``linear``, at 0.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([0.0]))
        >>> optimizer = FtrlOptimizer([weight], 0.5, initial_accumulator_value=0.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item()
        -0.5
    """

    spec, rule = OPTIMIZERS["Ftrl"], ftrl

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str | None = None,
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        *,
        strict: bool = False,
    ) -> None:
        shrinkage = l2_shrinkage_regularization_strength
        arguments = {
            "learning_rate": learning_rate,
            "learning_rate_power": learning_rate_power,
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": shrinkage,
        }
        super().__init__(params, arguments, name, strict)

    def check(self, group: dict[str, Any], parameters: Sequence[Tensor]) -> None:
        """Raise if the rule cannot be applied; under ``strict`` also at rate 0."""
        super().check(group, parameters)
        if self._quirks.ftrl_zero_rate and parameters and group["lr"] == 0:
            raise refusals.ZERO_RATE.error(owner=self.spec.class_name)

    def policy(self, group: dict[str, Any], dtype: torch.dtype) -> Any:
        """Return the rule's hyper-parameters for parameters of ``dtype``."""
        return super().policy(group, dtype)._replace(hides_nan=self._quirks.ftrl_nan)

    def update(self, group: dict[str, Any], parameters: Sequence[Tensor]) -> None:
        """Apply the rule; at rate 0, change nothing."""
        if group["lr"] != 0:
            super().update(group, parameters)
