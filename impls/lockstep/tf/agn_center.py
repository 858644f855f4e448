"""The variables that AGN's workers share: in their process, or in one of their own.

Workers of one process hold the same :class:`Center`. In a cluster of TensorFlow 1 each
process has its own, whose variables are those of the same names on the parameter
servers. Workers with a center on Ray have a :class:`RemoteCenter` each; the center
applies their pushes with :class:`TensorFlowWeights`.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.pipeline import has_layer, layers_of
from lockstep.ray.worker import RemoteView
from lockstep.tf.replicas import Pairs
from lockstep.tf.wrapper import apply_with, as_variable, base_of, builds_graph

Optimizer = tf.compat.v1.train.Optimizer

HOST = "/cpu:0"
# Attributes of an optimizer that its own class did not set, and its last report.
NOT_SENT = ("_slots", "_non_slot_dict", "_deferred_slot_", "_self_", "last_step")


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

    def leave(self) -> None:
        """Note that a worker is done."""

    def check(self, variables: Mapping[str, tf.Variable], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable.

        Raises:
            UnsupportedError: a ValueError; a variable differs from the shared variable
                of its name, or there is none and the worker may not add it.
        """
        unknown = [name for name in variables if name not in self.shared]
        if unknown and not may_add:
            raise UnsupportedError(
                f"AGNCustomGetter: expected names that the center has, got {unknown}; "
                "give each worker's variables the same names, or pass pairs (name, "
                "variable). Only the first worker adds names."
            )
        for name, variable in variables.items():
            pair = self.shared.get(name, variable), variable
            shared, own = (f"{v.dtype.base_dtype.name} {v.shape}" for v in pair)
            if shared != own:
                raise UnsupportedError(
                    f"AGNCustomGetter: expected {name!r} to be {shared}, as the shared "
                    f"one, got {own}; use another name."
                )

    def join(
        self, names: Sequence[str], make: Callable[[], Iterable[tf.Variable]]
    ) -> list[tf.Variable]:
        """Return the shared variables of these names; the first worker makes them.

        ``names``: one name, or one per part of a partitioned variable.
        """
        if names[0] not in self.shared:
            self.shared.update(zip(names, make(), strict=True))
        return [self.shared[name] for name in names]

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
        """Lend ``base`` the slots of the shared variables; keep the slots it creates.

        In a graph ``base`` keeps them too, because old code asks it for them. In eager
        mode they are removed from it, or checkpoints of objects would have them twice.
        """
        before = {slot: set(entries) for slot, entries in base._slots.items()}
        for slot, entries in self.slots._slots.items():
            base._slot_dict(slot).update(entries)
        try:
            yield
        finally:
            for slot, entries in base._slots.items():
                own = self.slots._slot_dict(slot)
                lent = entries.keys() - before.get(slot, set())
                new = {key: entries[key] for key in lent - own.keys()}
                own.update(new)
                if not builds_graph():
                    for key in lent:
                        del entries[key]
                    self._track(slot, new.values())

    def _track(self, slot: str, new: Collection[tf.Variable]) -> None:
        """Let checkpoints of objects save and restore new slots of this name."""
        for name, variable in self.shared.items() if new else ():
            value = self.slots.get_slot(variable, slot)
            if any(value is one for one in new):
                self._track_trackable(value, f"{slot} of {name}")

    def slot(self, variable: Any, name: str) -> tf.Variable | None:
        """Return a slot of a shared variable; None before it is created."""
        return self.slots.get_slot(as_variable(variable), name)

    def state(self) -> list[tf.Variable]:
        """Return the shared variables and their slots."""
        return [*self.shared.values(), *self.slots.variables()]


class TensorFlowRule(NamedTuple):
    """A description of a v1 optimizer, from which another process creates it.

    Attributes:
        module: the module of its class.
        name: the name of its class.
        attributes: its attributes as numbers, text and arrays; the optimizer inside of
            a wrapper as another rule.
    """

    module: str
    name: str
    attributes: dict[str, Any]


class SharedKey(NamedTuple):
    """The key of a mapping in a rule that stands for a shared variable."""

    name: str


def rule_of(optimizer: Optimizer, shared: Mapping[str, tf.Variable]) -> TensorFlowRule:
    """Return the description of an optimizer, and of those inside of it.

    Raises:
        UnsupportedError: a ValueError; an attribute is a function with arguments, such
            as a method that was replaced.
    """
    attributes = {}
    for name, value in vars(optimizer).items():
        if name.startswith(NOT_SENT):
            continue
        if isinstance(value, Optimizer):
            attributes[name] = rule_of(value, shared)
            continue
        try:
            attributes[name] = portable(value, shared)
        except TypeError as error:
            raise UnsupportedError(
                "AGNOptimizer: expected an optimizer of numbers and text, for a center "
                f"on Ray, got {type(optimizer).__name__}, whose {name} is {value!r}; "
                "use commit='delta'."
            ) from error
    kind = type(optimizer)
    return TensorFlowRule(kind.__module__, kind.__qualname__, attributes)


def portable(value: Any, shared: Mapping[str, tf.Variable]) -> Any:
    """Return an attribute without functions and variables.

    A function is called, because TensorFlow's hyper-parameters may be functions.
    Entries for variables that are not shared are left out of mappings.
    """
    if callable(value) and not isinstance(value, tf.Variable):
        value = value()
    if isinstance(value, tf.Tensor | tf.Variable):
        return np.asarray(value.numpy())
    if isinstance(value, dict) and any(hasattr(key, "deref") for key in value):
        keys = {v.ref(): SharedKey(name) for name, v in shared.items()}
        return {keys[key]: entry for key, entry in value.items() if key in keys}
    return value


def optimizer_of(
    rule: TensorFlowRule,
    shared: Mapping[str, tf.Variable],
    optimizer: Optimizer | None = None,
) -> Optimizer:
    """Return an optimizer like its description; ``optimizer``: update this one.

    Raises:
        UnsupportedError: a ValueError; this process cannot import its class.
    """
    attributes = rule.attributes
    if optimizer is None:
        try:
            kind = getattr(importlib.import_module(rule.module), rule.name)
        except (ImportError, AttributeError) as error:
            raise UnsupportedError(
                "AGNOptimizer: expected an optimizer that the center's process can "
                f"import, got {rule.name}; define it in a module that all machines "
                "have."
            ) from error
        optimizer = kind.__new__(kind)
        # Its own constructor has arguments that are not always kept as attributes.
        Optimizer.__init__(optimizer, attributes["_use_locking"], attributes["_name"])
    for name, value in attributes.items():
        if isinstance(value, TensorFlowRule):
            value = optimizer_of(value, shared, vars(optimizer).get(name))
        elif isinstance(value, dict):
            value = {
                shared[key.name].ref() if isinstance(key, SharedKey) else key: entry
                for key, entry in value.items()
            }
        vars(optimizer)[name] = value
    return optimizer


def powers_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the variables that are not slots: a worker's powers of beta."""
    powers = base_of(optimizer)._non_slot_dict.items()
    return {name: variable.numpy() for (name, _), variable in powers}


class TensorFlowWeights:
    """The weights of a center on Ray, with a v1 optimizer.

    The optimizer does the same as a worker's optimizer with the slots of an in-process
    center, so both give the same bits. The powers of beta belong to the worker and come
    with its pushes. The object is sent as arrays, numbers and text. Variables and
    optimizer are created at first use.
    """

    def __init__(self, rule: TensorFlowRule, weights: Mapping[str, Array]) -> None:
        self.rule = rule
        self.weights = dict(weights)

    @cached_property
    def shared(self) -> dict[str, tf.Variable]:
        """Name -> shared variable."""
        with tf.device(HOST):
            return {n: tf.Variable(w, False) for n, w in self.weights.items()}

    @cached_property
    def optimizer(self) -> Optimizer:
        """The optimizer, with slots for every shared variable."""
        optimizer = optimizer_of(self.rule, self.shared)
        with tf.device(HOST):
            base_of(optimizer)._create_slots(list(self.shared.values()))
        return optimizer

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        chosen = self.shared if names is None else names
        return {name: np.array(self.shared[name].numpy()) for name in chosen}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's attributes and powers."""
        rule, powers = options
        optimizer_of(rule, self.shared, self.optimizer)
        for (name, _), variable in base_of(self.optimizer)._non_slot_dict.items():
            variable.assign(powers[name])
        with tf.device(HOST):
            pairs = [(tf.constant(c), self.shared[n]) for n, c in changes.items()]
            self.optimizer.apply_gradients(pairs)

    def _slots(self) -> dict[str, tf.Variable]:
        """Return the slots, by slot name and weight name."""
        base = base_of(self.optimizer)
        return {
            f"{slot} of {name}": base.get_slot(variable, slot)
            for slot in base.get_slot_names()
            for name, variable in self.shared.items()
        }

    def _kinds(self) -> list[str]:
        """Return descriptions of the optimizer and of each of its slots."""
        names = [type(layer).__name__ for layer in layers_of(self.optimizer)]
        slots = [f"{n} {v.dtype.name} {v.shape}" for n, v in self._slots().items()]
        return [" around ".join(names), *slots]

    def saved(self) -> Any:
        """Return the weights and the slots, as arrays."""
        slots = {name: np.array(v.numpy()) for name, v in self._slots().items()}
        return {"weights": self.pull(), "kinds": self._kinds(), "slots": slots}

    def load(self, saved: Any) -> None:
        """Load weights and slots; raise for the slots of another optimizer."""
        if saved["kinds"] != self._kinds():
            raise UnsupportedError(
                "AGNOptimizer: expected the checkpoint of a center with "
                f"{self._kinds()}, got one with {saved['kinds']}; start with the "
                "optimizer that was saved, or in another directory."
            )
        for name, weight in saved["weights"].items():
            self.shared[name].assign(weight)
        for name, slot in self._slots().items():
            slot.assign(saved["slots"][name])


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process. Its steps are eager."""

    backend = "tf"

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        _require_eager()
        return {name: variable.numpy() for name, variable in self.shared.items()}

    def check(self, variables: Mapping[str, tf.Variable], may_add: bool) -> None:
        """Raise unless these may join: see the base class."""
        self.require_fit(
            {
                name: f"{v.dtype.base_dtype.name} {v.shape.as_list()}"
                for name, v in variables.items()
            }
        )

    def join(
        self, names: Sequence[str], make: Callable[[], Iterable[tf.Variable]]
    ) -> list[tf.Variable]:
        """Return the shared variables of these names, with the center's values."""
        shared = super().join(names, make)
        for name, variable in zip(names, shared, strict=True):
            if name in self.known:
                variable.assign(self.known[name])
        return shared

    def rule_of(self, optimizer: Any, clips_rows: bool) -> TensorFlowRule:
        """Return the description of an optimizer."""
        return rule_of(optimizer, self.shared)

    def make_weights(
        self, rule: TensorFlowRule, weights: dict[str, Array]
    ) -> TensorFlowWeights:
        """Return weights with this rule, for another process."""
        return TensorFlowWeights(rule, weights)

    def pull(self, shared: Iterable[tf.Variable]) -> list[tf.Tensor]:
        """Return the values of shared variables, which the center sends."""
        _require_eager()
        shared = list(shared)
        for name, weight in self.member.pull(self._names_of(shared)).items():
            # TensorFlow may share the memory of an array, and Ray's is read-only.
            self.shared[name].assign(np.array(weight))
        return super().pull(shared)

    def push(self, pairs: Pairs, optimizer: Optimizer | None) -> None:
        """Push changes; with an optimizer also its attributes and powers of beta.

        The powers belong to the worker, so they then advance here as they did in the
        center. They do not advance if the center rejected the push, or if its optimizer
        took no step, because all changes are zero.
        """
        _require_eager()
        names = self._names_of([shared for _, shared in pairs])
        changes = {n: c.numpy() for n, (c, _) in zip(names, pairs, strict=True)}
        if optimizer is None:
            self.send(changes)
            return
        rule = rule_of(optimizer, self.shared)
        is_in = self.send(changes, (rule, powers_of(optimizer)))
        filters = has_layer(optimizer, "MultitaskOptimizerWrapper")
        if is_in and (not filters or any(map(np.any, changes.values()))):
            base_of(optimizer)._finish([], "push")

    def _names_of(self, variables: Iterable[tf.Variable]) -> list[str]:
        names = {variable.ref(): name for name, variable in self.shared.items()}
        return [names[variable.ref()] for variable in variables]

    def _trackable_children(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing: ``tf.train.Checkpoint`` saves the worker's part only."""
        return {}


def _require_eager() -> None:
    """Raise in a graph or a ``tf.function``, where tensors have no values yet."""
    if not tf.executing_eagerly():
        raise UnsupportedError(
            "AGNOptimizer: expected an eager step for a center on Ray, got one in a "
            "graph; train outside of tf.function."
        )
