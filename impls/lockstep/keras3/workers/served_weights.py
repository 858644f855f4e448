"""The weights of a center in another process, with a Keras optimizer there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lockstep.interface import Array
from lockstep.keras3.base.slots import base_of
from lockstep.keras3.base.wrapper import layers_of
from lockstep.keras3.workers.center import Center, make_like
from lockstep.messages import ray as refusals
from lockstep.messages.workers.center import Update

__all__ = ["KerasRule", "KerasWeights"]

HOST = "/cpu:0"


class KerasRule(NamedTuple):
    """A description of a Keras optimizer, from which another process creates it.

    Attributes:
        config: the result of ``keras.saving.serialize_keras_object``.
        paths: name of a weight -> the path of the worker's variable.
        clips_rows: whether row clipping inside clips shared rows.
    """

    config: Mapping[str, Any]
    paths: Mapping[str, str]
    clips_rows: bool


class KerasWeights:
    """The weights of a served center, with a Keras optimizer.

    This is the in-process center with arrays as interface, so both give the same bits.
    The object is sent as arrays and a configuration. The center is created at first
    use.
    """

    def __init__(self, rule: KerasRule, weights: Mapping[str, Array]) -> None:
        self.rule = rule
        self.weights = dict(weights)

    @cached_property
    def center(self) -> Center:
        """The center, created like the worker's own.

        Raises:
            UnsupportedError: a ValueError; this process cannot create the optimizer.
        """
        with tf.device(HOST):
            center = Center()
            owned = {n: self._stand_in(n, array) for n, array in self.weights.items()}
            for name, variable in owned.items():
                center.join(name, variable)
            center.follow(self._optimizer(), owned, self.rule.clips_rows)
        self.weights = {}
        return center

    def _stand_in(self, name: str, value: Array) -> keras.Variable:
        """Return a variable with the path of a worker's variable."""
        return make_like(tf.Variable(value), self.rule.paths[name])

    def _optimizer(self) -> keras.optimizers.Optimizer:
        config = dict(self.rule.config)
        try:
            return keras.saving.deserialize_keras_object(config)
        except (TypeError, ImportError) as error:
            got = config.get("class_name")
            raise refusals.UNKNOWN_OPTIMIZER.error(got=got) from error

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        chosen = self.center.shared if names is None else names
        pulled = self.center.pull(chosen).items()
        return {name: np.asarray(tensor.numpy()) for name, tensor in pulled}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's learning rate."""
        with tf.device(HOST):
            gradients = {name: tf.constant(c) for name, c in changes.items()}
            self.center.push(Update(gradients, options))

    def saved(self) -> Any:
        """Return the weights and the optimizer's state, as arrays."""
        state = [np.asarray(v.numpy()) for v in self.center.optimizer.variables]
        return {"weights": self.pull(), "kinds": self._kinds(), "state": state}

    def _kinds(self) -> list[str]:
        """Return descriptions of the optimizer and of each of its variables."""
        optimizer = self.center.optimizer
        layers = [*layers_of(optimizer), base_of(optimizer)]
        variables = optimizer.variables
        return [
            " around ".join(type(layer).__name__ for layer in layers),
            *(f"{v.name} {v.dtype} {list(v.shape)}" for v in variables),
        ]

    def load(self, saved: Any) -> None:
        """Load weights and state.

        Raises:
            UnsupportedError: a ValueError; the state is of another optimizer. Nothing
                is changed then.
        """
        refusals.require_kinds(self._kinds(), saved["kinds"])
        for name, weight in saved["weights"].items():
            self.center.shared[name].assign(weight)
        variables = self.center.optimizer.variables
        for variable, value in zip(variables, saved["state"], strict=True):
            variable.assign(value)
