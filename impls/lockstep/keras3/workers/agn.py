"""Accumulated gradient normalization for asynchronous workers, for Keras 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import (
    Gradient,
    key_of,
    name_of,
    require_variable,
    value_of,
)
from lockstep.keras3.base.slots import refuse_several
from lockstep.keras3.base.train_v1 import check_counter
from lockstep.keras3.workers.center import ITERATIONS, RATE, AGNCustomGetter
from lockstep.keras3.workers.sharing import SharingWrapper
from lockstep.messages.nouns import KERAS3
from lockstep.messages.workers import agn as words
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import (
    DELTA,
    GLOBAL_VARIABLE_NAME,
    GRAD_VARIABLE_NAME,
    GRADIENT,
)
from lockstep.messages.workers.center import Update
from lockstep.quirks import quirks_of
from lockstep.tf.shared.tensors.replica_copies import refuse_parameter_servers
from lockstep.tf.shared.workers.accumulate import add_changes, is_due, mean_changes

__all__ = ["AGNOptimizer"]

Pairs = list[tuple[Gradient, Any]]


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class AGNOptimizer(SharingWrapper):
    """...

    An optimizer like ``optimizer`` applies a to c, with slots and a count that belong
    to c, and with this worker's learning rate. ``fit`` does all of this.

    Args:
        optimizer: any Keras optimizer, or a wrapper, without gradient accumulation.
        strict: reproduce ``tf.contrib.opt.AGNOptimizer`` (1.15) with its quirks: the
            worker's ``iterations``, from which Keras' Adam computes its powers of beta,
            count local and shared updates and are used for both; pairs from a one-shot
            iterator raise, so ``fit``, which passes a ``zip``, raises; arguments are
            not checked; ``get_slot`` and ``variables()`` return nothing; row clipping
            inside does not clip shared rows.

    Attributes:
        ...
        inner_optimizer: the optimizer of this worker.

    Raises:
        ...
        UnsupportedError: a ValueError; ``optimizer`` scales losses, or accumulates
            gradients.

    State: accumulators, local step, shared variables and their slots are in
    ``variables`` and in ``.keras`` files. With a center on Ray, which saves itself, the
    shared part is left out.

    Example:
        >>> weight = keras.Variable([1.0], name="weight")
        >>> getter = AGNCustomGetter("/cpu:0")
        >>> sgd = keras.optimizers.SGD(0.5)
        >>> _ = getter([weight])
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> for number in (1.0, 0.5):
        ...     worker.apply([keras.ops.array([number])], [weight])
        ...     print(weight.numpy()[0], worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    argument = "optimizer"

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
        strict: bool = False,
    ) -> None:
        host = keras.optimizers.Optimizer
        refuse_parameter_servers(words.WRAPPER)
        words.check_optimizer(optimizer, host, KERAS3)
        refuse_several(optimizer, words.WRAPPER, "pass a single optimizer")
        if optimizer.gradient_accumulation_steps:
            raise refusals.ACCUMULATES.error(opt=type(optimizer).__name__)
        if not isinstance(custom_getter, AGNCustomGetter):
            raise refusals.NOT_A_GETTER.error(got=type(custom_getter).__name__)
        unchecked = quirks_of(strict).agn_workers
        words.check_arguments(num_worker, communication_period, commit, unchecked)
        super().__init__(optimizer, name)
        # Not setattr: Keras and TensorFlow would track the attribute.
        vars(self)["custom_getter"] = custom_getter
        self.num_worker = num_worker
        self.communication_period = communication_period
        self.commit = commit
        self.strict = strict
        self.local_step = keras.Variable(
            0, dtype="int32", trainable=False, name="local_step"
        )
        clips_rows = not self._quirks.agn_row_clipping
        custom_getter.center.begin(commit, optimizer, clips_rows)

    @property
    def _pushes_away(self) -> bool:
        """Whether a step also changes state in another process."""
        return self.custom_getter.center.saves_itself

    def shown(self) -> dict[str, Any]:
        """Return the arguments that a repr shows."""
        names = ("num_worker", "communication_period", "commit")
        return {name: getattr(self, name) for name in names}

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, which the getter must know."""
        variables = list(variables)
        if not self.built:
            if self.custom_getter.takes_all:
                self.custom_getter(variables)
            self._require_known(variables)
        super().build(variables)

    def build_state(self, variables: Sequence[Any]) -> None:
        """Add the getter's variables and the center's optimizer to the state."""
        getter = self.custom_getter
        owned = {getter.names[key_of(variable)]: variable for variable in variables}
        clips_rows = not self._quirks.agn_row_clipping
        with getter.center.lock:
            getter.center.follow(self.inner_optimizer, owned, clips_rows)
        for variable in variables:
            gathered = getter._grad_map[key_of(variable)]
            shared = getter._global_map[key_of(variable)]
            self._slots.add(variable, GRAD_VARIABLE_NAME, gathered)
            self._slots.add(variable, GLOBAL_VARIABLE_NAME, shared)
            self._track_variable(gathered)
            if not getter.center.saves_itself:
                self._track_variable(shared)
        if getter.center.saves_itself:
            return
        for state in getter.center.optimizer.variables:
            self._track_variable(state)
        # An outer wrapper that skips a variable then also restores these slots.
        self._slots.by_variable.update(getter.center.slots.by_variable)

    @tf.autograph.experimental.do_not_convert
    def apply(
        self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None
    ) -> None:
        """Take a local step, and end the round if it is due: see the base class.

        Raises:
            NotFromGetterError: a KeyError; a variable is not registered in the getter.
            UnsupportedError: a ValueError; under a ``ParameterServerStrategy``.
        """
        refuse_parameter_servers(words.WRAPPER)
        if trainable_variables is not None:
            owner, entries = type(self).__name__, list(trainable_variables)
            trainable_variables = [require_variable(v, owner) for v in entries]
            if self.built or not self.custom_getter.takes_all:
                self._require_known(trainable_variables)
        super().apply(grads, trainable_variables)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Take a local step: see the base class. ``global_step`` counts rounds."""
        words.refuse_iterator(grads_and_vars, self._quirks.agn_iterator)
        counter = check_counter(global_step, type(self).__name__)
        iterations = super().apply_gradients(grads_and_vars, None, name)
        if counter is not None:
            counter.assign_add(tf.cast(self._is_due(), counter.dtype))
        return iterations

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the local step, accumulate, and end the round if it is due."""
        pairs = zip(gradients, variables, strict=True)
        present = [(g, v) for g, v in pairs if g is not None]
        rate = self.base_optimizer._get_current_learning_rate()
        before = [value_of(v).read_value() for _, v in present]
        super().update(gradients, variables)
        inner = getattr(self.inner_optimizer, "last_step", None)
        self._gather(present, before if self.commit == DELTA else None)
        self.local_step.assign_add(1)
        ending = [variable for _, variable in present]
        tf.cond(self._is_due(), lambda: self._communicate(ending, rate), lambda: None)
        if tf.executing_eagerly():
            self.last_step = words.report(
                inner,
                [name_of(variable) for variable in variables],
                [gradient is None for gradient in gradients],
                int(self.local_step.numpy()),
                self.communication_period,
            )

    def _is_due(self) -> tf.Tensor:
        return is_due(self.local_step.value.read_value(), self.communication_period)

    def _gather(self, present: Pairs, before: list[tf.Tensor] | None) -> None:
        """Add gradients to the accumulators, or the differences since ``before``."""
        changes = [gradient for gradient, _ in present]
        variables = [variable for _, variable in present]
        if before is not None:
            after = [value_of(variable).read_value() for variable in variables]
            changes = [w - v for w, v in zip(after, before, strict=True)]
        accumulators = self._accumulators(variables)
        read = [accumulator.read_value() for accumulator in accumulators]
        for accumulator, total in zip(
            accumulators, add_changes(read, changes), strict=True
        ):
            accumulator.assign(total)

    def _communicate(self, variables: Sequence[Any], rate: tf.Tensor) -> None:
        """Push the means of these variables, and pull the shared ones."""
        getter, period = self.custom_getter, self.communication_period
        gathered = [a.read_value() for a in self._accumulators(variables)]
        names = [getter.names[key_of(variable)] for variable in variables]
        changes = dict(zip(names, mean_changes(gathered, period), strict=True))
        options: dict[str, tf.Tensor] | None = {RATE: rate}
        if self.commit == DELTA:
            options = None
        elif self._quirks.agn_powers:
            options[ITERATIONS] = self._iterations.value.read_value()
        getter.center.push(Update(changes, options))
        if self._quirks.agn_powers:
            self._iterations.assign_add(1)
        self._begin_round(variables)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the getter without variables."""
        getter = keras.saving.serialize_keras_object(self.custom_getter)
        return {
            **super().get_config(),
            "num_worker": self.num_worker,
            "custom_getter": getter,
            "communication_period": self.communication_period,
            "name": self.name,
            "commit": self.commit,
            "strict": self.strict,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Create an optimizer from the result of ``get_config``."""
        getter = keras.saving.deserialize_keras_object(
            config["custom_getter"], custom_objects
        )
        return super().from_config({**config, "custom_getter": getter}, custom_objects)
