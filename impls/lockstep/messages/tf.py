"""The errors that only the TensorFlow backend raises."""

from __future__ import annotations

from lockstep.errors import (
    CrossReplicaError,
    NotAnOptimizerError,
    OutOfRangeError,
    Refusal,
    UnsupportedError,
)

__all__ = ["ZERO_RATE"]

ZERO_RATE = (
    "FtrlOptimizer: expected learning_rate > 0, as the original; "
    "leave strict off to skip the update at rate 0"
)
"""The message of an assertion, where the rate may be a tensor."""


CROSS_REPLICA_CALL = Refusal(
    CrossReplicaError,
    "{function}: expected a replica context, got a cross-replica context; "
    "call it inside strategy.run.",
)
FIXED_RATE = Refusal(
    UnsupportedError,
    "{owner}: optimizer: expected an optimizer that keeps its rate in _lr or "
    "_learning_rate, got {got}; "
    "build it in a graph, where it is given the rate as a tensor.",
)
OUTSIDE_RUN = Refusal(
    UnsupportedError,
    "{function}: expected variables made in the strategy's scope, "
    "got {count} replicas; "
    "make them inside strategy.scope(), so that each replica has a copy.",
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
KERAS_OPTIMIZER = Refusal(
    NotAnOptimizerError,
    "{owner}: expected a tf.compat.v1.train.Optimizer, got the Keras optimizer {got}; "
    "pass its v1 counterpart, such as lockstep.tf.AdamOptimizer.",
)
