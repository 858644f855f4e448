"""NovoGrad as a torch optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.docstrings import documented
from lockstep.messages.optimizers import novograd as words
from lockstep.messages.optimizers.parameters import NOVOGRAD
from lockstep.pytorch.base.gradients import check_pairs, dtype_name, named_parameters
from lockstep.pytorch.optimizers.rate_names import torch_arguments
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import Shared, Slots, novograd
from lockstep.pytorch.tensors import shards

__all__ = ["NovoGrad"]

Group = dict[str, Any]


@documented
class NovoGrad(RuleOptimizer):
    """NovoGrad as a torch optimizer: one second moment for a whole tensor.

    ...

    For half precision, norms are computed in float32. There is no host sync.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too. It is
            required; under ``strict`` the default is 1.0, as in the original.

    Slots: ``momentum``, which starts at 0; ``second_moment`` (v), a 0-d float32 tensor
    that starts at 0, and stays 0 under ``strict``.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
        >>> optimizer = NovoGrad([weight], learning_rate=0.5)
        >>> weight.grad = torch.tensor([0.0, 4.0])
        >>> optimizer.step()
        >>> weight.tolist()
        [1.0, 0.5]
        >>> optimizer.get_slot(weight, "second_moment").item()
        16.0
    """

    spec, rule = NOVOGRAD, novograd
    # Fewer small operations on norms; gradients are still in the cache after them.
    _cpu_run = 1 << 20

    @torch_arguments
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
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
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
        }
        super().__init__(params, arguments, name, strict)

    def policy(self, group: Group, dtype: torch.dtype) -> novograd.Policy:
        """Return the hyper-parameters of a group for a parameter of ``dtype``."""
        remembers = not self._quirks.novograd_second_moment
        return novograd.policy_of(self.arguments(group), dtype, remembers)

    def check(self, group: Group, parameters: Sequence[Tensor]) -> None:
        """Raise if the rule cannot be applied, before anything changes."""
        super().check(group, parameters)
        for parameter in parameters if self._quirks.novograd_limits else ():
            if parameter.dtype != torch.float32:
                name = named_parameters(self)[parameter]
                words.require_float32(name, dtype_name(parameter))

    def _update_dense(
        self,
        policy: novograd.Policy,
        shared: Shared,
        parameters: Sequence[Tensor],
        slots: Sequence[Slots],
        gradients: Sequence[Tensor],
    ) -> None:
        """Apply the rule to whole DTensors, because it needs their norms."""
        gradients = shards.split_alike(gradients, parameters)
        self.rule.update_dense(policy, shared, parameters, slots, gradients)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with only these gradients.

        Strict: the pairs must be a list, and its gradients are replaced by the
        normalized ones.
        """
        if not self._quirks.novograd_limits:
            return super().apply_gradients(grads_and_vars, global_step, name)
        words.require_list(grads_and_vars)
        names = named_parameters(self)
        pairs = check_pairs(grads_and_vars, self, self.get_name())
        words.require_all_present([names[p] for g, p in pairs if g is None])
        for _, parameter in pairs:
            words.require_float32(names[parameter], dtype_name(parameter))
        directions = self._directions(pairs)
        super().apply_gradients(pairs, global_step, name)
        grads_and_vars[:] = directions
        return None

    @torch.no_grad()
    def _directions(self, pairs: list[tuple[Any, Tensor]]) -> list[tuple[Any, Tensor]]:
        """Return the original's normalized gradients, with v = |g|^2."""
        groups = {p: group for group in self.param_groups for p in group["params"]}
        policies = {
            id(group): self.policy(group, torch.float32) for group in self.param_groups
        }
        directions = []
        for gradient, parameter in pairs:
            dense = [gradient.to_dense() if gradient.is_sparse else gradient]
            policy = policies[id(groups[parameter])]
            square = novograd.square_norm_as_original(dense)
            (direction,) = novograd.normalized(policy, square, [parameter], dense)
            directions.append((direction, parameter))
        return directions
