"""The float32 masters of half-precision variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep.messages.masters import mixed_precision as words
from lockstep.quirks import Quirks
from lockstep.tf.replicas import MODEL_NAME, Pairs, name_of
from lockstep.tf.shared.gradients import follow, own_copy, saturating_cast, widen
from lockstep.tf.variable_clipping import VariableClippingOptimizer
from lockstep.tf.wrapper import Wrapper, is_reference, require_resources

__all__ = ["MasterCopies", "share_row_limits"]

v1 = tf.compat.v1

Masters = list[tuple[tf.Variable, tf.Variable]]
"""Pairs (variable, master) of new masters."""


class MasterCopies:
    """A mapping between variables and their masters.

    Args:
        quirks: the quirks of the original that are on.
        track: called with each master and a unique name, by which checkpoints find
            the master. The name depends on the names of the variables, not on their
            order.
    """

    def __init__(
        self, quirks: Quirks, track: Callable[[tf.Variable, str], Any]
    ) -> None:
        self.quirks = quirks
        self.track = track
        self._masters: dict[Any, tf.Variable] = {}
        self._models: dict[Any, tf.Variable] = {}
        self._names: set[str] = set()

    @property
    def variables(self) -> list[tf.Variable]:
        """The masters in use, in the order of their creation."""
        return list(self._masters.values())

    def needs_master(self, variable: tf.Variable) -> bool:
        """Whether ``variable`` is trained through a master."""
        dtype = variable.dtype.base_dtype.name
        return words.has_master(dtype, self.quirks.half_precision_scalars)

    def of(self, variable: tf.Variable) -> tf.Variable:
        """Return the master of ``variable``, or itself if it has none."""
        return self._masters.get(variable.ref(), variable)

    def missing(
        self, variables: Iterable[tf.Variable], anew: bool
    ) -> list[tf.Variable]:
        """Return the variables that need a new master; ``anew``: even with a master."""
        return [
            variable
            for variable in variables
            if (anew or variable.ref() not in self._masters)
            and self.needs_master(variable)
        ]

    def make(self, variables: Iterable[tf.Variable]) -> Masters:
        """Create masters for these variables; return pairs (variable, master)."""
        with tf.init_scope(), v1.name_scope(words.SCOPE):
            pairs = [(variable, self.make_one(variable)) for variable in variables]
        for variable, master in pairs:
            self._masters[variable.ref()] = master
            self._models[master.ref()] = variable
        return pairs

    def make_one(self, variable: tf.Variable) -> tf.Variable:
        """Create a float32 variable with the value of ``variable``."""
        if not tf.executing_eagerly():
            require_resources([variable])
        master = v1.Variable(
            tf.cast(first_value(variable), tf.float32),
            trainable=False,
            name=name_of(variable),
            collections=[v1.GraphKeys.GLOBAL_VARIABLES, words.MASTERS],
            use_resource=not is_reference(variable),
        )
        setattr(master, MODEL_NAME, name_of(variable))
        self.track(master, self.unused_name(variable))
        return master

    def unused_name(self, variable: tf.Variable) -> str:
        """Return SCOPE/NAME, with a number if several variables have the name NAME."""
        name = stem = words.master_name(name_of(variable))
        count = 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def copy_back(self, master: tf.Variable) -> tf.Operation | None:
        """Round the value of a master into its variable."""
        variable = self._models.get(master.ref(), master)
        if variable is master:
            return None
        values = saturating_cast(master.read_value(), variable.dtype.base_dtype)
        return own_copy(variable).assign(values, read_value=False)

    def in_float32(self, pairs: Pairs) -> Pairs:
        """Replace variables by masters, and half-precision gradients by float32.

        Masters of variables with a gradient are first updated from the variables.
        """
        of_masters: Pairs = []
        for gradient, variable in pairs:
            master = self.of(variable)
            if gradient is not None and master is not variable:
                with tf.control_dependencies(self.follow(variable, master)):
                    gradient = widen(gradient)
            of_masters.append((gradient, master))
        return of_masters

    def follow(self, variable: tf.Variable, master: tf.Variable) -> list[tf.Operation]:
        """Update a master from its variable, in case the variable was changed outside.

        Returns:
            The operation that must run before the master is read, if there is one.
            Strict: nothing is updated.
        """
        if self.quirks.masters_slots:
            return []
        values = follow(master.read_value(), variable.read_value())
        done = master.assign(values, read_value=False)
        return [] if done is None else [done]


def first_value(variable: tf.Variable) -> tf.Tensor:
    """Return the value of a variable, or its initial value if not initialized."""
    if tf.executing_eagerly():
        return variable.read_value()
    return tf.cond(
        v1.is_variable_initialized(variable),
        variable.read_value,
        lambda: variable.initial_value,
    )


def share_row_limits(
    masters: Iterable[tuple[Any, Any]], inner: tf.compat.v1.train.Optimizer
) -> None:
    """Make row clipping inside apply the limits of variables to their masters.

    ``masters``: pairs of a variable and its master or shared variable.
    """
    masters = list(masters)
    while isinstance(inner, Wrapper):
        if isinstance(inner, VariableClippingOptimizer):
            rows = inner.rows
            pairs = [(v.ref(), m.ref()) for v, m in masters if v.ref() in rows]
            rows.update({master: rows[variable] for variable, master in pairs})
        inner = inner.inner_optimizer
