"""The base class of TensorFlow 1's optimizers as Keras optimizers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from lockstep.checks import require
from lockstep.keras3.base.gradients import without_duplicates
from lockstep.keras3.base.replicas import together
from lockstep.keras3.base.slots import Slots
from lockstep.keras3.base.train_v1 import StateList, TrainV1, shown_rate
from lockstep.messages import keras3 as words
from lockstep.optimizers import OptimizerSpec

__all__ = ["RuleOptimizer"]


CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
"""Keras' arguments that clip."""


class RuleOptimizer(TrainV1):
    """The base class of this package's optimizers, next to a class of Keras.

    ``renamed`` maps the arguments to Keras' names. ``fixed`` has Keras' arguments that
    TensorFlow 1 does not have. Without ``checks`` any number is accepted.
    """

    spec: OptimizerSpec
    renamed: Mapping[str, str]
    fixed: ClassVar[Mapping[str, Any]] = {}

    keeps_duplicates = False
    """Whether the rule gets duplicate rows of a sparse gradient unsummed."""

    def __init__(
        self,
        given: dict[str, Any],
        name: str,
        options: Mapping[str, Any],
        checks: bool = True,
    ) -> None:
        rate = given.pop("learning_rate")
        numbers = {**given, "learning_rate": 0.0 if callable(rate) else rate}
        bound = self.spec.bind((), numbers) if checks else numbers
        for argument in CLIPS if checks else ():
            limit = options.get(argument)
            fine = limit is None or 0 < limit < math.inf
            require(self.spec.class_name, argument, limit, fine, "a finite number > 0")
        values = {
            self.renamed[key]: value if isinstance(value, bool) else float(value)
            for key, value in bound.items()
            if key in self.renamed
        }
        rate = rate if callable(rate) else float(rate)
        super().__init__(
            learning_rate=rate, name=name, **values, **self.fixed, **options
        )
        vars(self).update(_slots=Slots(), bound=bound)

    def __repr__(self) -> str:
        values = {name: repr(value) for name, value in self.bound.items()}
        values["learning_rate"] = shown_rate(self)
        parts = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{type(self).__name__}({parts})"

    @property
    def variables(self) -> StateList:
        """All state; both Keras' property and TensorFlow 1's method."""
        return StateList(super().variables)

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Create a slot with TensorFlow 1's initial value."""
        classes = [cls.__name__ for cls in type(self).__mro__]
        tf_name = words.tf_slot_name(classes, name or "var")
        for slot in self.spec.active_slots(self.bound):
            if slot.name == tf_name:
                first = self.spec.initial_value(slot, self.bound)
                initializer = keras.initializers.Constant(first)
        variable = super().add_variable_from_reference(
            reference_variable, name, initializer
        )
        self._slots.add(reference_variable, tf_name, variable)
        return variable

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a step as in Keras, with the duplicate rows of slices summed first.

        This includes duplicates between the replicas of a strategy.
        """
        variables = trainable_variables
        variables = self._trainable_variables if variables is None else list(variables)

        def step(gradients: list[Any]) -> None:
            if not self.keeps_duplicates:
                gradients = [without_duplicates(gradient) for gradient in gradients]
            super(RuleOptimizer, self).apply(gradients, trainable_variables)

        if tf.distribute.has_strategy():
            owner, build = type(self).__name__, self.builds(variables)
            together(owner, build, step, list(grads), variables)
        else:
            step(list(grads))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply Keras' rule, unless there are no elements: its sum fails for [0, 3]."""
        if 0 not in variable.shape:
            super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        config = super().get_config()
        named = {ours: config.pop(theirs) for ours, theirs in self.renamed.items()}
        return {k: v for k, v in config.items() if k not in self.unnamed()} | named

    def unnamed(self) -> set[str]:
        """Return Keras' arguments that this class' constructor does not have."""
        return {*self.fixed, *self.renamed.values()}
