"""NovoGrad as a Keras optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import (
    check_gradients,
    densify,
    name_of,
    require_variable,
    value_of,
)
from lockstep.keras3.optimizers.rule_optimizer import RuleOptimizer
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.optimizers import novograd as words
from lockstep.optimizers import NOVOGRAD
from lockstep.quirks import quirks_of
from lockstep.tf.shared.optimizers import novograd as core

__all__ = ["NovoGrad"]

registered = keras.saving.register_keras_serializable(package="lockstep")

MOMENTUM, MOMENT = "momentum", "second_moment"


@documented
@registered
class NovoGrad(RuleOptimizer, keras.optimizers.Optimizer):
    """NovoGrad as a Keras optimizer, with one second moment per variable.

    ...

    Norms are computed in float32 for half precision. ``exclude_from_weight_decay``
    excludes variables from wd.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Slots: ``momentum``, initially 0; ``second_moment`` for v, a 0-d float32 variable,
    initially 0 (and always 0 under strict).

    Example:
        >>> weight = keras.Variable([1.0, 1.0])
        >>> optimizer = NovoGrad(learning_rate=0.5)
        >>> _ = optimizer.apply_gradients([(tf.constant([0.0, 4.0]), weight)])
        >>> float(optimizer.get_slot(weight, "second_moment")), weight.numpy().tolist()
        (16.0, [1.0, 0.5])
    """

    spec = NOVOGRAD
    renamed: ClassVar = {}
    strict = False

    def __init__(
        self,
        learning_rate: Any = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
        strict: bool = False,
        **options: Any,
    ) -> None:
        strict = strict or type(self).strict
        arguments = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2}
        arguments |= {"epsilon": epsilon, "weight_decay": weight_decay}
        arguments["grad_averaging"] = grad_averaging
        checks = not quirks_of(strict).arguments_unchecked
        super().__init__(arguments, name, options, checks)
        self.strict = strict

    def build(self, variables: Sequence[Any]) -> None:
        """Create the slots."""
        if self.built:
            return
        super().build(variables)
        for variable in variables:
            self.add_variable_from_reference(variable, MOMENTUM)
            self.add_variable_from_reference(variable, MOMENT)

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Create a slot: momentum like its variable, or a 0-d second moment."""
        if name != MOMENT:
            return super().add_variable_from_reference(
                reference_variable, name, initializer
            )
        path = name_of(reference_variable).replace("/", "_")
        dtype = core.wide_dtype(value_of(reference_variable).dtype).name
        slot = self.add_variable((), initializer, dtype, name=f"{path}_{name}")
        self._slots.add(reference_variable, name, slot)
        return slot

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Update the variables; the first call builds the optimizer with them.

        Strict: the pairs must be a list. Its gradients are normalized afterwards.
        """
        if not self._quirks.novograd_limits:
            return super().apply_gradients(grads_and_vars, global_step, name)
        words.require_list(grads_and_vars)
        pairs = as_pairs(grads_and_vars, words.NAME)
        variables = [require_variable(v, words.NAME) for _, v in pairs]
        gradients = check_gradients([g for g, _ in pairs], variables, words.NAME)
        pairs = list(zip(gradients, variables, strict=True))
        words.require_all_present([name_of(v) for g, v in pairs if g is None])
        for variable in variables:
            words.require_float32(name_of(variable), value_of(variable).dtype.name)
        directions = [(self.direction(g, v), v) for g, v in pairs]
        done = super().apply_gradients(pairs, global_step, name)
        grads_and_vars[:] = directions
        return done

    def direction(self, gradient: Any, variable: Any) -> tf.Tensor:
        """Return g' of the original for a variable: dense, with v = |g|^2."""
        dense = densify(gradient, variable)
        square = core.square_norm(dense)
        return core.normalized(self.policy(variable), square, value_of(variable), dense)

    def policy(self, variable: Any) -> core.Policy:
        """Return the hyper-parameters for a variable."""
        dtype = value_of(variable).dtype
        remembers = not self._quirks.novograd_second_moment
        policy = core.policy_of(self.bound, dtype, remembers)
        if self._use_weight_decay(variable):
            return policy
        return policy._replace(weight_decay=None)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update the slots and the weights of a variable."""
        weight, dense = value_of(variable), densify(gradient, variable)
        if self._quirks.novograd_limits:
            words.require_float32(name_of(variable), weight.dtype.name)
        slots = self._slots.of(variable)
        momentum, stored = value_of(slots[MOMENTUM]), value_of(slots[MOMENT])
        policy = self.policy(variable)
        moment = core.next_moment(policy, stored, core.square_norm(dense))
        direction = core.normalized(policy, moment, weight, dense)
        if policy.remembers:
            stored.assign(moment)
        decay = tf.cast(self.bound["beta1"], weight.dtype)
        momentum.assign(momentum * decay + direction)
        weight.assign_sub(momentum * tf.cast(value_of(learning_rate), weight.dtype))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        config = super().get_config()
        own = {k: v for k, v in self.bound.items() if k != "learning_rate"}
        return {**config, **own, "strict": self.strict}
