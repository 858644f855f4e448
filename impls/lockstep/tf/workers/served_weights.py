"""The weights of a center in another process, with a v1 optimizer there."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lockstep.interface import Array
from lockstep.messages import ray as refusals
from lockstep.tf.workers.served_wrappers import Layer, innermost, layers_of, wrapped

__all__ = ["TensorFlowRule", "TensorFlowWeights", "numbers_of", "powers_of", "rule_of"]

v1 = tf.compat.v1

HOST = "/cpu:0"
OF_TENSORFLOW = ("_slots", "_non_slot_dict", "_deferred_slot_restorations", "_self_")
"""Prefixes of the attributes that TensorFlow creates outside of the constructor."""

Numbers = dict[str, Any]


class TensorFlowRule(NamedTuple):
    """A description of a v1 optimizer, from which another process creates it.

    Attributes:
        module: the module of its class.
        name: the name of its class.
        attributes: numbers and strings, including its arguments.
        layers: the wrappers around it, outermost first.
    """

    module: str
    name: str
    attributes: Numbers
    layers: tuple[Layer, ...] = ()


def rule_of(
    optimizer: v1.train.Optimizer, shared: Mapping[str, tf.Variable]
) -> TensorFlowRule:
    """Return an optimizer's class, its attributes, and the wrappers around it.

    Args:
        optimizer: the optimizer that ``AGNOptimizer`` wraps.
        shared: name -> shared variable.

    Raises:
        UnsupportedError: a ValueError; an attribute is neither number nor string, as
            in a wrapper from another package.
    """
    layers, optimizer = layers_of(optimizer, shared), innermost(optimizer)
    kind, attributes = type(optimizer), {}
    for name, value in own_attributes(optimizer).items():
        attributes[name] = plain(value)
        if attributes[name] is NotImplemented:
            raise refusals.NOT_NUMBERS.error(
                name=name, got=type(value).__name__, opt=kind.__name__
            )
    return TensorFlowRule(kind.__module__, kind.__qualname__, attributes, layers)


def numbers_of(optimizer: v1.train.Optimizer) -> Numbers:
    """Return the current hyper-parameters of an optimizer, such as its rate."""
    values = {n: plain(value) for n, value in own_attributes(optimizer).items()}
    return {n: v for n, v in values.items() if isinstance(v, int | float | np.ndarray)}


def own_attributes(optimizer: v1.train.Optimizer) -> Numbers:
    """Return the attributes that TensorFlow's base class did not create."""
    attributes = vars(optimizer).items()
    return {n: v for n, v in attributes if not n.startswith(OF_TENSORFLOW)}


def plain(value: Any) -> Any:
    """Return a number, string, array, or dict of these; else ``NotImplemented``.

    A callable is called, because TensorFlow's hyper-parameters may be callables.
    """
    if callable(value) and not isinstance(value, tf.Variable):
        try:
            value = value()
        except TypeError:
            return NotImplemented
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, tf.Tensor | tf.Variable):
        return np.asarray(value.numpy())
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        inside = {key: plain(item) for key, item in value.items()}
        return inside if NotImplemented not in inside.values() else NotImplemented
    return NotImplemented if value != [] else []


def powers_of(optimizer: v1.train.Optimizer) -> Numbers:
    """Return the variables that are not slots: a worker's powers of beta."""
    powers = optimizer._non_slot_dict.items()
    return {name: variable.numpy() for (name, _), variable in powers}


class TensorFlowWeights:
    """The weights of a served center, with a v1 optimizer.

    The optimizer does the same as a worker's optimizer with the slots of an in-process
    center, so both give the same bits. The powers of beta belong to the worker and come
    with its pushes. The object is sent as arrays, numbers and strings. Variables and
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
    def optimizer(self) -> v1.train.Optimizer:
        """The optimizer, with slots for every shared variable.

        Raises:
            UnsupportedError: a ValueError; this process cannot import its class.
        """
        module, name, attributes, _ = self.rule
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise refusals.UNKNOWN_OPTIMIZER.error(got=name) from error
        optimizer = kind.__new__(kind)
        # Its own constructor has arguments that are not always kept as attributes.
        locking, own_name = attributes["_use_locking"], attributes["_name"]
        v1.train.Optimizer.__init__(optimizer, locking, own_name)
        vars(optimizer).update(attributes)
        with tf.device(HOST):
            optimizer._create_slots(list(self.shared.values()))
        return optimizer

    @cached_property
    def whole(self) -> v1.train.Optimizer:
        """The optimizer with its wrappers around it."""
        return wrapped(self.optimizer, self.rule.layers, self.shared)

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        chosen = self.shared if names is None else names
        return {name: np.array(self.shared[name].numpy()) for name in chosen}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's hyper-parameters and powers."""
        numbers, powers = options
        vars(self.optimizer).update(numbers)
        for (name, _), variable in self.optimizer._non_slot_dict.items():
            variable.assign(powers[name])
        with tf.device(HOST):
            pairs = [(tf.constant(c), self.shared[n]) for n, c in changes.items()]
            self.whole.apply_gradients(pairs)

    def _slots(self) -> dict[str, tf.Variable]:
        """Return the slots, by slot name and weight name."""
        return {
            f"{slot} of {name}": self.optimizer.get_slot(variable, slot)
            for slot in self.optimizer.get_slot_names()
            for name, variable in self.shared.items()
        }

    def saved(self) -> Any:
        """Return the weights and the slots, as arrays."""
        slots = {name: np.array(v.numpy()) for name, v in self._slots().items()}
        return {"weights": self.pull(), "kinds": self._kinds(), "slots": slots}

    def _kinds(self) -> list[str]:
        """Return descriptions of the optimizer and of each of its slots."""
        slots = self._slots().items()
        names = [*(layer.name for layer in self.rule.layers), self.rule.name]
        kinds = (f"{n} {v.dtype.name} {v.shape}" for n, v in slots)
        return [" around ".join(names), *kinds]

    def load(self, saved: Any) -> None:
        """Load weights and slots.

        Raises:
            UnsupportedError: a ValueError; the slots are of another optimizer. Nothing
                is changed then.
        """
        refusals.require_kinds(self._kinds(), saved["kinds"])
        for name, weight in saved["weights"].items():
            self.shared[name].assign(weight)
        for name, slot in self._slots().items():
            slot.assign(saved["slots"][name])
