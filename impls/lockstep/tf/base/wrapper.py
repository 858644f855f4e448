"""The base of all wrappers: a v1 optimizer around another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.errors import UnsupportedError
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.base.hooks import base_of
from lockstep.tf.base.pairs import Pairs, as_variable, checked_arguments, listed
from lockstep.tf.base.replica_sums import (
    apply_summed,
    awaits_sums,
    make_together,
    refuse_cross_replica,
    require_mirrored,
    summed_gradients,
    sums_known,
    sums_over_replicas,
    whole_step,
)
from lockstep.tf.shared.tensors.replica_copies import own_copy

__all__ = [
    "Wrapper",
    "advance",
    "apply_with",
    "as_train_op",
    "builds_graph",
    "is_keras",
    "old_name",
]

Optimizer = tf.compat.v1.train.Optimizer
Apply = Callable[[Pairs, tf.Variable | None, str | None], tf.Operation | None]
"""Applies checked pairs, given a step counter and a name."""


class Wrapper(Optimizer):
    """A v1 optimizer around another one, which owns the slots and does the updates.

    Gradients, slots, names and unknown attributes are the wrapped optimizer's, unless a
    wrapper defines them itself. ``tf.train.Checkpoint`` saves the wrapped optimizer's
    state under the name ``tracked_as``.

    Args:
        inner_optimizer: a v1 optimizer, or a wrapper around one.
        name: the name of the wrapper; by default that of the wrapped optimizer.
        use_locking: passed to ``tf.compat.v1.train.Optimizer``.

    Attributes:
        owner: the name in error messages.
        strict: whether the quirks of the original are on.
        tracked_as: the name of the wrapped optimizer in checkpoints of objects.
    """

    owner: str
    tracked_as = "inner_optimizer"
    strict: bool

    def __init__(
        self,
        inner_optimizer: Optimizer,
        name: str | None = None,
        use_locking: bool = False,
    ) -> None:
        super().__init__(use_locking, name or inner_optimizer.get_name())
        self.inner_optimizer = inner_optimizer
        # v1 optimizers do not track objects that are assigned to them. Without this
        # line a checkpoint would silently leave the slots out.
        if isinstance(inner_optimizer, Optimizer):
            self._track_trackable(inner_optimizer, self.tracked_as)

    @cached_property
    def _quirks(self) -> Quirks:
        """The quirks of the original that ``strict`` turns on."""
        return quirks_of(self.strict)

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients."""
        inner = self.inner_optimizer
        return isinstance(inner, Wrapper) and inner.takes_wide

    @property
    def base_optimizer(self) -> Optimizer:
        """The innermost optimizer, which owns the slots."""
        return base_of(self)

    @tf.autograph.experimental.do_not_convert
    @documented
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: tf.Tensor | None = None,
    ) -> Pairs:
        """...

        Args:
            loss: in a graph a tensor; in any mode a callable without arguments.
            var_list: the variables; None: the graph's trainable variables, or those
                that a callable loss reads.

        Raises:
            EagerLossError: a RuntimeError; ``loss`` cannot be called in eager mode.
        """
        arguments = checked_arguments(
            type(self).__name__,
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        return self.inner_optimizer.compute_gradients(**arguments)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Pass the pairs to the wrapped optimizer; wrappers override this method."""
        return self.apply_inside(grads_and_vars, global_step, name)

    def _unscaled(self, pairs: Pairs) -> Pairs:
        """Return gradients that no wrapper here or inside divides by its scale again.

        A wrapper that builds several steps of the wrapped optimizer calls this first.
        """
        inner = self.inner_optimizer
        return inner._unscaled(pairs) if isinstance(inner, Wrapper) else pairs

    def apply_inside(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Apply pairs with the wrapped optimizer, which never sums gradients again."""
        return apply_with(self.inner_optimizer, grads_and_vars, global_step, name)

    def apply_together(
        self,
        apply: Apply,
        pairs: Pairs,
        global_step: tf.Variable | None,
        name: str | None,
    ) -> tf.Operation | None:
        """Call ``apply``; with replicas, sum the gradients over all of them first.

        Every replica then takes the same step on its own copy of the variables.
        Raises:
            CrossReplicaError: a RuntimeError; called outside of ``strategy.run``.
            UnsupportedError: a variable that is not mirrored over the replicas.
        """
        refuse_cross_replica(self.owner)
        if not awaits_sums():
            return apply(pairs, global_step, name)
        counters = [] if global_step is None else [global_step]
        variables = [variable for _, variable in pairs]
        require_mirrored(self.owner, [*variables, *counters, *self.variables()])
        pairs = sums_over_replicas(pairs)
        touched = [variable for gradient, variable in pairs if gradient is not None]
        make_together(lambda: self.create_slots(touched))
        with summed_gradients():
            done = apply(pairs, global_step, name)
        return whole_step(done)

    def __repr__(self) -> str:
        parts = [shown(self.inner_optimizer), *map(repr, self.policies())]
        return f"{type(self).__name__}({', '.join(parts)})"

    def policies(self) -> list[Any]:
        """Return the objects that a repr shows after the wrapped optimizer."""
        return []

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of ``var_list`` now instead of at the first update.

        In eager mode a ``tf.compat.v1.train.Saver`` restores only variables that exist,
        so call this method before passing ``variables()`` to it.
        """
        variables = listed(var_list, type(self).__name__)
        if isinstance(self.inner_optimizer, Wrapper):
            self.inner_optimizer.create_slots(variables)
            return
        with tf.init_scope():
            self.base_optimizer._create_slots(variables)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return the slot ``name`` of ``var``, or None if there is none yet."""
        return self.inner_optimizer.get_slot(as_variable(var), name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots of the innermost optimizer."""
        return self.inner_optimizer.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Return the variables of the wrapped optimizer."""
        return self.inner_optimizer.variables()

    def __getattr__(self, name: str) -> Any:
        # TensorFlow stores the objects that a trackable tracks in attributes whose
        # names begin with _self_. The wrapped optimizer's are not the wrapper's.
        if name == "inner_optimizer" or name.startswith(("__", "_self_")):
            raise AttributeError(name)
        if isinstance(getattr(type(self), name, None), property):
            # The property itself raised, with a message for the user: raise it again.
            return object.__getattribute__(self, name)
        try:
            return getattr(self.inner_optimizer, name)
        except AttributeError as error:
            both = (
                f"{type(self).__name__} has no {name!r}, nor has the optimizer inside"
            )
            raise AttributeError(f"{both}: {error}", name=name, obj=self) from error

    def __dir__(self) -> list[str]:
        # A checkpoint asks every tracked object for its slots if its dir() has this
        # name. The wrapped optimizer answers; a second answer would be an error.
        return [name for name in super().__dir__() if name != "get_slot_names"]


def apply_with(
    optimizer: Optimizer,
    grads_and_vars: Iterable[tuple[Any, Any]],
    global_step: tf.Variable | None = None,
    name: str | None = None,
) -> tf.Operation | None:
    """Apply pairs; do not sum gradients over replicas that are summed already."""
    if sums_known() and not isinstance(optimizer, Wrapper):
        return apply_summed(optimizer, grads_and_vars, global_step, name)
    return optimizer.apply_gradients(grads_and_vars, global_step, name)


def as_train_op(build: Callable[[], tf.Operation | None]) -> tf.Operation | None:
    """Register the result of ``build`` in the graph's collection of training ops.

    It replaces the operations that ``build`` registered. Those are parts of it, or
    belong to branches, where a session cannot fetch them.
    """
    if tf.executing_eagerly():
        return build()
    train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
    before = list(train_ops)
    update = build()
    train_ops[:] = [*before, update]
    return update


def advance(global_step: tf.Variable | None) -> tf.Operation | None:
    """Add one to ``global_step``, unless it is None."""
    if global_step is None:
        return tf.no_op()
    return own_copy(global_step).assign_add(1, read_value=False)


def old_name(attribute: str) -> Any:
    """Return a read-only property for the original's name of ``attribute``."""
    return property(lambda wrapper: getattr(wrapper, attribute))


def shown(optimizer: Any) -> str:
    """Return the repr of a wrapper, or the class name of another optimizer."""
    return (
        repr(optimizer) if isinstance(optimizer, Wrapper) else type(optimizer).__name__
    )


def is_keras(optimizer: Any) -> bool:
    """Whether ``optimizer`` is a Keras optimizer; does not import Keras."""
    packages = {cls.__module__.partition(".")[0] for cls in type(optimizer).__mro__}
    return not packages.isdisjoint(("keras", "tf_keras"))


def become_strict(own: Any, *arguments: Any, **options: Any) -> None:
    """Turn an object into one of the class of its name in ``lockstep.tf.strict``.

    Raises:
        UnsupportedError: a user's own subclass.
    """
    from lockstep.tf import strict

    cls = type(own)
    original = vars(strict).get(cls.__name__)
    if original is None or cls not in original.__mro__:
        name = cls.__mro__[1].__name__
        raise UnsupportedError(
            f"{cls.__name__}: expected strict=False, because the class has no strict "
            f"one, got True; derive it from lockstep.tf.strict.{name}."
        )
    own.__class__ = original
    own.__init__(*arguments, **options)


def builds_graph() -> bool:
    """Whether a graph for a session is being built, not a ``tf.function``."""
    with tf.init_scope():
        return not tf.executing_eagerly()
