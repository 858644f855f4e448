"""Accumulated gradient normalization for asynchronous workers, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.errors import TrainingEndedError
from lockstep.interface import NO_STEP, Array, Gradient, Rows, StepReport
from lockstep.messages.nouns import REFERENCE
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
from lockstep.reference.base.pairs import advance, check_counter, check_pairs
from lockstep.reference.clipping.variable_clipping import share_row_limits
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.reference.tensors.variable import Variable
from lockstep.reference.workers.accumulate import add_changes, is_due, mean_changes
from lockstep.reference.workers.center import AGNCustomGetter

__all__ = ["AGNOptimizer"]


@documented
class AGNOptimizer(Optimizer):
    """Train a worker's own weights; every P steps push a mean gradient to shared ones.

    ...

    Args:
        optimizer: any optimizer of the reference that this worker uses.
        strict: reproduce ``tf.contrib.opt.AGNOptimizer`` (1.15) with its quirks: pairs
            from a one-shot iterator are refused, arguments are not checked,
            ``get_slot`` returns None and ``variables()`` is empty, row clipping inside
            does not clip shared rows.
    """

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

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
        words.check_optimizer(optimizer, Optimizer, REFERENCE)
        if not isinstance(custom_getter, AGNCustomGetter):
            raise refusals.NOT_A_GETTER.error(got=type(custom_getter).__name__)
        self.quirks = quirks_of(strict)
        unchecked = self.quirks.agn_workers
        words.check_arguments(num_worker, communication_period, commit, unchecked)
        self.inner_optimizer = optimizer
        self.num_worker = num_worker
        self.custom_getter = custom_getter
        self.communication_period = communication_period
        self.name = name
        self.commit = commit
        self.local_step = Variable("local_step", 0, np.int32)
        self.last_step: StepReport = NO_STEP
        custom_getter.center.begin(commit)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Take one local step; at the end of a round, push and pull.

        ``global_step`` counts the rounds of all workers that share it.

        Raises:
            KeyError: a variable that was not created through the getter.
            ValueError: there are no pairs, or every gradient is None.
        """
        words.refuse_iterator(grads_and_vars, self.quirks.agn_iterator)
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        check_counter(global_step, words.WRAPPER)
        for _, variable in pairs:
            if variable not in self.custom_getter._global_map:
                raise refusals.NOT_FROM_GETTER.error(name=variable.name)
        present = [(g, variable) for g, variable in pairs if g is not None]
        before = [variable.value for _, variable in present]
        self.inner_optimizer.apply_gradients(pairs, None, name)
        inner = getattr(self.inner_optimizer, "last_step", None)
        variables = [variable for _, variable in present]
        changes = [gradient for gradient, _ in present]
        if self.commit == DELTA:
            changes = differences(variables, before)
        self.gather(variables, changes)
        advance(self.local_step)
        if is_due(int(self.local_step.value), self.communication_period):
            self.communicate(variables)
            advance(global_step)
        self.last_step = words.report(
            inner,
            [variable.name for _, variable in pairs],
            [gradient is None for gradient, _ in pairs],
            int(self.local_step.value),
            self.communication_period,
        )

    def gather(self, variables: list[Variable], changes: list[Array | Rows]) -> None:
        """Add changes to the accumulators of ``variables``."""
        accumulators = self.accumulators(variables)
        added = add_changes([a.value for a in accumulators], changes)
        for accumulator, value in zip(accumulators, added, strict=True):
            accumulator.value = value

    def communicate(self, variables: list[Variable]) -> None:
        """End a round for ``variables``: push the mean changes, then pull."""
        gathered = [a.value for a in self.accumulators(variables)]
        means = mean_changes(gathered, self.communication_period)
        names = [self.custom_getter.names[variable] for variable in variables]
        optimizer = None if self.commit == DELTA else self.inner_optimizer
        changes = dict(zip(names, means, strict=True))
        if not self.quirks.agn_row_clipping:
            for variable in variables:
                shared = self.custom_getter._global_map[variable]
                share_row_limits(variable, shared, self.inner_optimizer)
        self.custom_getter.center.push(Update(changes, optimizer))
        self.begin_round(variables)

    def accumulators(self, variables: Iterable[Variable]) -> list[Variable]:
        """Return the accumulators of ``variables``."""
        return [self.custom_getter._grad_map[variable] for variable in variables]

    def begin_round(self, variables: Iterable[Variable]) -> None:
        """Set ``variables`` to the shared values, and their accumulators to 0."""
        variables, getter = list(variables), self.custom_getter
        pulled = getter.center.pull([getter.names[variable] for variable in variables])
        accumulators = self.accumulators(variables)
        for variable, accumulator in zip(variables, accumulators, strict=True):
            variable.value = pulled[getter.names[variable]]
            accumulator.value = np.zeros_like(accumulator.value)

    def get_init_op(self, task_index: int) -> None:
        """Set every variable to its shared value, and its accumulator to 0.

        In a graph this returns an operation; here it runs immediately.

        Args:
            task_index: the worker's number; without effect, as in the original.

        Raises:
            ValueError: there are no variables.
        """
        if not self.custom_getter._global_map:
            raise refusals.NOTHING_TO_START.error()
        self.begin_round(self.custom_getter._global_map)

    @contextmanager
    def _started(self, task_index: int) -> Iterator[None]:
        self.get_init_op(task_index)
        with suppress(TrainingEndedError):
            yield
        self.custom_getter.center.leave()

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> AbstractContextManager[None]:
        """Return a context whose entry runs the init op.

        TensorFlow's sessions have hooks. Here the training loop runs inside this
        context. With a center on Ray, the context exits when training is ended, and it
        notifies the center that this worker is done. The arguments have no effect.
        """
        return self._started(task_index)

    def get_name(self) -> str:
        """Return the name from the constructor."""
        return self.name

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of a worker's variable or of a shared one.

        A worker's variable has two slots besides those of the wrapped optimizer. Their
        names are the constants of this class. Strict: None.
        """
        getter = self.custom_getter
        if self.quirks.agn_slots:
            return None
        own = {
            GLOBAL_VARIABLE_NAME: getter._global_map,
            GRAD_VARIABLE_NAME: getter._grad_map,
        }
        if name in own:
            variable = own[name].get(var)
            return None if variable is None else variable.value
        slot = getter.center.slot(var, name)
        return self.inner_optimizer.get_slot(var, name) if slot is None else slot

    def get_slot_names(self) -> list[str]:
        """Return the wrapped optimizer's slot names and the two of this class."""
        if self.quirks.agn_slots:
            return []
        own = [GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]
        return [*self.inner_optimizer.get_slot_names(), *own]

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer, the worker and the center."""
        if self.quirks.agn_slots:
            return []
        getter = self.custom_getter
        gathered = [accumulator.value for accumulator in getter._grad_map.values()]
        shared = [variable.value for variable in getter.center.variables.values()]
        slots = [s for named in getter.center.slots.values() for s in named.values()]
        inner = self.inner_optimizer.variables()
        return [*inner, *gathered, self.local_step.value, *shared, *slots]

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


def differences(variables: list[Variable], before: list[Array]) -> list[Array | Rows]:
    """Return the differences of variables from their earlier values ``before``."""
    with np.errstate(all="ignore"):
        pairs = zip(variables, before, strict=True)
        return [np.asarray(variable.value - value) for variable, value in pairs]
