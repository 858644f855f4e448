"""The assignment of an optimizer's state variables to the trained variables.

Keras keeps slots in lists with different names in different optimizers. Optimizers
create them by the same public method, so that method is observed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import key_of
from lockstep.messages.keras3 import SEVERAL_OPTIMIZERS, tf_slot_name

__all__ = ["Slots", "base_of", "build_observed", "preserved", "refuse_several"]


class Slots:
    """The state of each trained variable, by TensorFlow 1's slot names.

    A variable that is trained through a master has the same state as its master.
    """

    def __init__(self) -> None:
        self.by_variable: dict[Any, dict[str, Any]] = {}
        self.masters: dict[Any, Any] = {}
        self.models: dict[Any, Any] = {}

    def add(self, variable: Any, name: str, slot: Any) -> None:
        """Add a slot that was created for ``variable``."""
        self.by_variable.setdefault(key_of(variable), {})[name] = slot

    def of(self, variable: Any) -> dict[str, Any]:
        """Return the slots of ``variable`` by name; an empty dict if it has none."""
        return self.by_variable.get(key_of(variable), {})

    def add_master(self, variable: Any, master: Any) -> None:
        """Add the master of ``variable``; both get the master's slots."""
        self.masters[key_of(variable)] = master
        self.models[key_of(master)] = variable
        named = self.of(master)
        self.by_variable[key_of(variable)] = {"master": master, **named}

    def masters_of(self, variables: Iterable[Any]) -> list[Any]:
        """Return the master of each variable, or itself if it has none."""
        return [self.masters.get(key_of(v), v) for v in variables]

    def models_of(self, variables: Iterable[Any]) -> list[Any]:
        """Return the variable of each master; return other variables unchanged."""
        return [self.models.get(key_of(v), v) for v in variables]

    def master_of(self, variable: Any) -> Any:
        """Return the float32 master of ``variable``, or itself if it has none."""
        return self.masters.get(key_of(variable), variable)

    def model_of(self, variable: Any) -> Any:
        """Return the variable of a master; return another variable unchanged."""
        return self.models.get(key_of(variable), variable)

    def names(self) -> list[str]:
        """Return the distinct names of all slots."""
        entries = (name for named in self.by_variable.values() for name in named)
        return list(dict.fromkeys(entries))


def base_of(optimizer: Any) -> keras.optimizers.Optimizer:
    """Return the innermost optimizer, which owns the slots and the counter."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def refuse_several(optimizer: Any, owner: str, remedy: str) -> None:
    """Raise for Keras' ``MultiOptimizer``, which distributes variables by their paths.

    Slots, rates and accumulated gradients are those of the optimizers inside it.
    """
    base = base_of(optimizer)
    if hasattr(base, "optimizers"):
        got = type(base).__name__
        raise SEVERAL_OPTIMIZERS.error(owner=owner, got=got, remedy=remedy)


def build_observed(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[Any]
) -> Slots:
    """Build ``optimizer`` for ``variables``; return the slots that it creates.

    An optimizer that is already built is not changed. Instead a copy from its
    configuration is built, and the n-th variables of both correspond.
    """
    base = base_of(optimizer)
    slots = Slots()
    if not base.built:
        with observed(base, slots):
            optimizer.build(variables)
        return slots
    if not optimizer.built:
        optimizer.build(variables)
    twin = type(base).from_config(base.get_config())
    twins = Slots()
    with observed(twin, twins):
        twin.build(base._trainable_variables)
    own = {id(v): mine for v, mine in zip(twin.variables, base.variables, strict=True)}
    for key, named in twins.by_variable.items():
        slots.by_variable[key] = {name: own[id(slot)] for name, slot in named.items()}
    return slots


@contextlib.contextmanager
def observed(optimizer: keras.optimizers.Optimizer, slots: Slots) -> Iterator[None]:
    """Add the variables that ``optimizer`` creates for others to ``slots``."""
    make = optimizer.add_variable_from_reference
    classes = [cls.__name__ for cls in type(optimizer).__mro__]

    def make_and_enter(
        reference_variable: Any, name: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        slot = make(reference_variable, name, *args, **kwargs)
        slots.add(reference_variable, tf_slot_name(classes, name or "var"), slot)
        return slot

    # Not setattr: Keras and TensorFlow would track the attribute.
    vars(optimizer)["add_variable_from_reference"] = make_and_enter
    try:
        yield
    finally:
        del vars(optimizer)["add_variable_from_reference"]
    if isinstance(optimizer, keras.optimizers.Adafactor):
        add_factors(optimizer, slots)


def add_factors(optimizer: keras.optimizers.Adafactor, slots: Slots) -> None:
    """Add the means of Adafactor over rows and columns, created by another method.

    A variable of fewer than two dimensions has none.
    """
    columns = optimizer._trainable_variables, optimizer._r, optimizer._c
    for variable, r, c in zip(*columns, strict=True):
        if len(variable.shape) >= 2 and r is not None:
            slots.add(variable, "r", r)
            slots.add(variable, "c", c)


@contextlib.contextmanager
def preserved(
    states: Sequence[Sequence[tf.Variable]], flags: Sequence[tf.Tensor] | tf.Tensor
) -> Iterator[None]:
    """Restore the k-th of ``states`` exactly after the block if ``flags[k]`` is true.

    A condition around each update would not cover weight decay and constraints, which
    Keras applies apart from the update.
    """
    before = [[tf.identity(part) for part in state] for state in states]
    yield
    for k, (state, old) in enumerate(zip(states, before, strict=True)):
        for part, value in zip(state, old, strict=True):
            part.assign(tf.where(flags[k], value, part))
