"""Base of a worker's wrapper: access to its own and the shared state as slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property

import torch
from torch import Tensor

from lockstep.messages.ray import TrainingEndedError
from lockstep.messages.workers import refusals
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.train_v1 import TrainV1
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.tensors.foreach import copy, zero
from lockstep.pytorch.workers.center import AGNCustomGetter
from lockstep.quirks import Quirks, quirks_of

__all__ = ["SharingWrapper"]


class SharingWrapper(OptimizerWrapper):
    """A wrapper whose parameters have shared weights and accumulators.

    Attributes:
        custom_getter: the getter that created the shared weights and the accumulators.
        name: the name that ``get_name`` returns.
        strict: whether slots are hidden, as in the original.
    """

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

    custom_getter: AGNCustomGetter
    name: str
    strict: bool

    @cached_property
    def _quirks(self) -> Quirks:
        """The quirks of the original that are on."""
        return quirks_of(self.strict)

    def _require_known(self, parameters: Iterable[Tensor]) -> None:
        """Raise for a parameter without a shared weight."""
        for parameter in parameters:
            if parameter not in self.custom_getter._global_map:
                shown = f"another of shape {list(parameter.shape)}"
                name = named_parameters(self).get(parameter, shown)
                raise refusals.NOT_FROM_GETTER.error(name=name)

    def _accumulators(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        return [self.custom_getter._grad_map[parameter] for parameter in parameters]

    @torch.no_grad()
    def begin_round(self, parameters: Iterable[Tensor]) -> None:
        """Set ``parameters`` to the shared weights, and their accumulators to 0."""
        parameters, names = list(parameters), self.custom_getter.names
        pulled = self.custom_getter.center.pull([names[p] for p in parameters])
        copy([p.detach() for p in parameters], [pulled[names[p]] for p in parameters])
        zero(self._accumulators(parameters))

    def get_init_op(self, task_index: int) -> None:
        """Set every parameter to its shared weight, and its accumulator to 0.

        TensorFlow returns an operation; here it runs immediately.

        Args:
            task_index: without effect, as in the original.

        Raises:
            ValueError: no parameters were passed to the getter.
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
        """Return a context that runs the init op on entry.

        Run the training loop inside it. With a center on Ray, the context exits when
        training is ended, and it notifies the center that this worker is done. The
        arguments have no effect.
        """
        return self._started(task_index)

    def get_name(self) -> str:
        """Return the constructor's ``name``."""
        return self.name

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return a slot of a worker's parameter or of a shared weight.

        Besides the wrapped optimizer's slots there are two, named by the constants of
        this class. Strict: None.
        """
        if self._quirks.agn_slots:
            return None
        getter = self.custom_getter
        if name == GLOBAL_VARIABLE_NAME:
            return getter._global_map.get(var)
        if name == GRAD_VARIABLE_NAME:
            return getter._grad_map.get(var)
        shared = getter.center.slot(var, name)
        if shared is not None:
            return shared
        return TrainV1.get_slot(self.inner_optimizer, var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of all slots, including the two of this class."""
        if self._quirks.agn_slots:
            return []
        inner = TrainV1.get_slot_names(self.inner_optimizer)
        return [*inner, GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]

    def variables(self) -> list[Tensor]:
        """Return the state of the wrapped optimizer, of the worker and of the center.

        Strict: an empty list.
        """
        if self._quirks.agn_slots:
            return []
        getter = self.custom_getter
        center = getter.center
        shared = [*center.parameters.values(), *TrainV1.variables(center.optimizer)]
        inner = TrainV1.variables(self.inner_optimizer)
        return [*inner, *getter._grad_map.values(), *shared]
