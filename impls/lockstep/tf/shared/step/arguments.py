"""The arguments of ``optimize_loss``, for TensorFlow and Keras."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from lockstep.messages.nouns import Nouns
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import refusals
from lockstep.messages.step.optimizer import (
    check_maker,
    rate_argument,
)

__all__ = ["Makers", "find_trained"]


@dataclass(frozen=True)
class Makers:
    """The optimizer classes of a backend.

    Attributes:
        classes: name -> class.
        kind: the base class of all optimizers.
        nouns: the backend's words for that class.
    """

    classes: Mapping[str, Callable[..., Any]]
    kind: type[Any]
    nouns: Nouns

    def make(
        self, optimizer: Any, rate: Any, arguments: Mapping[str, Any], strict: bool
    ) -> Any:
        """Create an optimizer from its name, its class or a function.

        Raises:
            NotAnOptimizerError: a TypeError; the argument creates no optimizer.
        """
        make = self.maker_of(optimizer, strict)
        if not callable(make):
            raise refusals.NOT_AN_OPTIMIZER.error(
                nouns=self.nouns, got=type(optimizer).__name__
            )
        check_maker(make)
        base = make(**{rate_argument(make): rate}, **arguments)
        if not isinstance(base, self.kind):
            raise refusals.NOT_AN_OPTIMIZER.error(
                nouns=self.nouns, got=type(base).__name__
            )
        return base

    def maker_of(self, optimizer: Any, strict: bool) -> Any:
        """Return the class for a name; return other arguments unchanged."""
        if not isinstance(optimizer, str):
            return optimizer
        make = self.classes[optimizer]
        # TensorFlow's own classes are the originals, so they have no ``strict``.
        has_modes = "strict" in inspect.signature(make).parameters
        return partial(make, strict=True) if strict and has_modes else make


def find_trained(
    var_list: Any,
    model: Any,
    default: Any,
    kind: Any,
    as_variable: Callable[[Any], Any],
) -> list[Any]:
    """Return the variables to train: those listed, of the model, or by default.

    Args:
        var_list: a nest of variables, or None.
        model: an object with ``trainable_variables``, or another one.
        default: the variables that are trained without ``var_list`` and ``model``.
        kind: the classes of variables.
        as_variable: returns the variable that a backend's object wraps.

    Raises:
        VarListError: not a nest of variables.
        UnsupportedError: no variables to train.
        OutOfRangeError: variables are listed and the model is a number or a text.
    """
    if var_list is not None:
        checks.check_model("model", model)
    chosen = var_list
    if chosen is None:
        chosen = getattr(model, "trainable_variables", None)
    if chosen is None:
        chosen = default
    if not isinstance(as_variable(chosen), kind | Mapping):
        chosen = checks.listed(chosen, tf.Tensor)
    variables = [as_variable(entry) for entry in tf.nest.flatten(chosen)]
    for entry in variables:
        if not isinstance(entry, kind):
            raise checks.not_a_variable("variables", entry)
    if not variables and var_list is None and model is not None:
        expected = "a model with trainable variables"
        raise checks.untrainable(model, expected, "trainable_variables")
    if not variables:
        got = "neither" if var_list is None else "an empty list"
        raise refusals.NO_VARIABLES.error(
            expected="variables, or a model that has some", got=got
        )
    return variables
