"""The words that only the TensorFlow backend needs."""

from __future__ import annotations

from lockstep.messages.errors import (
    DtypeError,
    LockstepError,
    LossNotCallableError,
    MalformedPairsError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnsupportedError,
    sentence,
)
from lockstep.messages.multitask import CLIP, WRAPPER

__all__ = [
    "NONFINITE_NORM",
    "ZERO_RATE",
    "CrossReplicaError",
    "EagerLossError",
    "NotAVariableError",
    "cross_replica",
    "cross_replica_call",
    "eager_loss",
    "fixed_rate",
    "getter_in_graph",
    "inside_scope",
    "keras_optimizer",
    "lost_scalar",
    "missing_dense_shape",
    "not_a_counter",
    "not_a_gradient",
    "not_a_variable",
    "not_averaged",
    "not_mirrored",
    "outside_run",
    "racing_reference",
    "reference_variable",
    "second_instance",
    "skipped_around",
    "sums_again",
    "tuple_in_graph",
]

ZERO_RATE = (
    "FtrlOptimizer: expected learning_rate > 0, as the original; "
    "leave strict off to skip the update at rate 0"
)
"""What an assertion says where the rate may come from a tensor."""

NONFINITE_NORM = f"{CLIP}: expected a finite global norm, got"
"""What an assertion inside a graph says; the norm itself follows."""


class EagerLossError(LossNotCallableError):
    """A loss is a tensor where nothing recorded how it was computed."""


class CrossReplicaError(LockstepError, RuntimeError):
    """Gradients were applied outside of a replica's context."""


class NotAVariableError(DtypeError):
    """A tensor or a number came where a variable is to be written."""


def eager_loss(owner: str, got: str) -> EagerLossError:
    """Build the error for an eager loss that cannot be called."""
    expected = "a callable without arguments, for TensorFlow runs eagerly"
    remedy = "wrap it, as in compute_gradients(lambda: loss(w), [w])"
    return EagerLossError(sentence(f"{owner}: loss", expected, got, remedy))


def cross_replica(owner: str) -> CrossReplicaError:
    """Build the error for gradients applied in a cross-replica context."""
    remedy = "call it inside strategy.run, or use _distributed_apply"
    expected, got = "a replica context", "a cross-replica context"
    return CrossReplicaError(
        sentence(f"{owner}.apply_gradients", expected, got, remedy)
    )


def cross_replica_call(function: str) -> CrossReplicaError:
    """Build the error for a function of replicas called outside of them."""
    expected, got = "a replica context", "a cross-replica context"
    remedy = "call it inside strategy.run"
    return CrossReplicaError(sentence(function, expected, got, remedy))


def fixed_rate(owner: str, got: str) -> UnsupportedError:
    """Build the error for an optimizer whose rate cannot be set at each step."""
    expected = "an optimizer that keeps its rate in _lr or _learning_rate"
    remedy = "build it in a graph, where it is given the rate as a tensor"
    return UnsupportedError(sentence(f"{owner}: optimizer", expected, got, remedy))


def inside_scope(function: str) -> CrossReplicaError:
    """Build the error for state that is made in a strategy's scope."""
    remedy = "call it outside; the variables alone are made in the scope"
    expected, got = "no strategy's scope", "one of several replicas"
    return CrossReplicaError(sentence(function, expected, got, remedy))


def not_averaged(function: str, count: int) -> UnsupportedError:
    """Build the error for replicas that would drift apart."""
    remedy = "pass on_horovod=True, so that their gradients are averaged"
    expected = "on_horovod with several replicas"
    return UnsupportedError(sentence(function, expected, f"{count} of them", remedy))


def outside_run(function: str, count: int) -> UnsupportedError:
    """Build the error for a step made for one replica that several take."""
    expected, got = "variables made in the strategy's scope", f"{count} replicas"
    remedy = "make them inside strategy.scope(), so that each replica has a copy"
    return UnsupportedError(sentence(function, expected, got, remedy))


def not_mirrored(owner: str, name: str) -> UnsupportedError:
    """Build the error for a variable that several replicas would all write."""
    expected = "variables of which every replica has a copy"
    got = f"{name!r}, which has none"
    remedy = "make model, optimizer and step counter inside strategy.scope()"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def lost_scalar(
    owner: str, scalar: str, value: float, variable: str, dtype: str
) -> UnsupportedError:
    """Build the error for a scalar that TensorFlow's kernel rounds to 0."""
    expected = f"a dtype that can hold {scalar} = {value:g} for {variable!r}"
    got = f"{dtype}, to which TensorFlow's kernel rounds it as 0"
    remedy = "train through MixedPrecisionOptimizerWrapper, or choose a larger one"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def tuple_in_graph(function: str) -> OutOfRangeError:
    """Build the error for a loss in a graph that comes with other values."""
    expected, got = "a loss that is one tensor in a graph", "a tuple"
    remedy = "return the loss alone, and fetch the other tensors beside it"
    return OutOfRangeError(sentence(f"{function}: loss", expected, got, remedy))


def sums_again(optimizer: str, argument: str) -> UnsupportedError:
    """Build the error for an optimizer that would sum over the replicas again."""
    expected = f"apply_gradients with the argument {argument}"
    remedy = "take it and hand it to tf.compat.v1.train.Optimizer.apply_gradients"
    return UnsupportedError(sentence(optimizer, expected, "none", remedy))


def keras_optimizer(owner: str, got: str) -> NotAnOptimizerError:
    """Build the error for a Keras optimizer handed to a v1-style wrapper."""
    expected = "a tf.compat.v1.train.Optimizer"
    remedy = "pass its v1 counterpart, such as lockstep.tf.AdamOptimizer"
    return NotAnOptimizerError(
        sentence(owner, expected, f"the Keras optimizer {got}", remedy)
    )


def not_a_variable(owner: str, got: str) -> MalformedPairsError:
    """Build the error for a pair whose second entry is no variable."""
    expected = "pairs (gradient, tf.Variable)"
    remedy = "put the gradient first and the variable second"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def not_a_gradient(owner: str, name: str, got: str) -> MalformedPairsError:
    """Build the error for a pair whose first entry is no gradient."""
    expected = f"a tensor, tf.IndexedSlices or None for {name!r}"
    remedy = "convert it with tf.convert_to_tensor"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def missing_dense_shape(name: str) -> UnsupportedError:
    """Build the error for a sparse gradient that the original could not test.

    # Quirk: docs/differences.md#multitask-dense-shape
    """
    expected = f"a sparse gradient with dense_shape for the reference variable {name!r}"
    remedy = "give dense_shape, use a resource variable, or leave strict off"
    return UnsupportedError(sentence(WRAPPER, expected, "one without", remedy))


def reference_variable(name: str) -> UnsupportedError:
    """Build the error for a reference variable whose update would be conditional."""
    expected = f"a resource variable for {name!r}, because control flow v2 is on"
    remedy = (
        "make it with use_resource=True, or call "
        "tf.compat.v1.disable_control_flow_v2() before the graph is built"
    )
    return UnsupportedError(
        sentence("conditional update", expected, "a reference variable", remedy)
    )


def not_a_counter(owner: str, got: str) -> NotAVariableError:
    """Build the error for a step counter that cannot be advanced."""
    expected = "a 0-d variable of integers, or None"
    remedy = "pass tf.compat.v1.train.get_or_create_global_step()"
    return NotAVariableError(sentence(f"{owner}: global_step", expected, got, remedy))


def second_instance(owner: str) -> UnsupportedError:
    """Build the error for a second instance in a variable scope of a graph."""
    remedy = "give each worker a graph, or a tf.compat.v1.variable_scope of its own"
    expected = "one instance in a variable scope"
    return UnsupportedError(sentence(owner, expected, "a second", remedy))


def getter_in_graph(got: str) -> UnsupportedError:
    """Build the error for variables of a graph that the getter is called with."""
    expected = "to make the variables of a graph"
    remedy = "use it as custom_getter of a tf.compat.v1.variable_scope"
    return UnsupportedError(
        sentence("AGNCustomGetter", expected, f"a {got} of them", remedy)
    )


def racing_reference(name: str, device: str) -> UnsupportedError:
    """Build the error for a reference variable that several processes would write.

    # Quirk: docs/differences.md#agn-reference-variables
    """
    expected = f"a resource variable for {name!r}, because {device} is another process"
    remedy = "make it with use_resource=True, or call enable_resource_variables()"
    return UnsupportedError(
        sentence("AGNCustomGetter", expected, "a reference variable", remedy)
    )


def skipped_around(owner: str) -> UnsupportedError:
    """Build the error for a wrapper around this one that skips variables in a graph."""
    expected = "no wrapper around it that leaves variables out in a graph"
    remedy = f"wrap the other way round: {WRAPPER} inside"
    return UnsupportedError(sentence(owner, expected, f"a {WRAPPER}", remedy))
