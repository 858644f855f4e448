"""The weights that workers share, and the getter that makes them beside a worker's."""

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

    Workers of one process hold one center. Workers in processes of their own each make
    one; what these stand for lies on the parameter servers under the same names.

    Attributes:
        shared: name of a worker's variable -> the shared one.
        rule: keeps the slots of the shared variables; it updates nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, tf.Variable] = {}
        self.rule = SharedSlots()

    def refresh(self, variables: Iterable[tf.Variable]) -> None:
        """Bring shared variables up to date: within a process they always are."""

    def add(
        self, variables: Iterable[tf.Variable], changes: Iterable[Any], **options: Any
    ) -> tf.Operation | None:
        """Add changes to shared variables; ``options`` are those of ``assign_add``."""
        pairs = zip(variables, changes, strict=True)
        adds = [v.assign_add(c, read_value=False, **options) for v, c in pairs]
        return tf.group(*adds)

    def step(self, optimizer: v1.train.Optimizer, pairs: Pairs) -> Any:
        """Move shared variables by mean gradients, with a worker's optimizer."""
        return apply_with(optimizer, pairs)

    def check(self, variables: Mapping[str, Any], may_add: bool) -> None:
        """Raise unless a worker with these variables, by their names, may join.

        Raises:
            UnsupportedError: a ValueError; one is unlike its shared variable, or
                the worker may not add it.
        """
        if not may_add:
            agn_getter.check_names(self.shared, variables)
        for name, variable in variables.items():
            pair = self.shared.get(name, variable), variable
            shared, own = (f"{v.dtype.base_dtype.name} {v.shape}" for v in pair)
            if shared != own:
                raise refusals.OTHER_CENTER.error(name=name, shared=shared, own=own)

    def join(self, names: list[str], make: Make) -> list[Any]:
        """Return the shared variables of these names, which the first worker makes.

        Args:
            names: one, or one for each part of a partitioned variable.
            make: returns the variable or the parts.
        """
        if names[0] not in self.shared:
            self.shared.update(zip(names, parts_of(make()), strict=True))
        return [self.shared[name] for name in names]

    @contextlib.contextmanager
    def lending(self, base: v1.train.Optimizer) -> Iterator[None]:
        """Let ``base`` have the slots of the shared variables; keep those it makes.

        In a graph they stay with it as well, for old code asks it for them. A
        checkpoint of objects would find them twice then, in eager mode they go back.
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
        """Return a slot of a shared variable; None before it is made."""
        return self.rule.get_slot(as_variable(variable), name)


@documented
class AGNCustomGetter(tf.Module):
    """...

    As ``custom_getter`` of a variable scope, for each trainable variable N:

    - N itself: on the worker, trainable, in ``LOCAL_VARIABLES``;
    - ``global_center_variable/N``: on the device around, in ``GLOBAL_VARIABLES``;
    - ``grad_variable/N``: on the worker, in ``LOCAL_VARIABLES``.

    Scopes come after the word. Others pass through, and so does a variable that is used
    again. Parts of a partitioned variable are entered one by one.

    In eager mode it may be called with the variables instead, with pairs (name,
    variable), or with what has ``trainable_variables``.

    Names must be alike in all workers. The worker that fills the center may add to it
    later; others find what is there.

    Workers of one process share a ``center``; those in processes of their own find
    what is shared by its name on the parameter servers, as old code does.

    Args:
        worker_device: a device as ``tf.compat.v1.device`` takes it.
        strict: as the original: until the init op has run an accumulator holds the
            variable's initial value; a regularizer counts three times; reference
            variables are accepted in a cluster.

    Raises:
        GetterError: a TypeError; ``center`` is none, or what it is called with.
        UnsupportedError: a ValueError; the center has no variable of a name, or one of
            another shape or dtype; a name that was given is taken; a reference
            variable whose shared one is in another process.

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
        """Make a variable as a custom getter does, or enter variables that exist.

        Args:
            getter: what makes a variable; eagerly also the variables to enter.
            name: of the variable; None for variables that exist.
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
        # AUTO_REUSE, which is not True, may be the first use.
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
        new = self._named(entries)
        self._check(new)
        with tf.init_scope():
            for name, variable in new.items():
                self._enter_one(name, variable)
        return [variable for _, variable in entries]

    def _named(self, entries: Iterable[tuple[str | None, Any]]) -> dict[str, Any]:
        """Return name -> variable of those that are trainable and not yet entered."""
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
        """Raise unless these may join the center, before any does."""
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
        """Map the parts of one variable."""
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
    """Return the center that an argument names: new, of this process, or on Ray."""
    if host := as_ray_host(center):
        # Its base class is in this module.
        from lockstep.tf.workers.remote import RemoteCenter

        return RemoteCenter(host)
    agn_getter.check_center(center, Center)
    return Center() if center is None else center.for_worker()
