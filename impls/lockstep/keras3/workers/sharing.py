"""The state of a Keras worker: its own, and the shared state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import key_of, name_of, value_of
from lockstep.keras3.base.train_v1 import HiddenList, StateList
from lockstep.keras3.base.wrapper import Wrapper
from lockstep.keras3.workers.center import AGNCustomGetter
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME

__all__ = ["SharingWrapper"]


class SharingWrapper(Wrapper):
    """A wrapper whose variables have shared variables, and accumulators per round.

    Attributes:
        custom_getter: the worker's getter, which created both.
        strict: whether ``get_slot`` returns None.
    """

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

    custom_getter: AGNCustomGetter
    strict: bool

    @property
    def variables(self) -> StateList:
        """All state: the worker's, the shared variables', the wrapped optimizer's.

        Strict: ``variables()``, TensorFlow 1's method, returns an empty list.
        """
        state = super().variables
        return HiddenList(state) if self._quirks.agn_slots else state

    def _require_known(self, variables: Iterable[Any]) -> None:
        """Raise for a variable that has no shared variable."""
        for variable in variables:
            if key_of(variable) not in self.custom_getter._global_map:
                raise refusals.NOT_FROM_GETTER.error(name=name_of(variable))

    def _accumulators(self, variables: Iterable[Any]) -> list[tf.Variable]:
        accumulators = self.custom_getter._grad_map
        return [value_of(accumulators[key_of(variable)]) for variable in variables]

    def _begin_round(self, variables: Sequence[Any]) -> None:
        """Copy the shared variables to these, and reset their accumulators to 0."""
        names = [self.custom_getter.names[key_of(variable)] for variable in variables]
        pulled = self.custom_getter.center.pull(names)
        for variable, name in zip(variables, names, strict=True):
            value_of(variable).assign(pulled[name])
        for accumulator in self._accumulators(variables):
            accumulator.assign(tf.zeros_like(accumulator))

    def get_init_op(self, task_index: int) -> None:
        """Set a worker's variables to the shared ones and its accumulators to 0.

        This is done when the call returns; TensorFlow 1 returns an operation.

        Args:
            task_index: no effect.

        Raises:
            NoGradientsError: a ValueError; the getter has no variables.
        """
        entered = [reference.deref() for reference in self.custom_getter._global_map]
        if not entered:
            raise refusals.NOTHING_TO_START.error()
        self._begin_round(entered)

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> keras.callbacks.Callback:
        """Return a callback for ``fit`` that runs the init op before the first batch.

        TensorFlow 1 has session hooks instead of callbacks. After the last batch a
        center on Ray learns that this worker is done. The arguments have no effect.
        """
        return keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: self.get_init_op(task_index),
            on_train_end=lambda logs: self.custom_getter.center.leave(),
        )

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return a slot of a worker's variable or of its shared variable.

        The shared variable and the accumulator are slots too, with this class'
        constants as names. Strict: None.
        """
        if self._quirks.agn_slots:
            return None
        shared = self.custom_getter.center.slot(var, name)
        return super().get_slot(var, name) if shared is None else shared

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer and of this class."""
        return [] if self._quirks.agn_slots else super().get_slot_names()
