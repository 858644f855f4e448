"""TensorFlow as the harness drives it, in four faces.

======== =========================================================================
eager    one operation at a time
function inside ``tf.function``
graph    ``tf.Graph`` and Session, resource variables, control flow v2
v1       the same under ``disable_v2_behavior()``, reference variables unless asked
======== =========================================================================

Implements :class:`lockstep.interface.Host`. The originals were recorded one operation
at a time. TensorFlow's rewriting of graphs (grappler's meta optimizer) reorders
arithmetic, so it is off here. The face ``function`` switches it off for the whole
process and ``v1`` changes TensorFlow's behaviour for good: give each face a process of
its own, and each case a host.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import Array, Gradient, Rows, Worker
from lockstep.spec.mixed_precision import REGULARIZERS
from lockstep.spec.optimizers import RULES
from lockstep.tf.agn_host import eager_facts, eager_workers, graph_facts, graph_workers
from lockstep.tf.core.device import use_device
from lockstep.tf.hooks import base_of
from lockstep.tf.pairs import as_variable

__all__ = ["EagerHost", "FunctionHost", "GraphHost", "V1Host", "make_host"]

v1 = tf.compat.v1

Step = Callable[[Sequence[Gradient]], Any]
Spec = tf.TensorSpec | tf.IndexedSlicesSpec | None
Pattern = tuple[Spec, ...]
Built = tuple[list[Any], Any, list[Any]]
Regularizers = Mapping[int, Callable[[Any], tf.Tensor]]


class EagerHost:
    """Operations run as they are called."""

    backend = "tf"
    face = "eager"

    def __init__(self, names: ModuleType) -> None:
        self.names = names

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Make a variable; only the face ``v1`` has the kind ``ref``."""
        return tf.Variable(value, name=name)

    def key(self, variable: Any) -> Any:
        """Return a reference: variables of TensorFlow 2 cannot be hashed."""
        return variable.ref()

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Make workers that share one center."""
        return eager_workers(self, named, count)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Make variables through a getter; there are no collections here."""
        return eager_facts(self.names.AGNCustomGetter("/cpu:0"), named)

    def counter(self) -> Any:
        """Make a step counter."""
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")

    def optimizer(
        self, name: str, args: dict[str, Any], variables: Sequence[Any]
    ) -> v1.train.Optimizer:
        """Make an optimizer by name."""
        return getattr(self.names, RULES[name].class_name)(**args)

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Convert gradients and results; there is nothing to compile."""

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(function([to_tensor(gradient) for gradient in gradients]))

        return step

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> Any:
        """Return a callable loss whose gradients are these."""
        return lambda: linear(variables, gradients, regularizers)

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16."""
        return lambda: tf.cast(linear(variables, gradients), tf.float16)

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Make the step now; its loss has the gradients of the call."""
        given: list[Any] = []
        step = optimize(lambda: loss_of(given[0])(), lambda: given[1])

        def train(*arguments: Any) -> Any:
            given[:] = arguments
            return step()

        return train

    def step_object(self, made: Any) -> Any:
        """Return the step; in a graph it is an attribute of the tensor."""
        return getattr(made, "training_step", made)

    def regularizer(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * tf.nn.l2_loss(weight)

    def penalty(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return the same function."""
        return self.regularizer(strength)

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put the losses into the collection of a graph; eagerly hand them over."""
        if tf.executing_eagerly():
            return {"losses": losses}
        for name, loss in losses.items():
            if loss is not None:
                key = v1.GraphKeys.REGULARIZATION_LOSSES
                v1.add_to_collection(key, tf.identity(loss, name))
        return {}

    def regularization_functions(self) -> int | None:
        """Return how many regularizers a graph has collected for the optimizer."""
        with tf.init_scope():
            eager = tf.executing_eagerly()
            return None if eager else len(v1.get_collection(REGULARIZERS))

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph; an empty string elsewhere."""
        return "" if tf.executing_eagerly() else str(tensor.op.name)

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        return np.asarray(as_variable(variable))

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of what workers share."""
        getter = getattr(optimizer, "custom_getter", None)
        slot = None if getter is None else getter.center.slot(variable, name)
        if slot is None:
            slot = base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer, once it has made them."""
        named = base_of(optimizer)._non_slot_dict
        return {name: self.read(scalar) for (name, _), scalar in named.items()}

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's."""
        return (getattr(builtins, error, None) or getattr(tf.errors, error, Exception),)


class FunctionHost(EagerHost):
    """Every pattern of gradients is traced into a function of its own."""

    face = "function"

    def __init__(self, names: ModuleType) -> None:
        super().__init__(names)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Trace ``function`` once a pattern."""
        traced: dict[Pattern, Any] = {}

        def trace(*gradients: Any) -> Any:
            result = function(list(gradients))
            return tf.nest.map_structure(unless_operation, result)

        def step(gradients: Sequence[Gradient]) -> Any:
            pattern = tuple(spec_of(gradient) for gradient in gradients)
            if pattern not in traced:
                compiled = tf.function(trace, autograph=False)
                traced[pattern] = compiled.get_concrete_function(*pattern)
            return to_numpy(traced[pattern](*map(to_tensor, gradients)))

        return step


class GraphHost(EagerHost):
    """One graph and one session; the graph stays the default one until ``close``."""

    face = "graph"

    def __init__(self, names: ModuleType) -> None:
        super().__init__(names)
        self.graph = tf.Graph()
        self.default = self.graph.as_default()
        self.default.__enter__()
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self.session = v1.Session(graph=self.graph, config=config)
        self.initialized: set[Any] = set()

    def close(self) -> None:
        """End the session and make the graph before this one the default again."""
        self.session.close()
        self.default.__exit__(None, None, None)

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Make a resource variable in the graph."""
        return v1.Variable(value, name=name, use_resource=True)

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Make workers that share one center, in scopes of their own."""
        return graph_workers(self, named, count)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Make variables in scopes that have a getter."""
        return graph_facts(self.names.AGNCustomGetter("/cpu:0"), named)

    def counter(self) -> Any:
        """Make a step counter in the graph."""
        return v1.Variable(np.int64(0), trainable=False, name="global_step")

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Build ``function`` once a pattern and feed it."""
        built: dict[Pattern, Built] = {}

        def step(gradients: Sequence[Gradient]) -> Any:
            pattern = tuple(spec_of(gradient) for gradient in gradients)
            if pattern not in built:
                built[pattern] = self.build(function, pattern)
            inputs, result, training = built[pattern]
            pairs = zip(inputs, map(to_feed, gradients), strict=True)
            feeds = {key: value for key, value in pairs if key is not None}
            leaves = tf.nest.flatten(result)
            fetches = {i: leaf for i, leaf in enumerate(leaves) if leaf is not None}
            values, _ = self.run((fetches, training), feeds)
            found = [to_array(values.get(i)) for i in range(len(leaves))]
            return tf.nest.pack_sequence_as(result, found)

        return step

    def build(self, function: Callable[[list[Any]], Any], pattern: Pattern) -> Built:
        """Build ``function`` for one pattern.

        What it applies is run with what it returns, as it would be in eager mode.
        """
        training = self.graph.get_collection_ref(v1.GraphKeys.TRAIN_OP)
        before = len(training)
        inputs = [placeholder_of(spec) for spec in pattern]
        result = tf.nest.map_structure(unless_plain, function(list(inputs)))
        return inputs, result, training[before:]

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> Any:
        """Return a loss, a tensor as old code has it, whose gradients are these."""
        return linear(variables, gradients, regularizers)

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16."""
        return tf.cast(linear(variables, gradients), tf.float16)

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Build the step where it is called, with a loss of tensors."""
        return lambda gradients, flag=None: optimize(loss_of(gradients), flag)

    def run(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> Any:
        """Initialize the variables that are new, then run ``fetches``."""
        made = self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        made += self.graph.get_collection(v1.GraphKeys.LOCAL_VARIABLES)
        fresh = {v.ref(): v for v in made if v.ref() not in self.initialized}
        self.session.run([variable.initializer for variable in fresh.values()])
        self.initialized.update(fresh)
        return self.session.run(fetches, feeds)

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        if isinstance(variable, np.ndarray | np.generic | int | float):
            return np.asarray(variable)
        return np.asarray(self.run(as_variable(variable)))


class V1Host(GraphHost):
    """The behaviour of TensorFlow 1: reference variables, control flow v1."""

    face = "v1"

    def __init__(self, names: ModuleType) -> None:
        v1.disable_v2_behavior()
        super().__init__(names)

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Make a variable of the kind asked for, as the original by reference."""
        return v1.Variable(value, name=name, use_resource=kind == "resource")

    def key(self, variable: Any) -> Any:
        """Return the variable, which old code uses as a key."""
        return variable


def spec_of(gradient: Gradient) -> Spec:
    """Return what a trace depends on; the number of rows is left free."""
    if gradient is None:
        return None
    if not isinstance(gradient, Rows):
        return tf.TensorSpec(gradient.shape, gradient.dtype)
    return tf.IndexedSlicesSpec(
        [None, *gradient.values.shape[1:]],
        gradient.values.dtype,
        indices_dtype=tf.int64,
        dense_shape_dtype=None if gradient.dense_shape is None else tf.int64,
        indices_shape=[None],
    )


def placeholder_of(spec: Spec) -> Any:
    """Return a placeholder, or slices of placeholders, for a gradient."""
    if spec is None:
        return None
    return tf.nest.map_structure(
        lambda part: v1.placeholder(part.dtype, part.shape),
        spec,
        expand_composites=True,
    )


def to_tensor(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """Convert a gradient of the harness to one of TensorFlow."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return tf.IndexedSlices(*map(tf.constant, to_feed(gradient)))
    return tf.constant(gradient)


def to_feed(gradient: Gradient) -> Any:
    """Convert a gradient of the harness to what a session is fed with."""
    if not isinstance(gradient, Rows):
        return gradient
    shape = () if gradient.dense_shape is None else (np.int64(gradient.dense_shape),)
    return (gradient.values, gradient.indices.astype(np.int64), *shape)


def to_numpy(result: Any) -> Any:
    """Convert a nest of eager tensors to one of arrays."""
    return tf.nest.map_structure(to_array, result)


def to_array(value: Any) -> Array | Rows | None:
    """Convert one tensor, or the value of one."""
    if value is None:
        return None
    if hasattr(value, "dense_shape"):
        shape = value.dense_shape
        known = None if shape is None else tuple(np.asarray(shape).tolist())
        return Rows(np.asarray(value.indices), np.asarray(value.values), known)
    return np.asarray(value)


def unless_operation(value: Any) -> Any:
    """Return tensors; a function runs its operations but cannot return them."""
    return None if isinstance(value, tf.Operation) else value


def unless_plain(value: Any) -> Any:
    """Return what a session can fetch; it cannot fetch a plain number or bool."""
    return tf.constant(value) if isinstance(value, bool | int | float) else value


def linear(
    variables: Sequence[Any],
    gradients: Sequence[Any],
    regularizers: Regularizers | None = None,
) -> tf.Tensor:
    """Return the sum of variable * g over those present, and of the penalties.

    It is float32 if dtypes differ or are half precision.
    """
    terms = []
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            taken = tf.gather(variable, gradient.indices)
            terms.append(tf.reduce_sum(taken * gradient.values))
        elif gradient is not None:
            terms.append(tf.reduce_sum(variable * gradient))
    terms += [of(variables[position]) for position, of in (regularizers or {}).items()]
    if {term.dtype for term in terms} != {tf.float64}:
        terms = [tf.cast(term, tf.float32) for term in terms]
    return tf.add_n(terms) if terms else tf.constant(0.0)


def make_host(face: str, names: ModuleType, device: str = "cpu") -> EagerHost:
    """Return the host for ``face`` and the names under test.

    TensorFlow puts on a GPU what it can once it sees one: on the CPU it sees none.
    """
    use_device(device)
    hosts = (EagerHost, FunctionHost, GraphHost, V1Host)
    return {host.face: host for host in hosts}[face](names)
