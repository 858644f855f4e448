"""The state of an optimizer that trains masters: live, saved and loaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.messages import pytorch as torch_host
from lockstep.messages.masters import mixed_precision as words
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.masters.checkpoint import (
    MastersInState,
    as_module,
    refuse_model_of_weights,
    saved_masters,
    with_masters,
    without_masters,
)
from lockstep.pytorch.masters.unscaling import MasterUnscaling

__all__ = ["SavedMasters"]


class SavedMasters(MasterUnscaling):
    """A wrapper whose state contains the masters, under "master"."""

    keeps_masters = True

    _beside: MastersInState | None = None

    @property
    def state(self) -> Any:
        """The ``state`` of the wrapped optimizer itself, which has the masters'."""
        refuse_model_of_weights(self.copies.masters if "copies" in vars(self) else ())
        return self.inner_optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.inner_optimizer.state = value

    def as_module(self, model: nn.Module) -> nn.Module:
        """Return a module with the model's parameter names and the masters.

        Pass it to ``get_optimizer_state_dict`` and ``set_optimizer_state_dict`` of
        ``torch.distributed.checkpoint``, which look up parameters in it.
        """
        if not isinstance(model, nn.Module):
            raise torch_host.NOT_A_MODULE.error(
                owner=words.WRAPPER, got=type(model).__name__
            )
        return as_module(model, self.copies.masters)

    @property
    def _in_state(self) -> MastersInState:
        """The masters in the optimizer's state; a copy makes its own."""
        if self._beside is None:
            self._beside = MastersInState(base_of(self), self.copies.masters)
        return self._beside

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state with the masters and the scale."""
        if self.copies.are_half():
            self.copies.copy_changes()
            if not self._quirks.masters_slots:
                self.copies.copy_hidden_changes()
        saved = super()._save_inner()
        return with_masters(saved, named_parameters(self), self.copies.masters)

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise if the state is of other wrappers, or without these masters."""
        self.copies.require_half()
        super()._check_saved(state_dict)
        self._saved_masters(state_dict)

    def _saved_masters(self, state_dict: dict[str, Any]) -> dict[Tensor, Tensor]:
        """Return master -> its saved value; raise if one is missing.

        Frozen masters may be missing.
        """
        return saved_masters(
            state_dict, named_parameters(self), set(self.copies.masters.values())
        )

    def _of_inner(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state without masters, as the wrapped optimizer saves it."""
        return without_masters(state_dict)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load the masters and the scale, then the state of the wrapped optimizer.

        The weights become the rounded masters. Frozen masters that were not saved are
        those of the present weights.
        """
        self.copies.copy_changes()
        names, saved = named_parameters(self), self._saved_masters(state_dict)
        super()._load_inner(self._of_inner(state_dict))
        with torch.no_grad():
            for master, value in saved.items():
                master.copy_(value)
        self._in_state.add(p for p in names if self.state.get(p))
        self.copies.write_weights(self.copies.buffers())
