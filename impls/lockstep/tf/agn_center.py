"""The variables that AGN's workers share: in their process, or in one of their own.

Workers of one process hold the same :class:`Center`. In a cluster of TensorFlow 1 each
process has its own, whose variables are those of the same names on the parameter
servers. Workers with a center on Ray have a :class:`RemoteCenter` each; the center
applies their pushes with :class:`TensorFlowWeights`.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.pipeline import has_layer
from lockstep.tf.shared import agn as shared
from lockstep.tf.wrapper import apply_with, as_variable, base_of, builds_graph

Optimizer = tf.compat.v1.train.Optimizer

HOST = "/cpu:0"
# Attributes that a center has itself, or that checkpoints add.
NOT_SENT = ("_slots", "_deferred_slot_", "_self_")


class Center(shared.Center, tf.Module):
    """Shared variables, and their slots, which every worker's optimizer uses in turn.

    Attributes:
        slots: an optimizer that holds the slots of the shared variables, and updates
            nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slots: Optimizer
        # Not setattr: TensorFlow would track it.
        vars(self)["slots"] = Optimizer(use_locking=False, name="center")

    def push(
        self, changes: Mapping[str, tf.Tensor], optimizer: Optimizer | None
    ) -> tf.Operation | None:
        """Take a step on mean gradients with a worker's optimizer.

        Without an optimizer the changes are added.
        """
        if optimizer is None:
            return self.add(changes)
        pairs = [(change, self.shared[name]) for name, change in changes.items()]
        with self.lock, self.lending(base_of(optimizer)):
            return apply_with(optimizer, pairs)

    @contextlib.contextmanager
    def lending(self, base: Optimizer) -> Iterator[None]:
        """Let ``base`` use, and create, the slots of shared variables in the block."""
        own, slots = base._slots, self.slots._slots
        count = sum(map(len, slots.values()))
        base._slots = slots
        try:
            yield
        finally:
            base._slots = own
            if builds_graph():  # Old code asks the optimizer for them.
                for slot, entries in slots.items():
                    base._slot_dict(slot).update(entries)
            elif count < sum(map(len, slots.values())):
                # Checkpoints of objects save and restore them.
                for name, value in self.state().items():
                    self._track_trackable(value, name)

    def slot(self, variable: Any, name: str) -> tf.Variable | None:
        """Return a slot of a shared variable; None before it is created."""
        return self.slots.get_slot(as_variable(variable), name)

    def state(self) -> dict[str, tf.Variable]:
        """Return the slots that exist, by slot name and variable name."""
        slots = {
            f"{slot} of {name}": self.slot(variable, slot)
            for slot in self.slots.get_slot_names()
            for name, variable in self.shared.items()
        }
        return {name: value for name, value in slots.items() if value is not None}


# -- a center in a process of its own --------------------------------------------------


class OptimizerPickler(pickle.Pickler):
    """Pickles an optimizer, with shared variables as names and without their slots."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, tf.Variable]) -> None:
        super().__init__(file)
        self.names = {variable.ref(): name for name, variable in shared.items()}

    def persistent_id(self, value: Any) -> str | None:
        """Return the name of a shared variable."""
        return self.names.get(value.ref()) if isinstance(value, tf.Variable) else None

    def reducer_override(self, value: Any) -> Any:
        """Reduce an optimizer to its class and attributes."""
        if not isinstance(value, Optimizer):
            return NotImplemented
        attributes: dict[str, Any] = {"_slots": {}, "_deferred_slot_restorations": {}}
        for name, attribute in vars(value).items():
            if name.startswith(NOT_SENT):
                continue
            if callable(attribute):
                attribute = attribute()
            if isinstance(attribute, dict):
                # Limits of rows are by variables: those of the worker's own stay here.
                attribute = {
                    key: entry
                    for key, entry in attribute.items()
                    if not hasattr(key, "deref") or key in self.names
                }
            attributes[name] = attribute
        return copyreg.__newobj__, (type(value),), attributes


def sent(optimizer: Optimizer, shared: Mapping[str, tf.Variable]) -> bytes:
    """Return an optimizer as bytes, for the center's process."""
    file = io.BytesIO()
    try:
        OptimizerPickler(file, shared).dump(optimizer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UnsupportedError(
            "AGNOptimizer: expected an optimizer of numbers and text, of a class that "
            f"can be imported, for a center on Ray, got {type(optimizer).__name__}: "
            f"{error}; use commit='delta'."
        ) from error
    return file.getvalue()


def received(rule: bytes, shared: Mapping[str, tf.Variable]) -> Optimizer:
    """Return a worker's optimizer; its class must be in a module of this machine."""
    unpickler = pickle.Unpickler(io.BytesIO(rule))
    unpickler.persistent_load = shared.__getitem__
    return unpickler.load()


class TensorFlowWeights(shared.ServedTensors):
    """The weights of a center on Ray; pushes bring their worker's optimizer."""

    def __init__(self, rule: bytes, weights: Mapping[str, Array]) -> None:
        self.rule = rule
        self.weights = dict(weights)

    @cached_property
    def center(self) -> Center:
        """The center, with slots for every shared variable."""
        center = Center()
        with tf.device(HOST):
            for name, weight in self.weights.items():
                center.shared[name] = tf.Variable(weight, False)
            base = base_of(received(self.rule, center.shared))
            with center.lending(base):
                base._create_slots(list(center.shared.values()))
        return center

    def push(self, changes: Mapping[str, Array], rule: bytes) -> None:
        """Take a step on mean gradients with a worker's optimizer."""
        with tf.device(HOST):
            gradients = {name: tf.constant(c) for name, c in changes.items()}
            self.center.push(gradients, received(rule, self.center.shared))

    def state(self) -> dict[str, tf.Variable]:
        """Return the slots of the shared variables."""
        return self.center.state()


class RemoteCenter(shared.RemoteTensors, Center):
    """A worker's view of a center in another process. Its steps are eager."""

    backend = "tf"

    def rule_of(self, optimizer: Any, clips_rows: bool) -> bytes:
        """Return an optimizer as bytes."""
        return sent(optimizer, self.shared)

    def make_weights(self, rule: bytes, weights: dict[str, Array]) -> TensorFlowWeights:
        """Return weights with this rule, for another process."""
        return TensorFlowWeights(rule, weights)

    def push(
        self, changes: Mapping[str, tf.Tensor], optimizer: Optimizer | None
    ) -> None:
        """Push changes, and the optimizer with its powers of beta.

        The powers belong to the worker, so they then advance here as they did in the
        center. They do not advance if the center rejected the push, or if its optimizer
        took no step, because all changes are zero.
        """
        self.require_eager()
        arrays = {name: change.numpy() for name, change in changes.items()}
        if optimizer is None:
            self.send(arrays)
            return
        is_in = self.send(arrays, sent(optimizer, self.shared))
        filters = has_layer(optimizer, "MultitaskOptimizerWrapper")
        if is_in and (not filters or any(map(np.any, arrays.values()))):
            base_of(optimizer)._finish([], "push")

    def _trackable_children(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing: ``tf.train.Checkpoint`` saves the worker's part only."""
        return {}
