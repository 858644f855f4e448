"""A worker's view of a center in another process, for TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.ray.worker import RemoteView
from lockstep.tf.base.pairs import Pairs
from lockstep.tf.workers.center import Center, Make
from lockstep.tf.workers.served_weights import (
    TensorFlowRule,
    TensorFlowWeights,
    numbers_of,
    powers_of,
    rule_of,
)
from lockstep.tf.workers.served_wrappers import innermost, takes_step

__all__ = ["RemoteCenter"]


class RemoteCenter(RemoteView, Center):
    """A center of several processes: see the base class. Steps are eager."""

    backend = "tf"

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        require_eager()
        return {name: variable.numpy() for name, variable in self.shared.items()}

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: see the base class."""
        self.require_fit(
            {
                name: f"{v.dtype.base_dtype.name} {v.shape.as_list()}"
                for name, v in variables.items()
            }
        )

    def join(self, names: list[str], make: Make) -> list[Any]:
        """Return the shared variables of these names, with the center's values."""
        shared = super().join(names, make)
        for name, variable in zip(names, shared, strict=True):
            if name in self.known:
                variable.assign(self.known[name])
        return shared

    def refresh(self, variables: Sequence[tf.Variable]) -> None:
        """Update these shared variables with the center's values."""
        require_eager()
        names = self._names_of(variables)
        for name, weight in self.member.pull(names).items():
            # TensorFlow may share the memory of an array, and Ray's memory is
            # read-only.
            self.shared[name].assign(np.array(weight))

    def add(
        self, variables: Sequence[tf.Variable], changes: Sequence[Any], **options: Any
    ) -> None:
        """Push the accumulated changes of these shared variables."""
        require_eager()
        names = self._names_of(variables)
        self.send({n: c.numpy() for n, c in zip(names, changes, strict=True)})

    def rule_of(self, optimizer: Any, clips_rows: bool) -> TensorFlowRule:
        """Return the class of an optimizer, its numbers, and the wrappers around it."""
        return rule_of(optimizer, self.shared)

    def make_weights(
        self, rule: TensorFlowRule, weights: dict[str, Array]
    ) -> TensorFlowWeights:
        """Return weights with this rule, for another process."""
        return TensorFlowWeights(rule, weights)

    def step(self, optimizer: tf.compat.v1.train.Optimizer, pairs: Pairs) -> None:
        """Push mean gradients, hyper-parameters and powers of beta.

        The powers belong to the worker, so they then advance here as they did in the
        center. They do not advance if the center rejected the push, or if its optimizer
        took no step.
        """
        require_eager()
        names = self._names_of([variable for _, variable in pairs])
        changes = {n: g.numpy() for n, (g, _) in zip(names, pairs, strict=True)}
        base, means = innermost(optimizer), [gradient for gradient, _ in pairs]
        is_in = self.send(changes, (numbers_of(base), powers_of(base)))
        if is_in and takes_step(optimizer, means):
            base._finish([], "push")

    def _names_of(self, variables: Sequence[tf.Variable]) -> list[str]:
        names = {variable.ref(): name for name, variable in self.shared.items()}
        return [names[variable.ref()] for variable in variables]

    def _trackable_children(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing: ``tf.train.Checkpoint`` saves the worker's part only."""
        return {}


def require_eager() -> None:
    """Raise in a graph or a ``tf.function``, where tensors have no values yet."""
    if not tf.executing_eagerly():
        raise refusals.NOT_EAGER.error()
