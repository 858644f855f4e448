"""Training steps on the replicas of a strategy, each a rank of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages import tf as tf_host
from lockstep.messages.step.training_step import OWNER

__all__ = ["ReplicatedStep", "copies_of", "is_mirrored", "replica_count"]


class ReplicatedStep(tf.Module):
    """One step per replica of a strategy; ``strategy.run(step, args)`` calls it.

    As with Horovod, each rank has its own optimizer and scaler and updates its own copy
    of the variables. All ranks start equal and get the same averaged gradients, so they
    stay equal and skip the same steps. With ``iter_size`` > 1 each micro-batch is
    averaged, because replicas cannot communicate inside a condition. All other
    attributes are those of the first replica's
    :class:`~lockstep.tf.step.training_step.TrainingStep`.

    Attributes:
        steps: the steps of this process' replicas.
    """

    def __init__(self, steps: Sequence[Any]) -> None:
        super().__init__()
        self.steps = tuple(steps)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.steps[0]!r}, replicas={len(self.steps)})"

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        """Take the step of the calling replica; see ``TrainingStep``.

        Raises:
            CrossReplicaError: a RuntimeError; called outside of ``strategy.run``.
        """
        context, count = tf.distribute.get_replica_context(), len(self.steps)
        if context is None or replicas_here(context.strategy) != count:
            raise tf_host.CROSS_REPLICA_CALL.error(function=OWNER)
        # The replicas of one process have consecutive numbers.
        position = int(tf.get_static_value(context.replica_id_in_sync_group)) % count
        return self.steps[position](*inputs, skip_update=skip_update)

    def __getattr__(self, name: str) -> Any:
        if name == "steps" or name.startswith(("__", "_")):
            raise AttributeError(name)
        return getattr(self.steps[0], name)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        return tuple(self.steps[0].pipeline)


def copies_of(
    variables: Sequence[tf.Variable], on_horovod: bool
) -> list[list[tf.Variable]]:
    """Return each replica's copies of the variables; one list without replicas.

    Raises:
        CrossReplicaError: a RuntimeError; the call is inside a strategy's scope, where
            the state of the optimizer would be created for all replicas together.
        UnsupportedError: a ValueError; replicas whose gradients are not averaged.
    """
    if tf.distribute.has_strategy() and replica_count() > 1:
        raise tf_host.INSIDE_SCOPE.error(function=OWNER)
    if not is_mirrored(variables):
        return [list(variables)]
    strategy = variables[0].distribute_strategy
    by_variable = [
        strategy.experimental_local_results(variable) for variable in variables
    ]
    copies = [list(copy) for copy in zip(*by_variable, strict=True)]
    if len(copies) > 1 and not on_horovod:
        raise tf_host.NOT_AVERAGED.error(function=OWNER, count=len(copies))
    return copies


def replicas_here(strategy: tf.distribute.Strategy) -> int:
    """Return the number of replicas in this process; 1 outside of a strategy."""
    if not tf.distribute.has_strategy():
        return 1
    return len(strategy.extended.worker_devices)


def is_mirrored(variables: Sequence[tf.Variable]) -> bool:
    """Whether a strategy has a copy of each variable on each of its replicas."""
    return all(isinstance(v, tf.distribute.DistributedValues) for v in variables)


def replica_count() -> int:
    """Return the number of replicas, 1 outside of a strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)
