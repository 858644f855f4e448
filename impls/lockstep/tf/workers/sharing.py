"""The state of a TensorFlow worker: its own, and the shared state."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.tf.base.pairs import name_of
from lockstep.tf.base.wrapper import Wrapper
from lockstep.tf.workers.center import AGNCustomGetter
from lockstep.tf.workers.worker import BeginRound

__all__ = ["SharingWrapper", "Variables"]

Variables = Sequence[tf.Variable]


class SharingWrapper(Wrapper):
    """Base of a worker's wrapper: each variable has a shared one and an accumulator.

    Attributes:
        custom_getter: the worker's getter, which created them.
        local_step: the number of the worker's steps.
        strict: whether ``get_slot`` returns None.
    """

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

    custom_getter: AGNCustomGetter
    local_step: tf.Variable
    strict: bool

    def _centers(self, variables: Variables) -> list[tf.Variable]:
        """Return the shared variables; raise for a variable without one."""
        for variable in variables:
            if variable not in self.custom_getter._global_map:
                raise refusals.NOT_FROM_GETTER.error(name=name_of(variable))
        return [self.custom_getter._global_map[variable] for variable in variables]

    def _accumulators(self, variables: Variables) -> list[tf.Variable]:
        """Return the accumulators of these variables."""
        return [self.custom_getter._grad_map[variable] for variable in variables]

    def _begin_round(self, variables: Variables) -> tf.Operation | None:
        """Copy the shared variables to these, and reset their accumulators to 0."""
        centers = self._centers(variables)
        self.custom_getter.center.refresh(centers)
        pairs = zip(variables, centers, strict=True)
        pulls = [v.assign(c.read_value(), read_value=False) for v, c in pairs]
        accumulators = self._accumulators(variables)
        resets = [a.assign(tf.zeros_like(a), read_value=False) for a in accumulators]
        return tf.group(*pulls, *resets)

    def get_init_op(self, task_index: int) -> tf.Operation | None:
        """Return an operation that pulls all shared variables and resets accumulators.

        Run it before training, and in a worker that joins later. In eager mode this is
        done when the call returns.

        Args:
            task_index: no effect.

        Raises:
            NoGradientsError: a ValueError; there are no variables.
        """
        variables = list(self.custom_getter._global_map)
        if not variables:
            raise refusals.NOTHING_TO_START.error()
        return self._begin_round(variables)

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> tf.compat.v1.train.SessionRunHook:
        """Return a hook that runs the init op in each new session.

        So a restarted worker begins with the current shared weights.

        Args:
            is_chief: no effect: every worker begins with the shared weights.
            task_index: the worker's number; no effect.
        """
        return BeginRound(functools.partial(self.get_init_op, task_index))

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of a worker's variable or of its shared variable.

        The shared variable and the accumulator are slots too, with this class'
        constants as names. Strict: None.
        """
        getter = self.custom_getter
        if self._quirks.agn_slots:
            return None
        if name == GLOBAL_VARIABLE_NAME:
            return getter._global_map.get(var)
        if name == GRAD_VARIABLE_NAME:
            return getter._grad_map.get(var)
        shared = getter.center.slot(var, name)
        return super().get_slot(var, name) if shared is None else shared

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer and of this class."""
        own = [GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]
        return [] if self._quirks.agn_slots else [*super().get_slot_names(), *own]

    def variables(self) -> list[tf.Variable]:
        """Return all variables of state: of the optimizer, the worker and the center.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves the whole state.
        Strict: an empty list.
        """
        if self._quirks.agn_slots:
            return []
        getter = self.custom_getter
        center = [*getter.center.shared.values(), *getter.center.rule.variables()]
        own = [*getter._grad_map.values(), self.local_step]
        entries = [*super().variables(), *own, *center]
        return list({variable.ref(): variable for variable in entries}.values())
