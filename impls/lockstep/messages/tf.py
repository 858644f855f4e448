"""The errors that only the TensorFlow backend raises."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    LockstepError,
    LossNotCallableError,
    MalformedPairsError,
    NotAnOptimizerError,
    OutOfRangeError,
    Refusal,
    UnsupportedError,
)
from lockstep.messages.multitask import CLIP

__all__ = [
    "NONFINITE_NORM",
    "ZERO_RATE",
    "CrossReplicaError",
    "EagerLossError",
    "NotAVariableError",
]

ZERO_RATE = (
    "FtrlOptimizer: expected learning_rate > 0, as the original; "
    "leave strict off to skip the update at rate 0"
)
"""The message of an assertion, where the rate may be a tensor."""

NONFINITE_NORM = f"{CLIP}: expected a finite global norm, got"
"""The message of an assertion in a graph; the norm is appended."""


class EagerLossError(LossNotCallableError):
    """A loss is a tensor, and no gradient tape recorded its computation."""


class CrossReplicaError(LockstepError, RuntimeError):
    """Gradients were applied outside of a replica's context."""


class NotAVariableError(DtypeError):
    """A tensor or a number was passed where a variable must be written."""


EAGER_LOSS = Refusal(
    EagerLossError,
    "{owner}: loss: expected a callable without arguments, because TensorFlow "
    "runs eagerly, got {got}; wrap it, as in compute_gradients(lambda: loss(w), [w]).",
)
CROSS_REPLICA = Refusal(
    CrossReplicaError,
    "{owner}.apply_gradients: expected a replica context, "
    "got a cross-replica context; "
    "call it inside strategy.run, or use _distributed_apply.",
)
CROSS_REPLICA_CALL = Refusal(
    CrossReplicaError,
    "{function}: expected a replica context, got a cross-replica context; "
    "call it inside strategy.run.",
)
PARAMETER_SERVERS = Refusal(
    UnsupportedError,
    "{owner}: expected variables of the worker's own, got a ParameterServerStrategy, "
    "whose variables all workers share; "
    "write the round as a closure, as the page on AGN does, or use a center on Ray.",
)
FIXED_RATE = Refusal(
    UnsupportedError,
    "{owner}: optimizer: expected an optimizer that keeps its rate in _lr or "
    "_learning_rate, got {got}; "
    "build it in a graph, where it is given the rate as a tensor.",
)
INSIDE_SCOPE = Refusal(
    CrossReplicaError,
    "{function}: expected no strategy's scope, got one of several replicas; "
    "call it outside; the variables alone are made in the scope.",
)
NOT_AVERAGED = Refusal(
    UnsupportedError,
    "{function}: expected on_horovod with several replicas, got {count} of them; "
    "pass on_horovod=True, so that their gradients are averaged.",
)
OUTSIDE_RUN = Refusal(
    UnsupportedError,
    "{function}: expected variables made in the strategy's scope, "
    "got {count} replicas; "
    "make them inside strategy.scope(), so that each replica has a copy.",
)
NOT_MIRRORED = Refusal(
    UnsupportedError,
    "{owner}: expected variables of which every replica has a copy, "
    "got {name!r}, which has none; "
    "make model, optimizer and step counter inside strategy.scope().",
)
LOST_SCALAR = Refusal(
    UnsupportedError,
    "{owner}: expected a dtype that can hold {scalar} = {value:g} for {variable!r}, "
    "got {dtype}, to which TensorFlow's kernel rounds it as 0; "
    "train through MixedPrecisionOptimizerWrapper, or choose a larger one.",
)
TUPLE_IN_GRAPH = Refusal(
    OutOfRangeError,
    "{function}: loss: expected a loss that is one tensor in a graph, got a tuple; "
    "return the loss alone, and fetch the other tensors beside it.",
)
SUMS_AGAIN = Refusal(
    UnsupportedError,
    "{optimizer}: expected apply_gradients with the argument {argument}, got none; "
    "take it and hand it to tf.compat.v1.train.Optimizer.apply_gradients.",
)
KERAS_OPTIMIZER = Refusal(
    NotAnOptimizerError,
    "{owner}: expected a tf.compat.v1.train.Optimizer, got the Keras optimizer {got}; "
    "pass its v1 counterpart, such as lockstep.tf.AdamOptimizer.",
)
NOT_A_GRADIENT = Refusal(
    MalformedPairsError,
    "{owner}: expected a tensor, tf.IndexedSlices or None for {name!r}, got {got}; "
    "convert it with tf.convert_to_tensor.",
)
# quirks.multitask_dense_shape
MISSING_DENSE_SHAPE = Refusal(
    UnsupportedError,
    "MultitaskOptimizerWrapper: expected a sparse gradient with dense_shape for the "
    "reference variable {name!r}, got one without; "
    "give dense_shape, use a resource variable, or leave strict off.",
)
REFERENCE_VARIABLE = Refusal(
    UnsupportedError,
    "conditional update: expected a resource variable for {name!r}, because control "
    "flow v2 is on, got a reference variable; "
    "make it with use_resource=True, or call tf.compat.v1.disable_control_flow_v2() "
    "before the graph is built.",
)
NOT_A_COUNTER = Refusal(
    NotAVariableError,
    "{owner}: global_step: expected a 0-d variable of integers, or None, got {got}; "
    "pass tf.compat.v1.train.get_or_create_global_step().",
)
