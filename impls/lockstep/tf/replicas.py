"""Steps on the replicas of a ``tf.distribute`` strategy.

A v1 optimizer sums gradients in ``apply_gradients``, in a ``merge_call``, which is not
possible inside a condition. So a wrapper calls it first: it creates all state and sums
the gradients. Then every replica takes the same step on its own copy of the variables.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lockstep.errors import CrossReplicaError, UnsupportedError
from lockstep.tf.shared.gradients import Gradient, densify, name_of, own_copy

Operation = tf.Operation | None
Pairs = list[tuple[Gradient, tf.Variable]]

ABSENT, SPARSE, DENSE = range(3)

_thread = threading.local()


# -- the sum over the replicas ---------------------------------------------------------


def refuse_cross_replica(owner: str) -> None:
    """Raise if gradients are applied outside of ``strategy.run``."""
    if tf.distribute.in_cross_replica_context():
        raise CrossReplicaError(
            f"{owner}.apply_gradients: expected a replica context, got a cross-replica "
            "context; call it inside strategy.run, or use _distributed_apply."
        )


def require_mirrored(owner: str, variables: Iterable[Any]) -> None:
    """Raise for a variable that is not mirrored, if there are several replicas."""
    if replica_count() == 1:
        return
    for variable in variables:
        if not isinstance(variable, tf.distribute.DistributedValues):
            raise UnsupportedError(
                f"{owner}: expected variables of which every replica has a copy, got "
                f"{name_of(variable)!r}, which has none; make model, optimizer and "
                "step counter inside strategy.scope()."
            )


def sums_known() -> bool:
    """Whether the gradients in this thread are already summed over the replicas."""
    return getattr(_thread, "summed", False)


def awaits_sums() -> bool:
    """Whether the caller is a replica whose gradients are not summed yet."""
    return tf.distribute.has_strategy() and not sums_known()


@contextlib.contextmanager
def summed_gradients() -> Iterator[None]:
    """Mark the gradients that are applied in the ``with`` block as summed."""
    _thread.summed = True
    try:
        yield
    finally:
        _thread.summed = False


def make_together(make: Callable[[], Any]) -> None:
    """Call ``make``, which creates variables, once for all replicas."""
    if not awaits_sums() or tf.distribute.in_cross_replica_context():
        make()
        return

    def merged(strategy: tf.distribute.Strategy) -> None:
        make()

    tf.distribute.get_replica_context().merge_call(merged)


def sums_over_replicas(pairs: Pairs) -> Pairs:
    """Return the pairs with each gradient summed over the replicas.

    A gradient is absent only if it is absent on all replicas. It stays sparse unless
    it is dense on a replica.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return pairs
    kinds = tuple(
        ABSENT if g is None else SPARSE if isinstance(g, tf.IndexedSlices) else DENSE
        for g, _ in pairs
    )

    def largest_kinds(strategy: Any, kinds: Sequence[Any]) -> tuple[int, ...]:
        # The gradients of all replicas convert to it.
        return tuple(max(strategy.experimental_local_results(kind)) for kind in kinds)

    largest = context.merge_call(largest_kinds, args=(kinds,))
    alike: dict[Any, dict[int, Any]] = {}
    for position, (pair, kind) in enumerate(zip(pairs, largest, strict=True)):
        if kind != ABSENT:
            gradient = as_kind(*pair, kind)
            group = alike.setdefault((kind, gradient.dtype), {})
            group[position] = gradient
    sums: dict[int, Any] = {}
    # One collective per dtype and kind, because a strategy concatenates dense tensors.
    for group in alike.values():
        added = context.all_reduce(tf.distribute.ReduceOp.SUM, [*group.values()])
        sums.update(zip(group, added, strict=True))
    return [(sums.get(position), v) for position, (_, v) in enumerate(pairs)]


def as_kind(gradient: Gradient, variable: tf.Variable, kind: int) -> Any:
    """Convert a gradient to slices or to a dense tensor; an absent one adds nothing."""
    copy, dtype = own_copy(variable), variable.dtype.base_dtype
    if kind == DENSE:
        return tf.zeros_like(copy) if gradient is None else densify(gradient, copy)
    if gradient is None:
        values = tf.zeros([0, *variable.shape[1:]], dtype)
        return tf.IndexedSlices(values, tf.zeros([0], tf.int64), None)
    return tf.IndexedSlices(gradient.values, tf.cast(gradient.indices, tf.int64), None)


def whole_step(done: Operation) -> Operation:
    """Return the operation of a step on all replicas, given one replica's; graph only.

    It replaces the replicas' operations in the collection of training operations.
    """
    if tf.executing_eagerly():
        return done

    def group(strategy: Any, part: Any) -> Operation:
        whole: Operation = strategy.group(part)
        parts = strategy.experimental_local_results(part)
        train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        train_ops[:] = [*(op for op in train_ops if op not in parts), whole]
        return whole

    context = tf.distribute.get_replica_context()
    together: Operation = context.merge_call(group, args=(done,))
    return together


# -- replicas as ranks, for optimize_loss ----------------------------------------------


def replica_count() -> int:
    """Return the number of replicas, 1 outside of a strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def is_mirrored(variables: Sequence[tf.Variable]) -> bool:
    """Whether a strategy has a copy of each variable on each of its replicas."""
    return all(isinstance(v, tf.distribute.DistributedValues) for v in variables)


def copies_of(
    variables: Sequence[tf.Variable], on_horovod: bool
) -> list[list[tf.Variable]]:
    """Return each replica's copies of the variables; one list without replicas."""
    if replica_count() > 1:
        raise CrossReplicaError(
            "optimize_loss: expected no strategy's scope, got one of several replicas; "
            "call it outside; the variables alone are made in the scope."
        )
    if not is_mirrored(variables):
        return [list(variables)]
    strategy = variables[0].distribute_strategy
    by_variable = [
        strategy.experimental_local_results(variable) for variable in variables
    ]
    copies = [list(copy) for copy in zip(*by_variable, strict=True)]
    if len(copies) > 1 and not on_horovod:
        raise UnsupportedError(
            "optimize_loss: expected on_horovod with several replicas, got "
            f"{len(copies)} of them; pass on_horovod=True, so that their gradients are "
            "averaged."
        )
    return copies


class ReplicatedStep(tf.Module):
    """One step per replica of a strategy; ``strategy.run(step, args)`` calls it.

    As with Horovod, each rank has its own optimizer and scaler and updates its own copy
    of the variables. All ranks start equal and get the same averaged gradients, so they
    stay equal and skip the same steps. With ``iter_size`` > 1 each micro-batch is
    averaged, because replicas cannot communicate inside a condition. All other
    attributes are those of the first replica's ``TrainingStep``.

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
        here = 1
        if context is not None and tf.distribute.has_strategy():
            here = len(context.strategy.extended.worker_devices)
        if context is None or here != count:
            raise CrossReplicaError(
                "optimize_loss: expected a replica context, got a cross-replica "
                "context; call it inside strategy.run."
            )
        # The replicas of one process have consecutive numbers.
        position = int(tf.get_static_value(context.replica_id_in_sync_group)) % count
        return self.steps[position](*inputs, skip_update=skip_update)

    def __getattr__(self, name: str) -> Any:
        if name == "steps" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.steps[0], name)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        return tuple(self.steps[0].pipeline)
