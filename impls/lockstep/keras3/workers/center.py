"""Shared variables of one process' workers, and the getter that registers them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import as_variable, key_of, name_of, value_of
from lockstep.keras3.base.slots import Slots, base_of, build_observed
from lockstep.keras3.base.wrapper import Wrapper
from lockstep.keras3.clipping.variable_clipping import clipping_layers
from lockstep.messages.workers import center as words
from lockstep.messages.workers import getter as agn_getter
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.messages.workers.center import Update
from lockstep.quirks import quirks_of
from lockstep.ray.center import RayCenter, as_ray_host

__all__ = ["AGNCustomGetter", "Center"]

RATE, ITERATIONS = "learning_rate", "iterations"

TAKEN = "a model, variables or pairs (name, variable)"


class Center(words.CenterOfProcess):
    """Shared variables with their own optimizer, which is a copy of the workers'.

    It has the configuration of the first worker's optimizer. Before each push it gets
    the learning rate of the pushing worker, so schedules and callbacks have an effect.

    Attributes:
        shared: name -> shared variable.
        optimizer: updates them; None before the first ``AGNOptimizer`` is built.
        lock: held while a thread pushes, pulls, or adds variables.
    """

    def __init__(self) -> None:
        self.shared: dict[str, keras.Variable] = {}
        self.optimizer: keras.optimizers.Optimizer | None = None
        self.slots = Slots()
        self.lock = words.CenterLock()

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless these may join: name -> a worker's variable.

        Raises:
            UnsupportedError: a ValueError; a variable differs from the shared variable
                of its name, or there is none and the worker may not add it.
        """
        if not may_add:
            agn_getter.check_names(self.shared, variables)
        for name, variable in variables.items():
            pair = self.shared.get(name, variable), variable
            shared, own = (f"{value_of(v).dtype.name} {list(v.shape)}" for v in pair)
            if shared != own:
                raise refusals.OTHER_CENTER.error(name=name, shared=shared, own=own)

    def join(self, name: str, variable: Any) -> keras.Variable:
        """Return the shared variable of this name; the first worker's creates it."""
        if name not in self.shared:
            self.shared[name] = make_like(variable, f"{GLOBAL_VARIABLE_NAME}/{name}")
        return self.shared[name]

    def follow(
        self,
        optimizer: keras.optimizers.Optimizer,
        owned: Mapping[str, Any],
        clips_rows: bool = True,
    ) -> None:
        """Create an optimizer like a worker's; raise if its variables differ.

        Args:
            optimizer: the worker's.
            owned: name -> the worker's variable.
            clips_rows: whether row clipping inside clips shared rows.
        """
        names = list(owned)
        if self.optimizer is None:
            self.optimizer = twin_of(optimizer)
            variables = [self.shared[name] for name in names]
            # Row clipping inside finds variables by the worker's paths.
            models = {key_of(self.shared[name]): v for name, v in owned.items()}
            for layer in clipping_layers(self.optimizer):
                vars(layer)["_stand_for"] = models
            if isinstance(self.optimizer, Wrapper):
                self.optimizer.build(variables)
                self.slots = self.optimizer._slots
            else:
                self.slots = build_observed(self.optimizer, variables)
        if not clips_rows:
            for layer in clipping_layers(self.optimizer):
                vars(layer)["_axes"] = {}
        known = list(self.shared)
        if sorted(names) != sorted(known):
            raise words.other_groups(known, names)

    def pull(self, names: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return the values of the shared variables of these names."""
        with self.lock:
            return {name: self.shared[name].value.read_value() for name in names}

    def push(self, update: Update) -> None:
        """Take a step on mean gradients, or add differences.

        The optimizer of an update is a mapping. It has the worker's ``learning_rate``
        and, if the powers of beta are the worker's, its ``iterations``.
        """
        with self.lock:
            self._apply(update)

    def _apply(self, update: Update) -> None:
        variables = [self.shared[name] for name in update.changes]
        changes = list(update.changes.values())
        if update.optimizer is None:
            for variable, change in zip(variables, changes, strict=True):
                variable.value.assign_add(change)
            return
        base = base_of(self.optimizer)
        base._learning_rate.value.assign(update.optimizer[RATE])
        if ITERATIONS in update.optimizer:
            base._iterations.value.assign(update.optimizer[ITERATIONS])
        self.optimizer.apply(changes, variables)

    def slot(self, variable: Any, name: str) -> keras.Variable | None:
        """Return a slot of a shared variable by its TF name, or None."""
        return self.slots.of(variable).get(name)


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class AGNCustomGetter:
    """...

    Keras has no variable scopes with custom getters. So it is called with a model or
    its variables instead. Workers of one process share one center.

    A configuration, so also a file, has no variables. A getter from a configuration
    accepts the variables that its optimizer is built with, and has its own center.

    Args:
        worker_device: the device of the accumulators, such as ``/cpu:0``.

    Example:
        >>> w = keras.Variable([1.0, 2.0], name="w")
        >>> first = AGNCustomGetter("/cpu:0")
        >>> _ = first([w])
        >>> second = AGNCustomGetter("/cpu:0", center=first.center)
        >>> _ = second([keras.Variable([0.0, 0.0], name="w")])
        >>> [shared.path for shared in second.center.shared.values()]
        ['global_center_variable/w']
    """

    def __init__(
        self,
        worker_device: str,
        center: Center | RayCenter | str | None = None,
        strict: bool = False,
    ) -> None:
        self.worker_device = worker_device
        self.center = center_of(center)
        self.strict = strict
        self.takes_all = False
        self.may_add = False
        self.names: dict[Any, str] = {}
        self._global_map: dict[Any, keras.Variable] = {}
        self._grad_map: dict[Any, keras.Variable] = {}

    def __call__(
        self, variables: keras.Model | Iterable[Any] | Iterable[tuple[str, Any]]
    ) -> list[Any]:
        """Register variables and return them.

        Variables that are not trainable, or already registered, are not changed. Names
        are paths, which must be the same in all workers: name models and layers. A path
        that is already used gets a number, in the order of the variables. The worker
        that fills the center may add variables later. Other workers use the existing
        ones.

        Args:
            variables: a built model; variables of Keras or TensorFlow; or pairs
                (name, variable), if paths differ.

        Raises:
            GetterError: a TypeError; anything else.
            UnsupportedError: a ValueError; the center has no such variable, or one of
                another shape or dtype; a name is already used. Then no variable is
                registered.
        """
        if getattr(variables, "built", True) is False:
            raise refusals.NOT_BUILT.error(got=type(variables).__name__)
        trainable = getattr(variables, "trainable_variables", variables)
        entries = agn_getter.read_entries(trainable, is_variable, TAKEN)
        with self.center.lock:
            new = self._named(entries)
            self.may_add = self.may_add or not self.center.shared
            self.center.check(new, self.may_add)
            for name, variable in new.items():
                self._enter(name, variable)
        return [as_variable(variable) for _, variable in entries]

    def _named(self, entries: Iterable[tuple[str | None, Any]]) -> dict[str, Any]:
        """Return name -> variable of the trainable ones that are not registered yet."""
        new: dict[str, Any] = {}
        known, taken = set(self._global_map), set(self.names.values())
        for own_name, variable in entries:
            variable = as_variable(variable)
            if not variable.trainable or key_of(variable) in known:
                continue
            if own_name in taken:
                raise refusals.TAKEN_NAME.error(name=own_name)
            name = own_name or words.unused_name(name_of(variable), taken)
            new[name] = variable
            known.add(key_of(variable))
            taken.add(name)
        return new

    def _enter(self, name: str, variable: Any) -> None:
        key = key_of(variable)
        self._global_map[key] = self.center.join(name, variable)
        self.names[key] = name
        zeros = not quirks_of(self.strict).agn_accumulator_start
        with tf.device(self.worker_device):
            gathered = make_like(variable, f"{GRAD_VARIABLE_NAME}/{name}", zeros)
        self._grad_map[key] = gathered

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, without the center."""
        return {"worker_device": self.worker_device, "strict": self.strict}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AGNCustomGetter:
        """Create a getter from the result of ``get_config``."""
        getter = cls(**config)
        getter.takes_all = True
        return getter


def center_of(center: Any) -> Center:
    """Return the center for an argument: a new one, the given one, or one on Ray."""
    if host := as_ray_host(center):
        # Its base class is in this module.
        from lockstep.keras3.workers.remote import RemoteCenter

        return RemoteCenter(host)
    agn_getter.check_center(center, Center)
    return Center() if center is None else center.for_worker()


def is_variable(found: Any) -> bool:
    """Whether this is a variable, or the ``ref()`` of one."""
    return isinstance(as_variable(found), keras.Variable | tf.Variable)


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


def twin_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer of the same configuration; its rate is a plain variable."""
    return keras.saving.deserialize_keras_object(config_of(optimizer))


def config_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer's configuration, with its current rate as a number."""
    config: dict[str, Any] = keras.saving.serialize_keras_object(optimizer)
    inside, layer = config, optimizer
    while isinstance(layer, Wrapper):
        inside, layer = inside["config"][layer.argument], layer.inner_optimizer
    rate = layer._get_current_learning_rate()
    inside["config"][RATE] = float(tf.convert_to_tensor(value_of(rate)).numpy())
    return config
