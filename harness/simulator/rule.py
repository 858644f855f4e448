"""The update rules of TensorFlow 1 as pure functions of weights and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lockstep import reference
from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.optimizers import RuleOptimizer, Slots


class RuleState(NamedTuple):
    """The state of a rule: slots by variable name, and scalars of all variables."""

    slots: Mapping[str, Slots]
    shared: Slots


class Rule:
    """One of the base optimizers of the reference, such as ``Rule("Adam")``.

    Args:
        name: a name of :data:`lockstep.optimizers.OPTIMIZERS`.
        arguments: the optimizer's arguments, under TensorFlow 1's names.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        # Only its rule and its arguments are used, not its state.
        self.made: RuleOptimizer = getattr(reference, f"{name}Optimizer")(**arguments)

    def start(self, weights: Mapping[str, Array]) -> RuleState:
        """Return the state before the first step."""
        variables = {
            name: reference.Variable(name, value) for name, value in weights.items()
        }
        slots = {name: self.made.initial_slots(v) for name, v in variables.items()}
        return RuleState(slots, dict(self.made.shared))

    def step(
        self,
        weights: Mapping[str, Array],
        state: RuleState,
        gradients: Mapping[str, Gradient],
    ) -> tuple[dict[str, Array], RuleState]:
        """Return weights and state after one step on the present gradients."""
        moved, slots = dict(weights), dict(state.slots)
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            is_rows = isinstance(gradient, Rows)
            apply = self.made.rule_of_rows if is_rows else self.made.rule
            with np.errstate(all="ignore"):
                numbers = self.made.hyper(weights[name].dtype, state.shared)
                moved[name], slots[name] = apply(
                    numbers, weights[name], slots[name], gradient
                )
        return moved, RuleState(slots, self.advanced(state.shared))

    def advanced(self, shared: Slots) -> Slots:
        """Return the shared powers, each multiplied by its parameter in float32."""
        factors = (self.made.spec.shared or {}).items()
        arguments = self.made.arguments
        return {
            power: np.asarray(shared[power] * np.float32(arguments[factor]))
            for power, factor in factors
        }
