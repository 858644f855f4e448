"""The float32 masters of half-precision variables: who has one, and which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep.messages.masters import mixed_precision as words
from lockstep.quirks import Quirks
from lockstep.tf.base.hooks import is_reference, require_resources
from lockstep.tf.base.pairs import MODEL_NAME, Pairs, name_of
from lockstep.tf.base.wrapper import Wrapper
from lockstep.tf.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.tf.shared.masters.casts import follow, saturating_cast
from lockstep.tf.shared.tensors.gradients import widen
from lockstep.tf.shared.tensors.replica_copies import own_copy

__all__ = ["MasterCopies", "share_row_limits"]

v1 = tf.compat.v1

Masters = list[tuple[tf.Variable, tf.Variable]]
"""(variable, its master) of each master that is new."""


class MasterCopies:
    """Variable -> master, and back.

    Args:
        quirks: those of the original that are on.
        track: called with each master and a name of its own, which depends on the names
            of the variables and not on their order: checkpoints find masters by it.
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
        """The masters that are in use, in the order in which they were made."""
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
        """Return the variables whose masters are to be made; ``anew``: all of them."""
        return [
            variable
            for variable in variables
            if (anew or variable.ref() not in self._masters)
            and self.needs_master(variable)
        ]

    def make(self, variables: Iterable[tf.Variable]) -> Masters:
        """Make masters for these variables; return pairs (variable, master)."""
        with tf.init_scope(), v1.name_scope(words.SCOPE):
            pairs = [(variable, self.make_one(variable)) for variable in variables]
        for variable, master in pairs:
            self._masters[variable.ref()] = master
            self._models[master.ref()] = variable
        return pairs

    def make_one(self, variable: tf.Variable) -> tf.Variable:
        """Make a float32 variable that starts at the value of ``variable``."""
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
        """Return SCOPE/NAME, numbered if several variables are called NAME."""
        name = stem = words.master_name(name_of(variable))
        count = 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def copy_back(self, master: tf.Variable) -> tf.Operation | None:
        """Round what a master holds now into its variable."""
        variable = self._models.get(master.ref(), master)
        if variable is master:
            return None
        values = saturating_cast(master.read_value(), variable.dtype.base_dtype)
        return own_copy(variable).assign(values, read_value=False)

    def in_float32(self, pairs: Pairs) -> Pairs:
        """Put masters in the place of variables, and float32 in that of half precision.

        Masters of variables that have a gradient follow what others have written.
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
        """Take over into its master what others have written into ``variable``.

        Returns:
            The operation after which the master may be read, if there is one; strict:
            nothing is taken over.
        """
        if self.quirks.masters_slots:
            return []
        values = follow(master.read_value(), variable.read_value())
        done = master.assign(values, read_value=False)
        return [] if done is None else [done]


def first_value(variable: tf.Variable) -> tf.Tensor:
    """Return the value of a variable, also while a graph initializes all at once."""
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
    """Let row clipping inside limit what stands for variables as it would those.

    ``masters``: pairs of a variable and its master, or the shared one.
    """
    masters = list(masters)
    while isinstance(inner, Wrapper):
        if isinstance(inner, VariableClippingOptimizer):
            listed = inner.axes_by_variable
            pairs = [(v.ref(), m.ref()) for v, m in masters if v.ref() in listed]
            listed.update({master: listed[variable] for variable, master in pairs})
        inner = inner.inner_optimizer
