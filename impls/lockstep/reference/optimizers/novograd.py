"""NovoGrad over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.optimizers import novograd as words
from lockstep.optimizers import NOVOGRAD
from lockstep.reference.base.pairs import check_pairs
from lockstep.reference.optimizers.classes import RuleOptimizer
from lockstep.reference.optimizers.rules import novograd
from lockstep.reference.tensors.rows import densify
from lockstep.reference.tensors.variable import Variable

__all__ = ["NovoGrad"]


@documented
class NovoGrad(RuleOptimizer):
    """NovoGrad over NumPy variables: one second moment for each variable.

    ...
    """

    spec, rule = NOVOGRAD, novograd

    def policy(self, dtype: np.dtype[Any]) -> novograd.Policy:
        """Return the hyper-parameters for a variable of ``dtype``."""
        remembers = not self.quirks.novograd_second_moment
        return novograd.policy_of(self.arguments, dtype, remembers)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Update every variable that has a gradient, then the global step.

        Strict: the pairs must be a list, and the normalized gradients are written into
        it.
        """
        if not self.quirks.novograd_limits:
            return super().apply_gradients(grads_and_vars, global_step, name)
        words.require_list(grads_and_vars)
        pairs = check_strictly(grads_and_vars)
        directions = [(self.direction(g, v), v) for g, v in pairs]
        super().apply_gradients(pairs, global_step, name)
        grads_and_vars[:] = directions  # type: ignore[index]

    def direction(self, gradient: Array | Rows, variable: Variable) -> Array:
        """Return the original's normalized gradient, dense, with v = |g|^2."""
        if isinstance(gradient, Rows):
            gradient = densify(gradient, variable.shape)
        policy = self.policy(variable.dtype)
        with np.errstate(all="ignore"):
            square = novograd.square_norm(gradient)
            return novograd.normalized(policy, square, variable.value, gradient)


def check_strictly(grads_and_vars: Iterable[Any]) -> list[tuple[Any, Variable]]:
    """Return the pairs; raise for gradients and dtypes that the original refuses."""
    pairs = check_pairs(grads_and_vars, words.NAME)
    words.require_all_present([v.name for g, v in pairs if g is None])
    for _, variable in pairs:
        words.require_float32(variable.name, str(variable.dtype))
    return [(gradient, variable) for gradient, variable in pairs]
