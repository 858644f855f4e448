"""The driver of graphs and sessions: the modes ``graph`` and ``v1``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parity.drivers.numpy_values import to_array, to_feed
from harness.parity.drivers.protocol import Worker
from harness.parity.drivers.tensors import Regularizers, Step
from harness.parity.drivers.tf_eager import EagerDriver, Pattern, Spec, spec_of
from harness.parity.drivers.tf_workers import graph_facts, graph_workers
from lockstep.interface import Array, Gradient
from lockstep.tf.wrapper import as_variable

__all__ = ["GraphDriver", "V1Driver"]

v1 = tf.compat.v1

Built = tuple[list[Any], Any, list[Any]]


class GraphDriver(EagerDriver):
    """One graph and one session. The graph is the default one until ``close``."""

    mode = "graph"

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
        """Close the session and restore the previous default graph."""
        self.session.close()
        self.default.__exit__(None, None, None)

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Create a resource variable in the graph."""
        return v1.Variable(value, name=name, use_resource=True)

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center, each in its own scope."""
        return graph_workers(self, named, count)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create variables in scopes with a getter."""
        return graph_facts(self.names.AGNCustomGetter("/cpu:0"), named)

    def counter(self) -> Any:
        """Create a step counter in the graph."""
        return v1.Variable(np.int64(0), trainable=False, name="global_step")

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

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> Any:
        """Return a loss tensor, as in TensorFlow 1, whose gradients are these."""
        return self.linear(variables, gradients, regularizers)

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16."""
        return tf.cast(self.linear(variables, gradients), tf.float16)

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Build the step where it is called, with a loss tensor."""
        return lambda gradients, flag=None: optimize(loss_of(gradients), flag)

    def run(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> Any:
        """Initialize new variables, then run ``fetches``."""
        collected = self.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        collected += self.graph.get_collection(v1.GraphKeys.LOCAL_VARIABLES)
        fresh = {v.ref(): v for v in collected if v.ref() not in self.initialized}
        self.session.run([variable.initializer for variable in fresh.values()])
        self.initialized.update(fresh)
        return self.session.run(fetches, feeds)

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        if isinstance(variable, np.ndarray | np.generic | int | float):
            return np.asarray(variable)
        return np.asarray(self.run(as_variable(variable)))


class V1Driver(GraphDriver):
    """The behaviour of TensorFlow 1: reference variables, control flow v1."""

    mode = "v1"

    def __init__(self, names: ModuleType) -> None:
        v1.disable_v2_behavior()
        super().__init__(names)

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Create a variable of this kind; by default a reference variable."""
        return v1.Variable(value, name=name, use_resource=kind == "resource")

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
