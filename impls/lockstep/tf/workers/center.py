"""The weights that workers share, and the getter that creates them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages import tf as tf_host
from lockstep.messages.workers import center as words
from lockstep.messages.workers import getter as agn_getter
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.quirks import Quirks, quirks_of
from lockstep.ray.center import RayCenter, as_ray_host
from lockstep.tf.base.pairs import Pairs, as_variable, name_of
from lockstep.tf.base.variable_map import VariableMap
from lockstep.tf.base.wrapper import apply_with, builds_graph
from lockstep.tf.workers.getter_parts import (
    entries_of,
    options_beside,
    parts_of,
    refuse_race,
    zeros_like,
)
from lockstep.tf.workers.shared_slots import SharedSlots

__all__ = ["AGNCustomGetter", "Center"]

v1 = tf.compat.v1

Make = Callable[[], Any]


class Center(words.CenterOfProcess, tf.Module):
    """Shared variables, and their slots, which every worker's optimizer uses in turn.

    Workers in one process share one center. Workers in separate processes each create
    one; its variables are those with the same names on the parameter servers.

    Attributes:
        shared: name of a worker's variable -> the shared variable.
        rule: holds the slots of the shared variables; it updates nothing.
        lock: held while a thread adds variables or slots.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, tf.Variable] = {}
        self.rule = SharedSlots()
        self.lock = words.CenterLock()

    def refresh(self, variables: Iterable[tf.Variable]) -> None:
        """Update shared variables; within a process they are always up to date."""

    def add(
        self, variables: Iterable[tf.Variable], changes: Iterable[Any], **options: Any
    ) -> tf.Operation | None:
        """Add changes to shared variables; ``options`` are passed to ``assign_add``."""
        pairs = zip(variables, changes, strict=True)
        adds = [v.assign_add(c, read_value=False, **options) for v, c in pairs]
        return tf.group(*adds)

    def step(self, optimizer: v1.train.Optimizer, pairs: Pairs) -> Any:
        """Update shared variables by mean gradients, with a worker's optimizer."""
        return apply_with(optimizer, pairs)

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless a worker with these variables, by name, may join.

        Raises:
            UnsupportedError: a ValueError; a variable differs from its shared
                variable, or the worker may not add it.
        """
        if not may_add:
            agn_getter.check_names(self.shared, variables)
        for name, variable in variables.items():
            pair = self.shared.get(name, variable), variable
            shared, own = (f"{v.dtype.base_dtype.name} {v.shape}" for v in pair)
            if shared != own:
                raise refusals.OTHER_CENTER.error(name=name, shared=shared, own=own)

    def join(self, names: list[str], make: Make) -> list[Any]:
        """Return the shared variables of these names; the first worker creates them.

        Args:
            names: one name, or one per part of a partitioned variable.
            make: returns the variable or its parts.
        """
        if names[0] not in self.shared:
            self.shared.update(zip(names, parts_of(make()), strict=True))
        return [self.shared[name] for name in names]

    @contextlib.contextmanager
    def lending(self, base: v1.train.Optimizer) -> Iterator[None]:
        """Lend ``base`` the slots of the shared variables; keep the slots it creates.

        In a graph ``base`` keeps them too, because old code asks it for them. In eager
        mode they are removed from it, or checkpoints of objects would have them twice.
        """
        before = {name: set(named) for name, named in base._slots.items()}
        for name, named in self.rule._slots.items():
            base._slot_dict(name).update(named)
        try:
            yield
        finally:
            for name, named in base._slots.items():
                slots = self.rule._slot_dict(name)
                for key in set(named) - before.get(name, set()):
                    slots[key] = named[key] if builds_graph() else named.pop(key)

    def slot(self, variable: Any, name: str) -> tf.Variable | None:
        """Return a slot of a shared variable; None before it is created."""
        return self.rule.get_slot(as_variable(variable), name)


@documented
class AGNCustomGetter(tf.Module):
    """...

    As ``custom_getter`` of a variable scope, for each trainable variable N:

    - N itself: on the worker, trainable, in ``LOCAL_VARIABLES``;
    - ``global_center_variable/N``: on the current device, in ``GLOBAL_VARIABLES``;
    - ``grad_variable/N``: on the worker, in ``LOCAL_VARIABLES``.

    Scopes follow the prefix. Other variables, and variables that are reused, are not
    changed. Parts of a partitioned variable are registered one by one.

    In eager mode call it with the variables instead, with pairs (name, variable), or
    with an object that has ``trainable_variables``.

    Names must be the same in all workers. The worker that fills the center may add
    variables later. Other workers use the existing ones.

    Workers of one process share a ``center``. Workers in separate processes find the
    shared variables by name on the parameter servers, as in old code.

    Args:
        worker_device: a device for ``tf.compat.v1.device``.
        strict: as in the original: until the init op has run an accumulator has the
            variable's initial value; a regularizer counts three times; reference
            variables are accepted in a cluster.

    Raises:
        GetterError: a TypeError; an invalid ``center``, or an invalid call argument.
        UnsupportedError: a ValueError; the center has no variable of a name, or one of
            another shape or dtype; a name is already used; a reference variable whose
            shared variable is in another process.

    Origin: ``tf.contrib.opt.AGNCustomGetter``, TensorFlow 1.15.

    Example:
        >>> with tf.Graph().as_default():
        ...     getter = AGNCustomGetter("/cpu:0")
        ...     with tf.compat.v1.variable_scope("net", custom_getter=getter):
        ...         w = tf.compat.v1.get_variable("w", [2])
        ...     getter._global_map[w].name
        'global_center_variable/net/w:0'
    """

    def __init__(
        self,
        worker_device: Any,
        center: Center | RayCenter | str | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__()
        self.worker_device = worker_device
        self.center = center_of(center)
        self.strict = strict
        self.may_add = False
        self._names: set[str] = set()
        self._global_map = VariableMap()
        self._grad_map = VariableMap()

    @cached_property
    def _quirks(self) -> Quirks:
        """The quirks that ``strict`` turns on."""
        return quirks_of(self.strict)

    def __call__(
        self, getter: Any, name: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Create a variable like a custom getter, or register existing variables.

        Args:
            getter: creates a variable; in eager mode also the variables to register.
            name: the name of the variable; None for existing variables.
            args: arguments of ``getter``.
            kwargs: arguments of ``getter``.
        """
        if name is None:
            return self._enter_all(getter)
        if not kwargs.get("trainable"):
            return getter(name, *args, **kwargs)
        local, shared = v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES
        with v1.device(self.worker_device):
            own = getter(name, *args, **{**kwargs, "collections": [local]})
        # AUTO_REUSE is not True, and may be the first use.
        if kwargs.get("reuse") is True or parts_of(own)[0] in self._global_map:
            return own
        counts = self._quirks.agn_regularizer

        def make_shared() -> Any:
            options = options_beside(kwargs, shared, counts)
            return getter(f"{GLOBAL_VARIABLE_NAME}/{name}", *args, **options)

        def make_accumulator() -> Any:
            options = options_beside(kwargs, local, counts)
            if not self._quirks.agn_accumulator_start:
                options |= zeros_like(own)
            return getter(f"{GRAD_VARIABLE_NAME}/{name}", *args, **options)

        name_there = words.unused_name(name, self._names)
        self._enter(name_there, parts_of(own), make_shared, make_accumulator)
        return own

    def _enter_all(self, variables: Any) -> list[Any]:
        if builds_graph():
            raise tf_host.GETTER_IN_GRAPH.error(got=type(variables).__name__)
        entries = entries_of(variables)
        with self.center.lock, tf.init_scope():
            new = self._named(entries)
            self._check(new)
            for name, variable in new.items():
                self._enter_one(name, variable)
        return [variable for _, variable in entries]

    def _named(self, entries: Iterable[tuple[str | None, Any]]) -> dict[str, Any]:
        """Return name -> variable of the trainable ones that are not registered yet."""
        new: dict[str, Any] = {}
        known, taken = {v.ref() for v in self._global_map}, set(self._names)
        for own_name, variable in entries:
            inner = as_variable(variable)
            if not inner.trainable or inner.ref() in known:
                continue
            if own_name in taken:
                raise refusals.TAKEN_NAME.error(name=own_name)
            default = getattr(variable, "path", name_of(inner))
            name = own_name or words.unused_name(default, taken)
            new[name] = inner
            known.add(inner.ref())
            taken.add(name)
        return new

    def _check(self, new: Mapping[str, Any]) -> None:
        """Raise unless all of these may join the center; none has joined yet."""
        self.may_add = self.may_add or not self.center.shared
        self.center.check(new, self.may_add)

    def _enter_one(self, name: str, own: tf.Variable) -> None:
        value = own.read_value()
        keeps = self._quirks.agn_accumulator_start
        start = value if keeps else tf.zeros_like(value)

        def make(word: str, value: tf.Tensor) -> tf.Variable:
            return tf.Variable(value, trainable=False, name=f"{word}/{name}")

        self._enter(
            name,
            [own],
            lambda: make(GLOBAL_VARIABLE_NAME, value),
            lambda: make(GRAD_VARIABLE_NAME, start),
        )

    def _enter(
        self, name: str, own: list[Any], make_shared: Make, make_accumulator: Make
    ) -> None:
        """Register the parts of one variable."""
        alone = len(own) == 1
        names = [name] if alone else [f"{name}/part_{k}" for k in range(len(own))]
        self._check(dict(zip(names, own, strict=True)))
        shared = self.center.join(names, make_shared)
        if not self._quirks.agn_reference_variables:
            for pair in zip(own, shared, strict=True):
                refuse_race(*pair)
        self._names.add(name)
        with v1.device(self.worker_device):
            accumulators = parts_of(make_accumulator())
        for name, *entry in zip(names, own, shared, accumulators, strict=True):
            variable, center, accumulator = entry
            self._global_map[variable] = center
            self._grad_map[variable] = accumulator
            self._track_trackable(accumulator, f"{GRAD_VARIABLE_NAME}/{name}")


def center_of(center: Any) -> Center:
    """Return the center for an argument: a new one, the given one, or one on Ray."""
    if host := as_ray_host(center):
        # Its base class is in this module.
        from lockstep.tf.workers.remote import RemoteCenter

        return RemoteCenter(host)
    agn_getter.check_center(center, Center)
    return Center() if center is None else center.for_worker()
