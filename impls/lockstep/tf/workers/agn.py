"""Accumulated gradient normalization for asynchronous workers, v1-style."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages import tf as tf_host
from lockstep.messages.nouns import TF
from lockstep.messages.workers import agn as words
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import DELTA, GRADIENT
from lockstep.quirks import quirks_of
from lockstep.tf.base.hooks import require_resources, skips_of
from lockstep.tf.base.pairs import (
    Gradient,
    Pairs,
    as_counter,
    as_variable,
    check_pairs,
    name_of,
)
from lockstep.tf.base.replica_sums import refuse_cross_replica
from lockstep.tf.base.wrapper import Optimizer, advance, as_train_op, is_keras
from lockstep.tf.masters.copies import share_row_limits
from lockstep.tf.shared.tensors.replica_copies import refuse_parameter_servers
from lockstep.tf.shared.workers.accumulate import densify, is_due, mean_changes
from lockstep.tf.workers.center import AGNCustomGetter
from lockstep.tf.workers.sharing import SharingWrapper, Variables
from lockstep.tf.workers.worker import copy_of, local_collection, make_local_step

__all__ = ["AGNOptimizer"]


@documented
class AGNOptimizer(SharingWrapper):
    """...

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer`` of this worker, or a wrapper.
        use_locking: whether ``commit="delta"`` locks the variables that it adds to;
            otherwise the wrapped optimizer's own argument is used.
        strict: as in the original: pairs from a one-shot iterator raise, arguments are
            not checked, ``local_step`` is on the current device, ``get_slot`` and
            ``variables()`` return nothing, row clipping inside does not clip shared
            rows.

    Attributes:
        ...
        inner_optimizer: ``optimizer``.
        local_step: the worker's steps, an int32 variable on its CPU.

    Raises:
        ...
        UnsupportedError: a ValueError; ``optimizer`` scales losses, or it is a second
            instance in a variable scope of a graph.

    Example:
        >>> w = tf.Variable([1.0], name="w")
        >>> getter = AGNCustomGetter("/device:CPU:0")
        >>> _ = getter([w])
        >>> sgd = GradientDescentOptimizer(0.5)
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> for gradient in (1.0, 0.5):
        ...     _ = worker.apply_gradients([(tf.constant([gradient]), w)])
        ...     print(w.numpy()[0], worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    owner = words.WRAPPER

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
        strict: bool = False,
    ) -> None:
        if is_keras(optimizer):
            raise tf_host.KERAS_OPTIMIZER.error(
                owner=words.WRAPPER, got=type(optimizer).__name__
            )
        refuse_parameter_servers(words.WRAPPER)
        words.check_optimizer(optimizer, Optimizer, TF)
        if not isinstance(custom_getter, AGNCustomGetter):
            raise refusals.NOT_A_GETTER.error(got=type(custom_getter).__name__)
        quirks = quirks_of(strict)
        unchecked = quirks.agn_workers
        words.check_arguments(num_worker, communication_period, commit, unchecked)
        super().__init__(optimizer, name, use_locking)
        self.num_worker = num_worker
        self.custom_getter = custom_getter
        self.communication_period = communication_period
        self.use_locking = use_locking
        self.commit = commit
        self.strict = strict
        place = None if quirks.agn_local_step else custom_getter
        self.local_step = make_local_step(place)
        if custom_getter.center.saves_itself:
            # It creates the wrappers in another process, from the shared variables
            # only.
            self._share_row_limits(list(custom_getter._global_map))
        custom_getter.center.begin(commit, optimizer)
        custom_getter.center.rule.make = self._create_shared_slots
        self.last_step: StepReport = NO_EAGER_STEP
        self._track_trackable(self.local_step, "local_step")
        self._track_trackable(custom_getter, "custom_getter")

    @documented
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take one local step; at the end of a round, push and pull.

        Args:
            global_step: integer variable, incremented at the end of a round: it counts
                the rounds of all workers that pass it.

        Returns:
            In a graph the operation of the step; not useful in eager mode.

        Raises:
            ...
            NotFromGetterError: a KeyError; a variable that the getter did not create.
            NotAVariableError: a TypeError; ``global_step`` is a tensor or a number.
            UnsupportedError: reference variables under control flow v2; strict: a
                one-shot iterator; in a graph, an outer wrapper that skips variables;
                under a ``ParameterServerStrategy``.
        """
        refuse_parameter_servers(words.WRAPPER)
        words.refuse_iterator(grads_and_vars, self._quirks.agn_iterator)
        pairs = check_pairs(grads_and_vars, words.WRAPPER, self.takes_wide)
        # The original tests its truth value, which a tensor does not have.
        unchecked = self._quirks.arguments_unchecked
        global_step = as_counter(global_step, words.WRAPPER, unchecked)
        # Raise for a variable without a center before anything is created.
        self._centers([variable for _, variable in pairs])
        if not self.strict:
            return self.apply_together(self._apply, pairs, global_step, name)
        # As in the original, the wrapped optimizer sums gradients over the replicas.
        refuse_cross_replica(words.WRAPPER)
        return self._apply(pairs, global_step, name)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a local step; by default the gradients are summed over the replicas."""
        centers = self._centers([variable for _, variable in pairs])
        if skips_of(self.base_optimizer):
            raise tf_host.SKIPPED_AROUND.error(owner=words.WRAPPER)
        present = [variable for gradient, variable in pairs if gradient is not None]
        if not tf.executing_eagerly():
            counters = [] if global_step is None else [global_step]
            require_resources([*present, *centers, *counters])
        self.create_slots(present)
        done = as_train_op(lambda: self._take_step(pairs, global_step, name))
        eager = tf.executing_eagerly()
        self.last_step = self._report(pairs) if eager else NO_EAGER_STEP
        return done

    def _report(self, pairs: Pairs) -> StepReport:
        """Return the report of an eager step."""
        return words.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_of(variable) for _, variable in pairs],
            [gradient is None for gradient, _ in pairs],
            int(self.local_step.read_value()),
            self.communication_period,
        )

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Update, accumulate and count; at the end of a round push and pull."""
        present = [(g, v) for g, v in pairs if g is not None]
        changes, variables = map(list, zip(*present, strict=True))
        is_delta = self.commit == DELTA
        before = [copy_of(variable) for variable in variables] if is_delta else []
        with tf.control_dependencies(before):
            updated = self.apply_inside(pairs)
        if is_delta:
            with tf.control_dependencies([updated]):
                after = [variable.read_value() for variable in variables]
            changes = [a - b for a, b in zip(after, before, strict=True)]
        gathered = self._gather(variables, changes)
        with tf.control_dependencies([updated, *gathered]):
            count = tf.convert_to_tensor(self.local_step.assign_add(1))
        communicate = functools.partial(self._communicate, variables, global_step)
        # A branch runs after its condition, which waits for all operations above.
        done = tf.cond(is_due(count, self.communication_period), communicate, tf.no_op)
        return tf.group(done, name=name or self.get_name())

    def _gather(self, variables: Variables, changes: Sequence[Any]) -> list[Any]:
        """Add the changes of these variables to their accumulators."""
        pairs = zip(self._accumulators(variables), changes, strict=True)
        return [a.assign_add(densify(g, a), read_value=False) for a, g in pairs]

    def _communicate(
        self, variables: Variables, global_step: tf.Variable | None
    ) -> tf.Operation | None:
        """Push, then pull these variables."""
        gathered = [a.read_value() for a in self._accumulators(variables)]
        # These tensors are pushed: a variable that is written meanwhile would race.
        means = mean_changes(gathered, self.communication_period)
        self._share_row_limits(variables)
        pushed = self._push(means, self._centers(variables))
        with tf.control_dependencies([pushed, *means]):
            done = tf.group(advance(global_step), self._begin_round(variables))
        with tf.control_dependencies([done]):
            return tf.no_op()

    def _share_row_limits(self, variables: Variables) -> None:
        """Make row clipping inside apply these variables' limits to shared ones."""
        if not self._quirks.agn_row_clipping:
            pairs = zip(variables, self._centers(variables), strict=True)
            share_row_limits(pairs, self.inner_optimizer)

    def _push(self, means: Sequence[tf.Tensor], centers: Variables) -> Any:
        """Apply means with the wrapped optimizer, or add them directly."""
        center = self.custom_getter.center
        if self.commit == DELTA:
            return center.add(centers, means, use_locking=self.use_locking)
        pairs = list(zip(means, centers, strict=True))
        with center.lending(self.base_optimizer):
            return center.step(self.inner_optimizer, pairs)

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of these variables and of their shared ones now.

        In a graph a worker's slots are added to ``LOCAL_VARIABLES``.
        """
        variables = [as_variable(variable) for variable in var_list]
        with local_collection():
            super().create_slots(variables)
        if self.commit == GRADIENT and not self.custom_getter.center.saves_itself:
            self._create_shared_slots(self._centers(variables))

    def _create_shared_slots(self, centers: list[tf.Variable]) -> None:
        """Create the slots of shared variables."""
        center = self.custom_getter.center
        with center.lock, center.lending(self.base_optimizer):
            super().create_slots(centers)
