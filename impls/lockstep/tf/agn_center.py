"""The variables that AGN's workers share: in their process, or in one of their own.

Workers of one process hold the same :class:`Center`. In a cluster of TensorFlow 1 each
process has its own, whose variables are those of the same names on the parameter
servers. Workers with a center on Ray have a :class:`RemoteCenter` each; the center
applies their pushes with :class:`TensorFlowWeights`.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.pipeline import has_layer, layers_of
from lockstep.tf.shared.agn import RemoteTensors, check_joining, require_kinds
from lockstep.tf.wrapper import Pairs, apply_with, as_variable, base_of, builds_graph

Optimizer = tf.compat.v1.train.Optimizer

HOST = "/cpu:0"
# Attributes that a center has itself, or that checkpoints add; and the last report.
NOT_SENT = ("_slots", "_deferred_slot_", "_self_", "last_step")


class Center(tf.Module):
    """Shared variables, and their slots, which every worker's optimizer uses in turn.

    Attributes:
        shared: name of a worker's variable -> the shared variable.
        slots: an optimizer that holds the slots of the shared variables, and updates
            nothing.
        lock: held while a thread pushes, pulls, or adds variables or slots.
        saves_itself: whether the center's state is not saved with a worker's.
    """

    saves_itself = False

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, tf.Variable] = {}
        self.slots: Optimizer
        self.lock: threading.RLock
        # Not setattr: TensorFlow would track these.
        slots = Optimizer(use_locking=False, name="center")
        vars(self).update(slots=slots, lock=threading.RLock())

    def for_worker(self) -> Center:
        """Return the center for another worker."""
        return self

    def begin(self, commit: str, optimizer: Optimizer) -> None:
        """Prepare for the pushes of a worker with this ``commit`` and optimizer."""

    def check(self, variables: Mapping[str, tf.Variable], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable."""
        check_joining(self.shared, variables, may_add)

    def join(self, name: str, make: Callable[[], tf.Variable]) -> tf.Variable:
        """Return the shared variable of this name; the first worker makes it."""
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]

    def pull(self, shared: Iterable[tf.Variable]) -> list[tf.Tensor]:
        """Return the values of shared variables."""
        with self.lock:
            return [variable.read_value() for variable in shared]

    def push(self, pairs: Pairs, optimizer: Optimizer | None) -> tf.Operation | None:
        """Take a step on mean gradients with a worker's optimizer.

        ``pairs``: (change, shared variable); without an optimizer changes are added.
        """
        with self.lock:
            if optimizer is not None:
                with self.lending(base_of(optimizer)):
                    return apply_with(optimizer, pairs)
            adds = [
                shared.assign_add(change, use_locking=True, read_value=False)
                for change, shared in pairs
            ]
            return tf.group(*adds)

    @contextlib.contextmanager
    def lending(self, base: Optimizer) -> Iterator[None]:
        """Let ``base`` use, and create, the slots of shared variables in the block."""
        own, slots = base._slots, self.slots._slots
        known = {slot: set(entries) for slot, entries in slots.items()}
        base._slots = slots
        try:
            yield
        finally:
            base._slots = own
            if builds_graph():  # Old code asks the optimizer for them.
                for slot, entries in slots.items():
                    base._slot_dict(slot).update(entries)
            elif known != {slot: set(entries) for slot, entries in slots.items()}:
                self._track_slots()

    def _track_slots(self) -> None:
        """Let checkpoints of objects save and restore the slots."""
        for slot in self.slots.get_slot_names():
            for name, variable in self.shared.items():
                value = self.slots.get_slot(variable, slot)
                if value is not None:
                    self._track_trackable(value, f"{slot} of {name}")

    def slot(self, variable: Any, name: str) -> tf.Variable | None:
        """Return a slot of a shared variable; None before it is created."""
        return self.slots.get_slot(as_variable(variable), name)

    def state(self) -> list[tf.Variable]:
        """Return the shared variables and their slots."""
        return [*self.shared.values(), *self.slots.variables()]


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
        attributes = {
            name: self.plain(attribute)
            for name, attribute in vars(value).items()
            if not name.startswith(NOT_SENT)
        }
        return optimizer_of, (type(value), attributes)

    def plain(self, value: Any) -> Any:
        """Return the value of a function, and entries of shared variables only."""
        if callable(value) and not isinstance(value, tf.Variable):
            return value()
        if isinstance(value, dict) and any(hasattr(key, "deref") for key in value):
            return {key: entry for key, entry in value.items() if key in self.names}
        return value


class OptimizerUnpickler(pickle.Unpickler):
    """Loads an optimizer of the shared variables of another center."""

    def __init__(self, sent: bytes, shared: Mapping[str, tf.Variable]) -> None:
        super().__init__(io.BytesIO(sent))
        self.shared = shared

    def persistent_load(self, name: str) -> tf.Variable:
        """Return the shared variable of a name."""
        return self.shared[name]


def optimizer_of(kind: type[Optimizer], attributes: dict[str, Any]) -> Optimizer:
    """Return an optimizer with these attributes, without its constructor."""
    optimizer = kind.__new__(kind)
    Optimizer.__init__(optimizer, attributes["_use_locking"], attributes["_name"])
    vars(optimizer).update(attributes)
    return optimizer


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


class TensorFlowWeights:
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
            base = base_of(self.received(self.rule, center))
            with center.lending(base):
                base._create_slots(list(center.shared.values()))
        return center

    def received(self, rule: bytes, center: Center) -> Optimizer:
        """Return a worker's optimizer; raise if its class cannot be imported here."""
        try:
            return OptimizerUnpickler(rule, center.shared).load()
        except (ImportError, AttributeError) as error:
            raise UnsupportedError(
                "AGNOptimizer: expected an optimizer that the center's process can "
                f"import, got one whose class it cannot: {error}; define it in a "
                "module that all machines have."
            ) from error

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        shared = self.center.shared
        chosen = shared if names is None else names
        return {name: np.array(shared[name].numpy()) for name in chosen}

    def push(self, changes: Mapping[str, Array], rule: bytes) -> None:
        """Take a step on mean gradients with a worker's optimizer."""
        with tf.device(HOST):
            optimizer = self.received(rule, self.center)
            shared = self.center.shared
            pairs = [(tf.constant(c), shared[n]) for n, c in changes.items()]
            self.center.push(pairs, optimizer)

    def _slots(self) -> dict[str, tf.Variable]:
        """Return the slots, by slot name and weight name."""
        return {
            f"{slot} of {name}": self.center.slot(variable, slot)
            for slot in self.center.slots.get_slot_names()
            for name, variable in self.center.shared.items()
        }

    def _kinds(self) -> list[str]:
        """Return descriptions of the optimizer and of each of its slots."""
        layers = layers_of(self.received(self.rule, self.center))
        names = [type(layer).__name__ for layer in layers]
        slots = [f"{n} {v.dtype.name} {v.shape}" for n, v in self._slots().items()]
        return [" around ".join(names), *slots]

    def saved(self) -> Any:
        """Return the weights and the slots, as arrays."""
        slots = {name: np.array(v.numpy()) for name, v in self._slots().items()}
        return {"weights": self.pull(), "kinds": self._kinds(), "slots": slots}

    def load(self, saved: Any) -> None:
        """Load weights and slots; raise for the slots of another optimizer."""
        require_kinds(saved["kinds"], self._kinds())
        for name, weight in saved["weights"].items():
            self.center.shared[name].assign(weight)
        for name, slot in self._slots().items():
            slot.assign(saved["slots"][name])


class RemoteCenter(RemoteTensors, Center):
    """A worker's view of a center in another process. Its steps are eager."""

    backend = "tf"

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        self.require_eager()
        return super().arrays()

    def rule_of(self, optimizer: Any, clips_rows: bool) -> bytes:
        """Return an optimizer as bytes."""
        return sent(optimizer, self.shared)

    def make_weights(self, rule: bytes, weights: dict[str, Array]) -> TensorFlowWeights:
        """Return weights with this rule, for another process."""
        return TensorFlowWeights(rule, weights)

    def pull(self, shared: Iterable[tf.Variable]) -> list[tf.Tensor]:
        """Return the values of shared variables, which the center sends."""
        shared = list(shared)
        self.fetch(self._names_of(shared))
        return super().pull(shared)

    def push(self, pairs: Pairs, optimizer: Optimizer | None) -> None:
        """Push changes, and the optimizer with its powers of beta.

        The powers belong to the worker, so they then advance here as they did in the
        center. They do not advance if the center rejected the push, or if its optimizer
        took no step, because all changes are zero.
        """
        self.require_eager()
        names = self._names_of([shared for _, shared in pairs])
        changes = {n: c.numpy() for n, (c, _) in zip(names, pairs, strict=True)}
        if optimizer is None:
            self.send(changes)
            return
        is_in = self.send(changes, sent(optimizer, self.shared))
        filters = has_layer(optimizer, "MultitaskOptimizerWrapper")
        if is_in and (not filters or any(map(np.any, changes.values()))):
            base_of(optimizer)._finish([], "push")

    def _names_of(self, variables: Iterable[tf.Variable]) -> list[str]:
        names = {variable.ref(): name for name, variable in self.shared.items()}
        return [names[variable.ref()] for variable in variables]

    def _trackable_children(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing: ``tf.train.Checkpoint`` saves the worker's part only."""
        return {}
