"""The interface of TensorFlow 1's optimizers, for Keras optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.keras3.base.gradients import (
    Gradient,
    as_gradient,
    as_variable,
    check_gradients,
    require_variable,
    value_of,
)
from lockstep.keras3.base.replicas import scope_of, together
from lockstep.keras3.base.slots import Slots, base_of
from lockstep.messages import keras3 as words
from lockstep.messages.base import refusals
from lockstep.messages.base.differentiation import (
    check_no_arguments,
    check_options,
    not_listed,
    refuse_text,
)
from lockstep.messages.base.pairs import as_pairs
from lockstep.quirks import Quirks, quirks_of

__all__ = [
    "HiddenList",
    "StateList",
    "TrainV1",
    "require_all",
    "shown_optimizer",
    "shown_rate",
]


class StateList(list):
    """A list of variables that is also callable.

    ``variables`` is a property in Keras 3 and a method in TensorFlow 1. Code for either
    of them gets the list.
    """

    def __call__(self) -> list[keras.Variable]:
        """Return the list."""
        return list(self)


class HiddenList(StateList):
    """The state for Keras; TensorFlow 1's method returns an empty list."""

    def __call__(self) -> list[keras.Variable]:
        """Return an empty list, as in the original."""
        return []


class TrainV1:
    """The methods of TensorFlow 1's optimizers, in addition to Keras' interface.

    ``gate_gradients``, ``aggregation_method``, ``colocate_gradients_with_ops`` and
    ``name`` are accepted and have no effect.
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH

    strict = False
    """Whether the quirks of the original are on."""

    @cached_property
    def _quirks(self) -> Quirks:
        """The quirks of the original that are on."""
        return quirks_of(self.strict)

    takes_wide = False
    """Whether half-precision variables accept float32 gradients."""

    _slots: Slots | None = None

    def __dir__(self) -> list[str]:
        """Return the names without the one that marks a v1 optimizer for checkpoints.

        ``tf.train.Checkpoint`` raises if a v1 optimizer's slots are also variables that
        it finds through Keras.
        """
        return [name for name in super().__dir__() if name != "get_slot_names"]

    @tf.autograph.experimental.do_not_convert
    @documented
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Gradient, Any]]:
        """...

        The loss first goes through ``scale_loss``, as in ``fit``. If it is scaled
        there, the gradients are divided again when they are applied.

        Args:
            loss: a callable without arguments that returns a tensor.
            var_list: the variables; None: those that the optimizer was built with.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` cannot be called.
            UnsupportedError: a ValueError; no ``var_list``, and the optimizer is not
                built.
        """
        owner = type(self).__name__
        check_options(owner, gate_gradients, aggregation_method)
        if not callable(loss):
            raise refusals.LOSS_NOT_CALLABLE.error(owner=owner, got=type(loss).__name__)
        if var_list is None and not self.built:
            raise words.NO_VARIABLES.error(owner=owner)
        check_no_arguments(loss, owner)
        variables = self._trainable_variables if var_list is None else var_list
        variables = require_all(variables, owner)
        if grad_loss is not None:
            refuse_text(grad_loss, owner)
            grad_loss = as_gradient(grad_loss, "the loss", owner)
        values = [value_of(variable) for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            value = loss()
            if value is None or isinstance(value, str):
                raise refusals.NO_LOSS.error(owner=owner, got=value)
            scaled = self.scale_loss(value)
        gradients = tape.gradient(scaled, values, grad_loss)
        return list(zip(gradients, variables, strict=True))

    @documented
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Update the variables; the first call builds the optimizer with them.

        Args:
            global_step: integer variable, incremented if ``iterations`` counts the
                step.

        Returns:
            ``iterations``, as in Keras.

        Raises:
            ...
            UnknownNameError: a ValueError; the optimizer was built without a variable.
        """
        owner = type(self).__name__
        pairs = as_pairs(grads_and_vars, owner)
        variables = [require_variable(variable, owner) for _, variable in pairs]
        entries = [gradient for gradient, _ in pairs]
        gradients = check_gradients(entries, variables, owner, self.takes_wide)
        counter = check_counter(global_step, owner)

        def step(gradients: list[Gradient]) -> None:
            before = self._iterations.value.read_value()
            self.apply(gradients, variables)
            if counter is not None:
                counted = self._iterations.value.read_value() - before
                counter.assign_add(tf.cast(counted, counter.dtype))

        self.forget_report()
        build = self.builds(variables)
        together(owner, build, step, gradients, variables)
        return self._iterations

    @tf.autograph.experimental.do_not_convert
    @documented
    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> tf.Variable:
        pairs = self.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        return self.apply_gradients(pairs, global_step, name)

    def ensure_built(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables`` unless it exists; works in graphs too."""
        if not self.built:
            scope = scope_of(base_of(self)._distribution_strategy)
            with tf.init_scope(), scope, keras.name_scope(self.name, caller=self):
                self.build(variables)

    def forget_report(self) -> None:
        """Reset reports of earlier steps; optimizers without reports do nothing."""

    def builds(self, variables: Sequence[Any]) -> Callable[[list[Gradient]], None]:
        """Return a function that creates the state for ``variables`` before a step."""
        return lambda gradients: self.ensure_built(variables)

    @documented
    def get_name(self) -> str:
        return self.name

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return the slot ``name`` (TensorFlow 1's name) of ``var``, or None."""
        return None if self._slots is None else self._slots.of(var).get(name)

    def get_slot_names(self) -> list[str]:
        """Return the names (TensorFlow 1's) of the slots that exist."""
        return [] if self._slots is None else self._slots.names()


def shown_optimizer(optimizer: keras.optimizers.Optimizer) -> str:
    """Return an optimizer's repr; Keras' own optimizers have none."""
    if isinstance(optimizer, TrainV1):
        return repr(optimizer)
    return f"{type(optimizer).__name__}(learning_rate={shown_rate(optimizer)})"


def shown_rate(optimizer: keras.optimizers.Optimizer) -> str:
    """Return the current rate; the class name for schedules, and in graphs."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.Variable) and tf.executing_eagerly():
        return f"{float(tf.convert_to_tensor(rate.value)):.7g}"
    return f"<{type(rate).__name__}>"


def require_all(var_list: Any, owner: str) -> list[Any]:
    """Return the variables of a list, which may be nested."""
    variables = [as_variable(variable) for variable in tf.nest.flatten(var_list)]
    for variable in variables:
        if not isinstance(variable, keras.Variable | tf.Variable):
            raise not_listed(owner, variable)
    return variables


def check_counter(global_step: Any, owner: str) -> tf.Variable | None:
    """Return the step counter, or None; raise if it cannot count."""
    if global_step is None:
        return None
    counter = value_of(global_step)
    if not isinstance(counter, tf.Variable) or not counter.dtype.is_integer:
        raise words.NOT_A_COUNTER.error(owner=owner, got=type(global_step).__name__)
    return counter
