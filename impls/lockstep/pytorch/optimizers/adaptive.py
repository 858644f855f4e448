"""Adagrad, RMSProp and Ftrl: a rate of its own for every element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.messages.optimizers import refusals
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.pytorch.optimizers.rate_names import torch_arguments
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import adagrad, ftrl, rmsprop

__all__ = ["AdagradOptimizer", "FtrlOptimizer", "RMSPropOptimizer"]


class AdagradOptimizer(RuleOptimizer):
    """acc += g^2; w -= lr g / sqrt(acc), without an epsilon.

    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups, and ``lr=`` is taken too.
        initial_accumulator_value: > 0.
        use_locking, name: as in TF; without effect on the numbers.
        strict: compute in the parameter's dtype, as the original does, also in half
            precision.

    Raises:
        ValueError: an argument is out of range.

    Slots: ``accumulator``, which starts at ``initial_accumulator_value``.

    Origin: TensorFlow 1.15, ``tf.train.AdagradOptimizer``; Duchi et al. 2011.
    ``torch.optim.Adagrad`` starts at 0 and adds an epsilon to the root.

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


class RMSPropOptimizer(RuleOptimizer):
    """rms += (g^2 - rms)(1 - d); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.

    Centered: mg += (g - mg)(1 - d), and the root is that of rms - mg^2 + eps.
    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups, and ``lr=`` is taken too.
        decay: d, in [0, 1].
        momentum: mu, in [0, 1].
        epsilon: eps >= 0, inside the root.
        centered: subtract the square of the mean gradient.
        use_locking, name: as in TF; without effect on the numbers.
        strict: compute in the parameter's dtype, as the original does, also in half
            precision.

    Raises:
        ValueError: an argument is out of range.

    Slots: ``rms``, which starts at ONE; ``momentum`` and, if centered, ``mg``, at 0.

    Origin: TensorFlow 1.15, ``tf.train.RMSPropOptimizer``; Tieleman and Hinton 2012.
    ``torch.optim.RMSprop`` starts at 0, has eps outside of the root, and multiplies by
    the rate after the momentum.

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


class FtrlOptimizer(RuleOptimizer):
    """G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p)/lr w; accum = n;
    w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.

    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups, and ``lr=`` is taken too. At 0
            nothing changes.
        learning_rate_power: p <= 0.
        initial_accumulator_value: >= 0.
        l1_regularization_strength: l1 >= 0.
        l2_regularization_strength: l2 >= 0.
        l2_shrinkage_regularization_strength: s >= 0.
        use_locking, name: as in TF; without effect on the numbers.
        strict: compute in the parameter's dtype, as the original does, also in half
            precision, fail at rate 0 (the first step of a warm-up), and set a weight
            to 0 whose gradient is NaN.

    Raises:
        ValueError: an argument is out of range; under ``strict``, a step at rate 0.

    Slots: ``accum``, which starts at ``initial_accumulator_value``; ``linear``, at 0.

    Origin: TensorFlow 1.15, ``tf.train.FtrlOptimizer``; McMahan et al. 2013.

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

    def check(self, group: dict[str, Any], parameter: Tensor) -> None:
        """Raise if the rule cannot be applied; under ``strict`` also at rate 0."""
        super().check(group, parameter)
        if self._quirks.ftrl_zero_rate and group["lr"] == 0:
            raise refusals.ZERO_RATE.error(owner=self.spec.class_name)

    def policy(self, group: dict[str, Any], dtype: torch.dtype) -> Any:
        """Return the rule's hyper-parameters for parameters of ``dtype``."""
        return super().policy(group, dtype)._replace(hides_nan=self._quirks.ftrl_nan)

    def update(self, group: dict[str, Any], parameter: Tensor, policy: Any) -> None:
        """Apply the rule; at rate 0 nothing changes."""
        if group["lr"] != 0:
            super().update(group, parameter, policy)
