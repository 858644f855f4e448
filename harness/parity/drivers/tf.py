"""The driver of TensorFlow, in four modes.

======== =========================================================================
eager    one operation at a time
function inside ``tf.function``
graph    ``tf.Graph`` and Session, resource variables, control flow v2
v1       the same under ``disable_v2_behavior()``, reference variables unless asked
======== =========================================================================

The originals were recorded one operation at a time. TensorFlow's graph rewriting
(grappler's meta optimizer) reorders arithmetic, so it is disabled here. The mode
``function`` disables it for the whole process, and ``v1`` changes TensorFlow's
behaviour permanently. So use a new process for each mode, and a new driver for each
case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parity.drivers.protocol import Step, Worker
from harness.parity.drivers.tensors import (
    Pattern,
    Spec,
    TensorDriver,
    TracedDriver,
    spec_of,
    to_array,
    to_feed,
    use_device,
)
from lockstep.interface import Array, Gradient
from lockstep.tf.agn import GLOBAL_VARIABLE_NAME
from lockstep.tf.shared.gradients import name_of
from lockstep.tf.wrapper import as_variable, base_of

v1 = tf.compat.v1

Built = tuple[list[Any], Any, list[Any]]


class EagerDriver(TensorDriver):
    """Operations run when they are called."""

    backend = "tf"
    mode = "eager"

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Any:
        """Create a variable. Only the mode ``v1`` has the kind ``ref``."""
        return tf.Variable(value, trainable=trainable, name=name)

    def counter(self) -> Any:
        """Create a step counter."""
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")

    def value_of(self, variable: Any) -> Any:
        """Return the TensorFlow variable."""
        return as_variable(variable)

    def key(self, variable: Any) -> Any:
        """Return a reference: variables of TensorFlow 2 cannot be hashed."""
        return variable.ref()

    def name_of(self, variable: Any) -> str:
        """Return the name of a variable."""
        return name_of(variable)

    def base_of(self, optimizer: Any) -> Any:
        """Return the innermost optimizer, inside of TensorFlow's wrappers too."""
        return base_of(optimizer)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer, once it has created them."""
        named = base_of(optimizer)._non_slot_dict
        return {name: self.read(scalar) for (name, _), scalar in named.items()}

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the losses to the graph's collection, or return them as an argument."""
        if tf.executing_eagerly():
            return {"losses": losses}
        for name, loss in losses.items():
            if loss is not None:
                key = v1.GraphKeys.REGULARIZATION_LOSSES
                v1.add_to_collection(key, tf.identity(loss, name))
        return {}

    def regularization_functions(self) -> int | None:
        """Return the number of regularizers that a graph has collected."""
        with tf.init_scope():
            eager = tf.executing_eagerly()
            return None if eager else len(v1.get_collection("REGULARIZATION_FUNCTIONS"))

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph, or an empty string in other modes."""
        return "" if tf.executing_eagerly() else str(tensor.op.name)


class FunctionDriver(TracedDriver, EagerDriver):
    """Operations run inside ``tf.function``."""


class GraphDriver(EagerDriver):
    """One graph and one session. The graph is the default one until ``close``."""

    mode = "graph"

    def __init__(self, names: Any) -> None:
        super().__init__(names)
        self.graph = tf.Graph()
        self.default = self.graph.as_default()
        self.default.__enter__()
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self.session = v1.Session(graph=self.graph, config=config)
        self.initialized: set[Any] = set()

    def close(self) -> None:
        """Close the session and restore the previous default graph."""
        self.session.close()
        self.default.__exit__(None, None, None)

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Any:
        """Create a resource variable in the graph."""
        return v1.Variable(value, trainable, name=name, use_resource=True)

    def counter(self) -> Any:
        """Create a step counter in the graph."""
        return v1.Variable(np.int64(0), trainable=False, name="global_step")

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        if isinstance(variable, np.ndarray | np.generic | int | float):
            return np.asarray(variable)
        return np.asarray(self.run(as_variable(variable)))

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Build ``function`` once for every pattern and feed it."""
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
            arrays = [to_array(values.get(i)) for i in range(len(leaves))]
            return tf.nest.pack_sequence_as(result, arrays)

        return step

    def build(self, function: Callable[[list[Any]], Any], pattern: Pattern) -> Built:
        """Build ``function`` for one pattern.

        The training operations it creates are run with its results, as in eager mode.
        """
        training = self.graph.get_collection_ref(v1.GraphKeys.TRAIN_OP)
        before = len(training)
        inputs = [placeholder_of(spec) for spec in pattern]
        result = tf.nest.map_structure(unless_plain, function(list(inputs)))
        return inputs, result, training[before:]

    def run(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> Any:
        """Initialize new variables, then run ``fetches``."""
        collected = self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        collected += self.graph.get_collection(v1.GraphKeys.LOCAL_VARIABLES)
        fresh = {v.ref(): v for v in collected if v.ref() not in self.initialized}
        self.session.run([variable.initializer for variable in fresh.values()])
        self.initialized.update(fresh)
        return self.session.run(fetches, feeds)

    def linear_loss(self, *args: Any, **options: Any) -> Any:
        """Return a loss tensor, as in TensorFlow 1."""
        return super().linear_loss(*args, **options)()

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Build the step where it is called, with a loss tensor."""
        return lambda gradients, flag=None: optimize(loss_of(gradients), flag)

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers with ``get_variable``, as TensorFlow 1 code does.

        Each worker's own variables are called ``worker_K/NAME`` instead of ``NAME``.
        """
        workers: list[Worker] = []
        for number in range(count):
            getter = self.getter(workers[0].getter.center if workers else None)
            scope = f"worker_{number}"
            outside = v1.variable_scope("", custom_getter=partial(renamed, scope))
            with outside, v1.variable_scope("", custom_getter=getter):
                own = [
                    v1.get_variable(name, initializer=tf.constant(value))
                    for name, value in named.items()
                ]
            workers.append(self.worker(getter, own, partial(v1.variable_scope, scope)))
        return workers

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create variables twice in their scopes with a getter."""
        getter = self.getter()

        def make(name: str, reuse: bool | None) -> Any:
            scope, _, last = name.rpartition("/")
            with v1.variable_scope(scope, custom_getter=getter, reuse=reuse):
                return v1.get_variable(last, [2], trainable=named[name])

        variables = {name: make(name, None) for name in named}
        same = all(make(name, True) is made for name, made in variables.items())
        keys = {
            "collection/global": v1.GraphKeys.GLOBAL_VARIABLES,
            "collection/local": v1.GraphKeys.LOCAL_VARIABLES,
            "collection/trainable": v1.GraphKeys.TRAINABLE_VARIABLES,
        }
        collected = {
            fact: sorted(name_of(variable) for variable in v1.get_collection(key))
            for fact, key in keys.items()
        }
        return self.facts_of(getter, same) | collected


class V1Driver(GraphDriver):
    """The behaviour of TensorFlow 1: reference variables, control flow v1."""

    mode = "v1"

    def __init__(self, names: Any) -> None:
        v1.disable_v2_behavior()
        super().__init__(names)

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Any:
        """Create a variable of this kind; by default a reference variable."""
        resource = kind == "resource"
        return v1.Variable(value, trainable, name=name, use_resource=resource)

    def key(self, variable: Any) -> Any:
        """Return the variable, which TensorFlow 1 code uses as a key."""
        return variable


def placeholder_of(spec: Spec) -> Any:
    """Return a placeholder, or slices of placeholders, for a gradient."""
    if spec is None:
        return None
    return tf.nest.map_structure(
        lambda part: v1.placeholder(part.dtype, part.shape),
        spec,
        expand_composites=True,
    )


def unless_plain(value: Any) -> Any:
    """Return a constant for a plain number or bool, which a session cannot fetch."""
    return tf.constant(value) if isinstance(value, bool | int | float) else value


def renamed(scope: str, getter: Callable[..., Any], name: str, **kwargs: Any) -> Any:
    """Create a variable. Put it into ``scope`` unless it is shared."""
    shared = name.startswith(GLOBAL_VARIABLE_NAME)
    return getter(name if shared else f"{scope}/{name}", **kwargs)


def make_driver(mode: str, names: Any, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test.

    If TensorFlow sees a GPU, it uses it. So for the CPU the GPUs are hidden.
    """
    use_device(device)
    drivers = (EagerDriver, FunctionDriver, GraphDriver, V1Driver)
    return {driver.mode: driver for driver in drivers}[mode](names)
