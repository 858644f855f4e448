"""The shared variables of AGN's workers: in their process, or in one of their own.

Workers of one process hold the same :class:`Center`. Workers of several processes have
a :class:`RemoteCenter` each; the center on Ray applies their pushes with
:class:`KerasWeights`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep import pipeline
from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import MODEL, name_of, value_of
from lockstep.ray.worker import RemoteView

GLOBAL_VARIABLE_NAME = "global_center_variable"
RATE = "learning_rate"


class Center:
    """Shared variables with their own optimizer, which is a copy of the workers'.

    It has the configuration of the first worker's optimizer. Before each push it gets
    the learning rate of the pushing worker, so schedules and callbacks have an effect.
    Its state is saved with a worker's, unless it ``saves_itself``.
    """

    saves_itself = False

    def __init__(self) -> None:
        self.shared: dict[str, keras.Variable] = {}
        self.optimizer: keras.optimizers.Optimizer | None = None
        self.slots = stack.Slots()
        self.lock = threading.RLock()

    def for_worker(self) -> Center:
        """Return the center for another worker."""
        return self

    def begin(self, commit: str, optimizer: Any = None) -> None:
        """Prepare for the pushes of a worker with this ``commit``."""

    def leave(self) -> None:
        """Note that a worker is done."""

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable."""
        unknown = [name for name in variables if name not in self.shared]
        if unknown and not may_add:
            raise UnsupportedError(
                f"AGNCustomGetter: expected names that the center has, got {unknown}; "
                "give each worker's layers the same names, or pass pairs (name, "
                "variable). Only the first worker adds names."
            )
        for name, variable in variables.items():
            pair = self.shared.get(name, variable), variable
            shared, own = map(described, pair)
            if shared != own:
                raise UnsupportedError(
                    f"AGNCustomGetter: expected {name!r} to be {shared}, as the shared "
                    f"one, got {own}; use another name."
                )

    def join(self, name: str, variable: Any) -> keras.Variable:
        """Return the shared variable of this name; the first worker's creates it."""
        if name not in self.shared:
            self.shared[name] = make_like(variable, f"{GLOBAL_VARIABLE_NAME}/{name}")
        return self.shared[name]

    def follow(self, optimizer: Any, owned: Mapping[str, Any]) -> None:
        """Create an optimizer like that of a worker with these variables, by name."""
        if self.optimizer is None:
            config = config_of(optimizer)
            self.optimizer = keras.saving.deserialize_keras_object(config)
            variables = [self.shared[name] for name in owned]
            for shared, variable in zip(variables, owned.values(), strict=True):
                # Row clipping inside finds variables by the worker's paths.
                vars(shared)[MODEL] = variable
            self.slots = stack.build_observed(self.optimizer, variables)
        require_same(self.shared, owned)

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables of these names."""
        with self.lock:
            return {name: self.shared[name].value.read_value() for name in names}

    def push(self, changes: Mapping[str, Any], rate: Any) -> None:
        """Take a step on mean gradients, or add differences.

        ``rate``: the worker's learning rate; None: ``changes`` are added.
        """
        with self.lock:
            variables = [self.shared[name] for name in changes]
            if rate is None:
                for variable, change in zip(variables, changes.values(), strict=True):
                    variable.value.assign_add(change)
                return
            pipeline.base_of(self.optimizer)._learning_rate.value.assign(rate)
            self.optimizer.apply(list(changes.values()), variables)


def described(variable: Any) -> str:
    """Return the dtype and the shape of a variable."""
    return f"{value_of(variable).dtype.name} {list(variable.shape)}"


def require_same(shared: Mapping[str, Any], owned: Mapping[str, Any]) -> None:
    """Raise unless a worker trains exactly the shared variables."""
    if sorted(shared) != sorted(owned):
        raise UnsupportedError(
            f"AGNOptimizer: expected an optimizer of the variables {list(shared)}, as "
            f"the other workers', got {list(owned)}; give every worker's optimizer the "
            "same variables."
        )


def make_like(variable: Any, path: str, zeros: bool = False) -> keras.Variable:
    """Create a variable at this path with the value of another, or zeros like it."""
    value = value_of(variable)
    start = tf.zeros_like(value) if zeros else value.read_value()
    *outer, last = path.split("/")
    with contextlib.ExitStack() as scopes:
        for part in outer:
            scopes.enter_context(keras.name_scope(part))
        # A function, because Keras copies no tensor: it would share the memory.
        return keras.Variable(
            lambda shape, dtype=None: tf.identity(start),
            shape=value.shape,
            dtype=value.dtype.name,
            trainable=False,
            name=last,
        )


def config_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer's configuration, with its current rate as a number."""
    config: dict[str, Any] = keras.saving.serialize_keras_object(optimizer)
    inside, layer = config, optimizer
    while isinstance(layer, stack.Wrapper):
        inside, layer = inside["config"][layer.argument], layer.inner_optimizer
    rate = layer._get_current_learning_rate()
    inside["config"][RATE] = float(tf.convert_to_tensor(value_of(rate)).numpy())
    return config


class KerasWeights:
    """The weights of a served center, with a Keras optimizer.

    This is the in-process center with arrays as interface, so both give the same bits.
    The object is sent as arrays and a configuration. The center is created at first
    use. ``paths``: name of a weight -> the path of the worker's variable.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        paths: Mapping[str, str],
        weights: Mapping[str, Array],
    ) -> None:
        self.config = dict(config)
        self.paths = paths
        self.weights = dict(weights)

    @cached_property
    def center(self) -> Center:
        """The center, created like the worker's own."""
        with tf.device("/cpu:0"):
            center = Center()
            owned = {
                name: make_like(tf.Variable(array), self.paths[name])
                for name, array in self.weights.items()
            }
            for name, variable in owned.items():
                center.join(name, variable)
            try:
                optimizer = keras.saving.deserialize_keras_object(self.config)
            except (TypeError, ImportError) as error:
                name = self.config.get("class_name")
                raise UnsupportedError(
                    "AGNOptimizer: expected an optimizer that the center's process can "
                    f"import, got {name}; define it in a module that all machines have."
                ) from error
            center.follow(optimizer, owned)
        self.weights = {}
        return center

    def pull(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return copies of weights."""
        chosen = self.center.shared if names is None else names
        pulled = self.center.pull(chosen).items()
        return {name: np.asarray(tensor.numpy()) for name, tensor in pulled}

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's learning rate."""
        with tf.device("/cpu:0"):
            gradients = {name: tf.constant(c) for name, c in changes.items()}
            self.center.push(gradients, options[RATE] if options else None)

    def saved(self) -> Any:
        """Return the weights and the optimizer's state, as arrays."""
        state = [np.asarray(v.numpy()) for v in self.center.optimizer.variables]
        return {"weights": self.pull(), "kinds": self._kinds(), "state": state}

    def _kinds(self) -> list[str]:
        """Return descriptions of the optimizer and of each of its variables."""
        optimizer = self.center.optimizer
        names = [type(layer).__name__ for layer in pipeline.layers_of(optimizer)]
        state = [f"{v.name} {v.dtype} {list(v.shape)}" for v in optimizer.variables]
        return [" around ".join(names), *state]

    def load(self, saved: Any) -> None:
        """Load weights and state; raise for the state of another optimizer."""
        if saved["kinds"] != self._kinds():
            raise UnsupportedError(
                "AGNOptimizer: expected the checkpoint of a center with "
                f"{self._kinds()}, got one with {saved['kinds']}; start with the "
                "optimizer that was saved, or in another directory."
            )
        for name, weight in saved["weights"].items():
            self.center.shared[name].assign(weight)
        variables = self.center.optimizer.variables
        for variable, value in zip(variables, saved["state"], strict=True):
            variable.assign(value)


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process. Its steps are eager."""

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
            {name: described(variable) for name, variable in variables.items()}
        )

    def join(self, name: str, variable: Any) -> keras.Variable:
        """Return the shared variable of this name, with the center's value."""
        shared = super().join(name, variable)
        self.paths[name] = name_of(variable)
        if name in self.known:
            shared.assign(self.known[name])
        return shared

    def rule_of(self, optimizer: Any, clips_rows: bool) -> dict[str, Any]:
        """Return the configuration of an optimizer."""
        return config_of(optimizer)

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> KerasWeights:
        """Return weights with this configuration, for another process."""
        return KerasWeights(rule, self.paths, weights)

    def follow(self, optimizer: Any, owned: Mapping[str, Any]) -> None:
        """Raise if the worker trains other variables; no optimizer is needed here."""
        require_same(self.shared, owned)

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables of these names."""
        self._require_eager()
        for name, weight in self.member.pull(names).items():
            # TensorFlow may share the memory of an array, and Ray's is read-only.
            self.shared[name].assign(np.array(weight))
        return super().pull(names)

    def push(self, changes: Mapping[str, Any], rate: Any) -> None:
        """Push the accumulated changes, and the worker's learning rate."""
        self._require_eager()
        options = None if rate is None else {RATE: rate.numpy()}
        self.send({name: change.numpy() for name, change in changes.items()}, options)

    def _require_eager(self) -> None:
        """Raise in a ``tf.function``, where tensors have no values yet."""
        if not tf.executing_eagerly():
            raise UnsupportedError(
                "AGNOptimizer: expected an eager step for a center on Ray, got one in "
                "a graph; train outside of tf.function, and with run_eagerly=True in "
                "compile()."
            )
