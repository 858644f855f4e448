"""Gradients of Keras variables: checks, conversions, differentiation, replicas.

Every optimizer of this backend has the methods of :class:`TrainV1`. A wrapper decides
on the gradients of all replicas, so a step under a strategy is one ``merge_call``: in
graphs a decision is a condition, inside of which a replica could not call it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from lockstep import errors
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.pipeline import base_of
from lockstep.tf.shared import gradients as tensors
from lockstep.tf.shared.gradients import as_gradient, name_of

Gradient = tf.Tensor | tf.IndexedSlices | None
Pairs = list[tuple[Gradient, Any]]

# -- variables -------------------------------------------------------------------------


def as_variable(variable: Any) -> Any:
    """Return the variable of a ``variable.ref()``; return other objects unchanged."""
    return variable.deref() if hasattr(variable, "deref") else variable


def is_variable(thing: Any) -> bool:
    """Whether this is a variable, or the ``ref()`` of one."""
    return isinstance(as_variable(thing), keras.Variable | tf.Variable)


def value_of(variable: Any) -> tf.Variable:
    """Return the ``tf.Variable`` inside a ``keras.Variable``."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def require_all(var_list: Any, owner: str) -> list[Any]:
    """Return the variables of a list, which may be nested."""
    variables = [as_variable(variable) for variable in tf.nest.flatten(var_list)]
    for variable in variables:
        if not is_variable(variable):
            raise errors.VarListError(
                f"{owner}: var_list: expected a list of variables, got {variable!r:.80}"
                "; list those that are to be trained."
            )
    return variables


def refuse_overwritten(owner: str, variables: Iterable[Any]) -> None:
    """Raise for the scales of float8, whose gradients are values to assign."""
    for variable in tf.nest.flatten(variables):
        if getattr(variable, "overwrite_with_gradient", False):
            raise errors.UnsupportedError(
                f"{owner}: expected variables that gradients update, got "
                f"{name_of(variable)!r}, which Keras overwrites with its gradient; "
                "train layers of float8 with Keras' own optimizer."
            )


def state_variable(name: str, value: float, dtype: str) -> keras.Variable:
    """Create a state variable, outside of any graph that is being built."""
    with tf.init_scope():
        return keras.Variable(
            value,
            dtype=dtype,
            trainable=False,
            # A mixed-precision layer that reads it must not get float16.
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )


# -- gradients -------------------------------------------------------------------------


def check_gradients(
    gradients: Sequence[Any], variables: Sequence[Any], owner: str, wide: bool = False
) -> list[Gradient]:
    """Return the gradients as tensors; raise unless each fits its variable."""
    if len(gradients) != len(variables):
        raise errors.MalformedPairsError(
            f"{owner}: expected {len(variables)} gradients, one a variable, got "
            f"{len(gradients)}; pass None for a variable without a gradient."
        )
    both = zip(gradients, variables, strict=True)
    checked = [as_gradient(gradient, variable, owner) for gradient, variable in both]
    tensors.check_like(owner, list(zip(checked, variables, strict=True)), wide)
    return checked


def with_dense_shape(gradient: Gradient, variable: Any) -> Gradient:
    """Give a sparse gradient the static shape of its variable, which Keras requires."""
    shape = value_of(variable).shape
    if (
        not isinstance(gradient, tf.IndexedSlices)
        or gradient.dense_shape is not None
        or not shape.is_fully_defined()
    ):
        return gradient
    values, indices = map(tf.convert_to_tensor, (gradient.values, gradient.indices))
    return tf.IndexedSlices(values, indices, tf.constant(shape.as_list()))


def without_duplicates(gradient: Gradient) -> Gradient:
    """Sum the duplicate rows of a sparse gradient, because Keras does not.

    ``values`` [k, ...] keep k rows, because ``fit`` may use XLA, which needs static
    shapes. The sums come first, in ascending order of their ``indices``. After them the
    last index is repeated with rows of zeros, which change nothing.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    order = tf.argsort(gradient.indices, stable=True)
    indices = tf.gather(gradient.indices, order)
    is_new = tf.concat([tf.ones([1], bool), indices[1:] != indices[:-1]], 0)
    count = tf.shape(indices)[0]
    position = tf.cumsum(tf.cast(is_new[:count], tf.int32)) - 1
    values = tf.gather(gradient.values, order)
    totals = tf.math.unsorted_segment_sum(values, position, count)
    named = tf.math.unsorted_segment_max(indices, position, count)
    # Without an n-th sum the maximum is of nothing, which is the least integer.
    last = tf.reduce_max(indices)
    named = tf.where(tf.range(count) <= tf.reduce_max(position), named, last)
    return tf.IndexedSlices(totals, named, gradient.dense_shape)


# -- replicas --------------------------------------------------------------------------


def replica_count() -> int:
    """Return the number of replicas of the current strategy; 1 without one."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def for_all_replicas(
    owner: str,
    build: Callable[[list[Gradient]], None],
    step: Callable[[list[Gradient]], None],
    gradients: Sequence[Gradient],
    variables: Sequence[Any],
) -> None:
    """Take a step once for all replicas, outside of their strategy; build inside."""

    def merged(*shares: list[Gradient]) -> None:
        columns = zip(zip(*shares, strict=True), variables, strict=True)
        sums = [add_up(column, variable) for column, variable in columns]
        tensors.require_gradients(owner, sums, variables)
        build(sums)
        with tensors.apart():
            step(sums)

    merge(owner, list(gradients), merged)


def merge(owner: str, own: list[Gradient], function: Callable[..., None]) -> None:
    """Call ``function`` once, with the gradients of each replica."""
    context = tf.distribute.get_replica_context()
    if context is None or not tf.distribute.has_strategy():
        function(own)
        return
    strategy, count = tf.distribute.get_strategy(), replica_count()
    compiled = tf.__internal__.distribute.strategy_supports_no_merge_call()
    if compiled and count == 1:
        function(own)
        return
    if compiled or len(strategy.extended.worker_devices) != count:
        raise errors.UnsupportedError(
            f"{owner}: expected replicas of one process that XLA does not compile, got "
            f"{count} others; use MirroredStrategy, and compile(..., "
            "jit_compile=False)."
        )

    def results(value: Any) -> tuple[Any, ...]:
        if isinstance(value, tf.distribute.DistributedValues):
            return tuple(strategy.experimental_local_results(value))
        return (value,) * count  # The same on each replica.

    def merged(strategy: tf.distribute.Strategy, gradients: list[Any]) -> None:
        shares = [list(share) for share in zip(*map(results, gradients), strict=True)]
        function(*shares or [[]])

    context.merge_call(merged, args=(own,))


def add_up(shares: Sequence[Gradient], variable: Any) -> Gradient:
    """Return the sum of the gradients of one variable; None if all are absent."""
    present = [share for share in shares if share is not None]
    if len(present) <= 1:
        return present[0] if present else None
    if not all(isinstance(share, tf.IndexedSlices) for share in present):
        return tf.add_n([tensors.densify(share, variable) for share in present])
    return tf.IndexedSlices(
        tf.concat([share.values for share in present], 0),
        tf.concat([share.indices for share in present], 0),
        present[0].dense_shape,
    )


def scope_of(strategy: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the scope in which an optimizer with this strategy creates its state."""
    is_default = strategy is distribute_lib._get_default_strategy()
    return contextlib.nullcontext() if is_default else strategy.scope()


# -- TensorFlow 1's interface ----------------------------------------------------------


class StateList(list):
    """A list of variables that is also callable, because TensorFlow 1 calls it."""

    def __call__(self) -> list[keras.Variable]:
        """Return the list."""
        return list(self)


class TrainV1:
    """The methods of TensorFlow 1's optimizers, in addition to Keras' interface.

    ``gate_gradients``, ``aggregation_method``, ``colocate_gradients_with_ops`` and
    ``name`` have no effect.
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH

    takes_wide = False
    """Whether half-precision variables accept float32 gradients."""

    _slots: Any = None

    def __dir__(self) -> list[str]:
        """Return the names without the one that marks a v1 optimizer for checkpoints.

        ``tf.train.Checkpoint`` raises if a v1 optimizer's slots are also variables that
        it finds through Keras.
        """
        return [name for name in super().__dir__() if name != "get_slot_names"]

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(
        self,
        loss: Callable[[], Any],
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """Differentiate ``loss()``: a list of (gradient or None, variable).

        The loss first goes through ``scale_loss``, as in ``fit``. A wrapper that scales
        it returns unscaled gradients; the one with masters returns them in float32,
        with the masters.

        Args:
            loss: a callable without arguments that returns a tensor.
            var_list: the variables; None: those that the optimizer was built with.
            gate_gradients, aggregation_method, colocate_gradients_with_ops: without
                effect.
            grad_loss: the upstream gradient of the loss, unscaled; None: 1.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` cannot be called.
            UnsupportedError: a ValueError; no ``var_list``, and the optimizer is not
                built.
        """
        owner = type(self).__name__
        if not callable(loss):
            raise errors.LossNotCallableError(
                f"{owner}: loss: expected a callable without arguments, got "
                f"{type(loss).__name__}; write compute_gradients(lambda: loss(batch), "
                "[w])."
            )
        if var_list is None and not self.built:
            refuse_unbuilt(owner)
        variables = self._trainable_variables if var_list is None else var_list
        variables = require_all(variables, owner)
        if grad_loss is not None:
            grad_loss = as_gradient(grad_loss, "the loss", owner)
        return self._differentiate(loss, variables, grad_loss)

    def _differentiate(
        self, loss: Callable[[], Any], variables: list[Any], grad_loss: Any
    ) -> Pairs:
        """Return the gradients of a loss after ``scale_loss``, with the variables."""
        values = [value_of(variable) for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            scaled = self.scale_loss(require_loss(loss(), type(self).__name__))
        gradients = tape.gradient(scaled, values, grad_loss)
        return list(zip(gradients, variables, strict=True))

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Update the variables; the first call builds the optimizer with them.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None.
            global_step: integer variable, incremented if ``iterations`` counts the
                step; with AGN, if a round ends.
            name: without effect.

        Returns:
            ``iterations``, as in Keras.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
            UnknownNameError: a ValueError; the optimizer was built without a variable.
        """
        owner = type(self).__name__
        pairs = tensors.as_pairs(grads_and_vars, owner)
        counter = tensors.as_counter(global_step, owner)
        self._train(*zip(*pairs, strict=True), counter)
        return self._iterations

    def _train(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        counter: tf.Variable | None = None,
    ) -> None:
        """Check the gradients, then take a step, once for all replicas."""
        owner = type(self).__name__
        for variable in variables:
            tensors.require_variable(owner, variable, "keras.Variable")
        variables = [as_variable(variable) for variable in variables]
        gradients = check_gradients(gradients, variables, owner, self.takes_wide)

        def step(gradients: list[Gradient]) -> None:
            before = None if counter is None else self._iterations.value.read_value()
            self._take(gradients, variables)
            if counter is not None:
                counter.assign_add(tf.cast(self._counted(before), counter.dtype))

        self.forget_report()
        build = lambda _: self.ensure_built(variables)  # noqa: E731
        for_all_replicas(owner, build, step, gradients, variables)

    def _take(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take a step outside of the strategy, on checked gradients."""
        self.apply(gradients, variables)

    def _counted(self, before: tf.Tensor) -> tf.Tensor:
        """Return what a step adds to ``global_step``; ``before``: ``iterations``."""
        return self._iterations.value.read_value() - before

    @tf.autograph.experimental.do_not_convert
    def minimize(
        self,
        loss: Callable[[], Any],
        global_step: Any = None,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> tf.Variable:
        """Call ``compute_gradients`` and pass the result to ``apply_gradients``."""
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        pairs = self.compute_gradients(loss, var_list, *options, grad_loss)
        return self.apply_gradients(pairs, global_step, name)

    def ensure_built(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables`` unless it exists; works in graphs too."""
        if not self.built:
            scope = scope_of(base_of(self)._distribution_strategy)
            with tf.init_scope(), scope, keras.name_scope(self.name, caller=self):
                self.build(variables)

    def forget_report(self) -> None:
        """Reset reports of earlier steps; optimizers without reports do nothing."""

    def get_name(self) -> str:
        """Return the optimizer's name."""
        return self.name

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return the slot ``name`` (TensorFlow 1's name) of ``var``, or None."""
        return None if self._slots is None else self._slots.of(var).get(name)

    def get_slot_names(self) -> list[str]:
        """Return the names (TensorFlow 1's) of the slots that exist."""
        return [] if self._slots is None else self._slots.names()


def require_loss(loss: Any, owner: str) -> Any:
    """Return the value of a loss; raise for None and for a text."""
    if loss is None or isinstance(loss, str):
        raise errors.LossNotCallableError(
            f"{owner}: loss: expected a 0-d tensor, got {loss!r}; return the loss from "
            "its function."
        )
    return loss


def refuse_unbuilt(owner: str) -> NoReturn:
    """Raise for an optimizer that does not know its variables yet."""
    raise errors.UnsupportedError(
        f"{owner}: expected var_list, because the optimizer is not built yet, got None;"
        " pass the variables, or call build(variables) first."
    )
