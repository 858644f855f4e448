"""The optimizers of TensorFlow 1, as :class:`torch.optim.Optimizer` classes.

An optimizer's name means the same here as in ``tf.compat.v1.train`` (AdamW: in
``tf.contrib.opt``): same defaults, same order of operations, same bits. They are
written for that, not for speed; ``torch.optim`` has fused kernels of similar rules.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.pytorch.core import (
    adagrad,
    adam,
    adamw,
    ftrl,
    gradient_descent,
    momentum,
    rmsprop,
)
from lockstep.pytorch.rule_optimizer import RuleOptimizer
from lockstep.spec import torch_host as words
from lockstep.spec.optimizers import OPTIMIZERS

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "RMSPropOptimizer",
]


class GradientDescentOptimizer(RuleOptimizer):
    """w -= lr g.

    Sparse gradients move the named rows only, each occurrence of a row in turn.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups.
        use_locking, name: as in TF; without effect on the numbers.

    Raises:
        ValueError: an argument is out of range.

    Origin: TensorFlow 1.15, ``tf.train.GradientDescentOptimizer``.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> optimizer = GradientDescentOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: (weight * weight).sum())
        >>> weight.tolist()
        [0.0, 0.0]
    """

    spec, rule = OPTIMIZERS["GradientDescent"], gradient_descent
    sums_duplicates = False

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(params, {"learning_rate": learning_rate}, name)


class MomentumOptimizer(RuleOptimizer):
    """a = mu a + g; w -= lr a. Nesterov: w -= lr g + lr mu a, with a already new.

    Sparse gradients: duplicate rows are summed, then the rule holds for the named rows
    only; the momentum of the others does not decay.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups.
        momentum: mu, in [0, 1].
        use_nesterov: look ahead, as Nesterov did.
        use_locking, name: as in TF; without effect on the numbers.

    Raises:
        ValueError: an argument is out of range.

    Slots: ``momentum``, which starts at 0.

    Origin: TensorFlow 1.15, ``tf.train.MomentumOptimizer``; Sutskever et al. 2013.
    ``torch.optim.SGD`` computes the same in another order of operations.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = MomentumOptimizer([weight], 0.25, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.minimize(lambda: weight.sum())
        >>> weight.item(), optimizer.get_slot(weight, "momentum").item()
        (0.375, 1.5)
    """

    spec, rule = OPTIMIZERS["Momentum"], momentum

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        momentum: float,
        use_nesterov: bool = False,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "momentum": momentum,
            "use_nesterov": use_nesterov,
        }
        super().__init__(params, arguments, name)


class AdamOptimizer(RuleOptimizer):
    """m += (g - m)(1 - b1); v += (g^2 - v)(1 - b2);
    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    Sparse gradients: duplicate rows are summed, and the rule is not lazy: m and v decay
    and w moves on every row.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups.
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        epsilon: eps >= 0 ("epsilon hat": added to the root of the uncorrected v).
        use_locking, name: as in TF; without effect on the numbers.

    Raises:
        ValueError: an argument is out of range.

    Slots: ``m`` and ``v``, which start at 0. The powers ``beta1_power`` and
    ``beta2_power`` are float32 numbers in the groups; t counts the steps of the
    optimizer, not those of each parameter.

    Origin: TensorFlow 1.15, ``tf.train.AdamOptimizer``; Kingma and Ba 2015.
    ``torch.optim.Adam`` divides sqrt(v) by sqrt(1 - b2^t) before eps is added, and
    counts the steps of each parameter. Here the arithmetic is that of the
    parameter's dtype: in bfloat16 the default beta2 rounds to 1, so give a smaller one.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6), optimizer.get_slot_names()
        (0.5, ['m', 'v'])
    """

    spec, rule = OPTIMIZERS["Adam"], adam

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
        }
        super().__init__(params, arguments, name)


class AdamWOptimizer(RuleOptimizer):
    """w -= weight_decay w, then as :class:`AdamOptimizer`.

    Sparse gradients: only the named rows decay; the Adam that follows moves every row.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        weight_decay: >= 0, NOT multiplied by the rate.
        learning_rate: lr >= 0; ``lr`` in the groups.
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        epsilon: eps >= 0, added to the root of the uncorrected v.
        use_locking, name: as in TF; without effect on the numbers.

    Raises:
        ValueError: an argument is out of range.

    Slots: ``m`` and ``v``, which start at 0.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AdamWOptimizer``; Loshchilov and Hutter
    2019. ``torch.optim.AdamW`` multiplies the decay by the rate.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamWOptimizer([weight], weight_decay=0.25, learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6)
        0.25
    """

    spec, rule = OPTIMIZERS["AdamW"], adamw

    def __init__(
        self,
        params: ParamsT,
        weight_decay: float,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        arguments = {
            "weight_decay": weight_decay,
            "learning_rate": learning_rate,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
        }
        super().__init__(params, arguments, name)


class AdagradOptimizer(RuleOptimizer):
    """acc += g^2; w -= lr g / sqrt(acc), without an epsilon.

    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups.
        initial_accumulator_value: > 0.
        use_locking, name: as in TF; without effect on the numbers.

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

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        initial_accumulator_value: float = 0.1,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(params, arguments, name)


class RMSPropOptimizer(RuleOptimizer):
    """rms += (g^2 - rms)(1 - d); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.

    Centered: mg += (g - mg)(1 - d), and the root is that of rms - mg^2 + eps.
    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups.
        decay: d, in [0, 1].
        momentum: mu, in [0, 1].
        epsilon: eps >= 0, inside the root.
        centered: subtract the square of the mean gradient.
        use_locking, name: as in TF; without effect on the numbers.

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

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        centered: bool = False,
        *,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        arguments = {
            "learning_rate": learning_rate,
            "decay": decay,
            "momentum": momentum,
            "epsilon": epsilon,
            "centered": centered,
        }
        super().__init__(params, arguments, name)


class FtrlOptimizer(RuleOptimizer):
    """G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p)/lr w; accum = n;
    w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.

    Sparse gradients: duplicate rows are summed, then the named rows alone move.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0; ``lr`` in the groups. At 0 nothing changes.
        learning_rate_power: p <= 0.
        initial_accumulator_value: >= 0.
        l1_regularization_strength: l1 >= 0.
        l2_regularization_strength: l2 >= 0.
        l2_shrinkage_regularization_strength: s >= 0.
        use_locking, name: as in TF; without effect on the numbers.
        strict: at rate 0 fail, as the original does (the first step of a warm-up).

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

    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        *,
        use_locking: bool = False,
        name: str | None = None,
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
        if self.strict and group["lr"] == 0:
            raise words.zero_rate(self.spec.class_name)

    def update(self, group: dict[str, Any], parameter: Tensor) -> None:
        """Apply the rule; at rate 0 nothing changes.

        # Quirk: docs/differences.md#ftrl-zero-rate
        """
        if group["lr"] != 0:
            super().update(group, parameter)
