"""A worker's view of a center in another process, for Keras 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep.interface import Array
from lockstep.keras3.base.gradients import name_of, value_of
from lockstep.keras3.workers.center import Center, config_of
from lockstep.keras3.workers.served_weights import KerasRule, KerasWeights
from lockstep.messages import ray as refusals
from lockstep.messages.workers import center as words
from lockstep.messages.workers.center import Update
from lockstep.ray.view import RemoteView

__all__ = ["RemoteCenter"]


class RemoteCenter(RemoteView, Center):
    """A center of several processes: see the base class. Steps are eager."""

    backend = "keras3"

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.paths: dict[str, str] = {}

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        return {name: variable.numpy() for name, variable in self.shared.items()}

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: see the base class."""
        self.require_fit(
            {
                name: f"{value_of(variable).dtype.name} {list(variable.shape)}"
                for name, variable in variables.items()
            }
        )

    def join(self, name: str, variable: Any) -> keras.Variable:
        """Return the shared variable of this name, with the center's value."""
        shared = super().join(name, variable)
        self.paths[name] = name_of(variable)
        if name in self.known:
            shared.assign(self.known[name])
        return shared

    def rule_of(self, optimizer: Any, clips_rows: bool) -> KerasRule:
        """Return the configuration of an optimizer."""
        return KerasRule(config_of(optimizer), self.paths, clips_rows)

    def make_weights(self, rule: KerasRule, weights: dict[str, Array]) -> KerasWeights:
        """Return weights with this rule, for another process."""
        return KerasWeights(rule, weights)

    def follow(
        self,
        optimizer: keras.optimizers.Optimizer,
        owned: Mapping[str, Any],
        clips_rows: bool = True,
    ) -> None:
        """Raise if the worker trains other variables; no optimizer is needed here."""
        if sorted(owned) != sorted(self.shared):
            raise words.other_groups(list(self.shared), list(owned))

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables of these names."""
        require_eager()
        for name, weight in self.member.pull(names).items():
            # TensorFlow may share the memory of an array, and Ray's is read-only.
            self.shared[name].assign(np.array(weight))
        return super().pull(names)

    def push(self, update: Update) -> None:
        """Push the accumulated changes, and the worker's learning rate."""
        require_eager()
        changes = {name: change.numpy() for name, change in update.changes.items()}
        options = update.optimizer or {}
        self.send(changes, {key: v.numpy() for key, v in options.items()} or None)


def require_eager() -> None:
    """Raise in a ``tf.function``, where tensors have no values yet."""
    if not tf.executing_eagerly():
        raise refusals.NOT_EAGER.error()
