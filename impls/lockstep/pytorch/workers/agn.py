"""Accumulated gradient normalization for asynchronous workers, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.nouns import PYTORCH
from lockstep.messages.step import numbers as tags
from lockstep.messages.workers import agn as words
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import DELTA, GRADIENT
from lockstep.messages.workers.center import Update
from lockstep.pytorch.base.fused_step import overwrites_gradients
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.clipping.variable_clipping import remove_limits
from lockstep.pytorch.tensors.foreach import subtract
from lockstep.pytorch.tensors.rounding import plain
from lockstep.pytorch.workers.accumulate import add_changes, is_due, mean_changes
from lockstep.pytorch.workers.center import AGNCustomGetter, powers
from lockstep.pytorch.workers.checkpoint import (
    ADDS_CHANGES,
    LOCAL_STEP,
    OWN,
    PERIOD,
    add_numbers,
    check_own,
    join_state,
    load_center,
    shown,
    split_state,
)
from lockstep.pytorch.workers.sharing import SharingWrapper
from lockstep.quirks import quirks_of

__all__ = ["AGNOptimizer"]


@documented
class AGNOptimizer(SharingWrapper):
    """...

    Here a step counts once, whatever the number of groups. A copy of ``optimizer``
    applies a to c, with the state of c and this worker's hyper-parameters.

    Args:
        optimizer: any optimizer of torch for dense gradients, a wrapper included; its
            groups contain the parameters that were passed to the getter.
        strict: reproduce the original with its quirks: local and shared updates of a
            TF1 optimizer share one pair of powers of beta (torch's own optimizers still
            count steps for each parameter), pairs from a one-shot iterator are refused,
            arguments are not checked, ``get_slot`` returns None, ``variables()`` is
            empty, and row clipping inside does not clip shared rows.

    Raises:
        ...
        ValueError: ``optimizer`` trains masters, or needs its closure several times per
            step (LBFGS), or its groups differ from those of the other workers.

    ``state_dict`` contains the accumulators, the local step, the shared weights and
    their state. With a center on Ray it contains only the worker's part, because such a
    center saves itself. The worker's weights are saved with the model.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> getter = AGNCustomGetter("cpu")
        >>> sgd = torch.optim.SGD(getter([weight]), lr=0.5)
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> with worker.make_session_run_hook(is_chief=True, task_index=0):
        ...     for gradient in (1.0, 0.5):
        ...         worker.apply_gradients([(torch.tensor([gradient]), weight)])
        ...         print(weight.item(), worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    _takes_shards = False
    _ended_round = False
    _followed = 0

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
        words.check_optimizer(optimizer, Optimizer, PYTORCH)
        if not isinstance(custom_getter, AGNCustomGetter):
            raise refusals.NOT_A_GETTER.error(got=type(custom_getter).__name__)
        unchecked = quirks_of(strict).agn_workers
        words.check_arguments(num_worker, communication_period, commit, unchecked)
        super().__init__(optimizer)
        self.custom_getter = custom_getter
        self.num_worker = num_worker
        self.name = name
        self.commit = commit
        self.strict = strict
        self.stepped = False
        self.last_step: StepReport = NO_STEP
        self._follow(0, plain(communication_period))

    def _follow(self, local_step: int, period: int) -> None:
        """Update the center's optimizer to match ours, and store our numbers."""
        center, known = self.custom_getter.center, self.custom_getter._global_map
        with center.lock:
            center.follow(self.inner_optimizer, known)
            if self._quirks.agn_row_clipping:
                remove_limits(center.optimizer)
            center.begin(self.commit)
            self._followed = len(known)
            numbers = self.numbers(local_step, period)
            add_numbers(self.param_groups, center, numbers)

    def numbers(self, local_step: int, period: int) -> dict[str, Any]:
        """Return the numbers of a worker that each group stores."""
        adds = self.commit == DELTA
        return {LOCAL_STEP: local_step, PERIOD: period, ADDS_CHANGES: adds}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group here and at the center; the getter must know its parameters."""
        super().add_param_group(param_group)
        self._follow(self.local_step, self.communication_period)

    @property
    def local_step(self) -> int:
        """The number of the worker's steps; the groups store it, for checkpoints."""
        return int(self.param_groups[0][LOCAL_STEP])

    @property
    def communication_period(self) -> int:
        """Local steps between two pushes; stored in the groups and loaded with them."""
        return self.param_groups[0][PERIOD]

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state, together with ours and the center's.

        While the wrapped optimizer's state is empty before the first step, ours is not
        added, because checkpoints recognize a new optimizer by its empty state. Entries
        can be read here, but not created.
        """
        state = self.inner_optimizer.state
        return shown(state, self.custom_getter) if state or self.stepped else state

    @state.setter
    def state(self, value: Any) -> None:
        self.inner_optimizer.state = value

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one local step with these gradients; at the end of a round, push.

        ``global_step`` counts the rounds of all workers that share it.

        Raises:
            KeyError: a parameter was not passed to the getter.
        """
        words.refuse_iterator(grads_and_vars, self._quirks.agn_iterator)
        pairs = as_pairs(grads_and_vars, words.WRAPPER)
        self._require_known(p for _, p in pairs if isinstance(p, Tensor))
        super().apply_gradients(pairs, global_step, name)

    def step_inner(self) -> None:
        """Take the local step and accumulate; if a round ends, communicate."""
        everything = named_parameters(self)
        present = [p for p in everything if p.grad is not None]
        if not present or self._only_wants_state(present):
            self.inner_optimizer.step()
            self.stepped |= bool(present)
            if not present:
                self.note_no_gradients()
            return
        self._require_known(present)
        before = self._before_step(present)
        self.inner_optimizer.step()
        inner = getattr(self.inner_optimizer, "last_step", None)
        with torch.no_grad():
            self._gather(present, before)
        self.stepped = True
        # The step is counted once; every group stores the same number.
        counted = self.local_step + 1
        for group in self.param_groups:
            group[LOCAL_STEP] = counted
        self._ended_round = is_due(self.local_step, self.communication_period)
        if self._ended_round:
            self.communicate(present)
        absent = [p.grad is None for p in everything]
        names, period = list(everything.values()), self.communication_period
        self.last_step = words.report(inner, names, absent, self.local_step, period)

    def note_no_gradients(self) -> None:
        """Record a step without gradients: see the base class."""
        self._ended_round, self.last_step = False, NO_GRADIENTS
        super().note_no_gradients()

    def _before_step(self, present: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of what the local step overwrites: the weights, or gradients.

        The list is empty if the step leaves the gradients as they are.
        """
        if self.commit == DELTA:
            return [parameter.detach().clone() for parameter in present]
        if any(map(overwrites_gradients, self.param_groups)):
            return [parameter.grad.detach().clone() for parameter in present]
        return []

    def _gather(self, present: Sequence[Tensor], before: Sequence[Tensor]) -> None:
        """Add the gradients, or the changes of the weights, to the accumulators."""
        changes = before or [parameter.grad for parameter in present]
        if self.commit == DELTA:
            changes = subtract([p.detach() for p in present], before)
        add_changes(self._accumulators(present), changes)

    @torch.no_grad()
    def communicate(self, parameters: Sequence[Tensor]) -> None:
        """End a round for ``parameters``: push the mean changes, then pull."""
        getter, period = self.custom_getter, self.communication_period
        if self._followed != len(getter._global_map):
            # Parameters that were frozen at first have been passed to the getter since.
            self._follow(self.local_step, period)
        means = mean_changes(self._accumulators(parameters), period)
        names = [getter.names[parameter] for parameter in parameters]
        options = None if self.commit == DELTA else self._options()
        getter.center.push(Update(dict(zip(names, means, strict=True)), options))
        sends_powers = self._quirks.agn_powers and self.commit == GRADIENT
        if sends_powers and powers(self):
            base_of(self).advance_shared()
        self.begin_round(parameters)

    def _options(self) -> list[dict[str, Any]]:
        """Return each group's hyper-parameters; strict: with the powers of beta."""
        left_out = {"params", "param_names"}
        left_out |= set() if self._quirks.agn_powers else powers(self).keys()
        return [
            {
                key: value
                for key, value in group.items()
                if key not in left_out and not key.startswith(OWN)
            }
            for group in self.param_groups
        ]

    def took_step(self) -> bool:
        """Whether the last step ended a round, which ``global_step`` counts."""
        return self._ended_round

    def step_numbers(self) -> dict[str, float]:
        """Return the last step's numbers and the local step: see the base class."""
        round_ended = int(self._ended_round)
        own = {tags.LOCAL_STEP: self.local_step, tags.ENDED_ROUND: round_ended}
        shared = self.custom_getter.center.numbers()
        return {**super().step_numbers(), **own, **shared}

    def _save_inner(self) -> dict[str, Any]:
        """Return the states of the wrapped optimizer, the worker and the center."""
        return join_state(super()._save_inner(), self)

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise for the state of another stack, or of another ``commit``."""
        super()._check_saved(state_dict)
        check_own(*split_state(state_dict), self)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; the state of a bare optimizer changes only that one."""
        bare, own = split_state(state_dict)
        counts = {LOCAL_STEP: self.local_step, PERIOD: self.communication_period}
        super()._load_inner(bare)
        load_center(own, self)
        counts |= {k: self.param_groups[0].get(k, counts[k]) for k in counts}
        self._follow(counts[LOCAL_STEP], counts[PERIOD])
        self.stepped |= bool(own["state"])
