"""A wrapper that keeps the numbers of a loss scale in its first group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.pytorch.loss_scale import NUMBERS, LossScale
from lockstep.pytorch.wrapper import OptimizerWrapper

__all__ = ["SKIPS", "ScaleKeeper"]

SKIPS = "loss_scale_skips"
"""The key of the number of steps skipped in a row."""


class ScaleKeeper(OptimizerWrapper):
    """What a loss scale counts is saved and loaded with the wrapped optimizer.

    It is in ``param_groups[0]``, since that, unlike ``state``, is never cast to the
    dtype of a parameter, and is in a distributed checkpoint too. ``capturable``: as 0-d
    tensors beside the parameters, moved in place; otherwise as plain numbers. Numbers
    that were loaded become what they are here.
    """

    def __init__(
        self,
        opt: Optimizer,
        scale: LossScale,
        clip_norm: float | None,
        capturable: bool,
    ) -> None:
        super().__init__(opt)
        self.clip_norm = clip_norm
        self.capturable = capturable
        self.chosen_scale = scale
        group = self.param_groups[0]
        group.update({k: scale.numbers[k] for k in NUMBERS if k in scale.numbers})
        group[SKIPS] = 0
        scale.numbers = group

    @property
    def scale_object(self) -> LossScale:
        """The loss scale itself; its numbers live in ``param_groups[0]``."""
        scale, group = self.chosen_scale, self.param_groups[0]
        if scale.numbers is not group:
            for key in (*NUMBERS, SKIPS):
                if key in scale.numbers:
                    group.setdefault(key, scale.numbers[key])
            scale.numbers = group
        self._settle(group)
        return scale

    def _settle(self, group: dict[str, Any]) -> None:
        """Turn the numbers into plain ones, or tensors, if they are not yet."""
        device = group["params"][0].device if self.capturable else None
        skips = group[SKIPS]
        if (skips.device if isinstance(skips, Tensor) else None) != device:
            for key in (*NUMBERS, SKIPS):
                if key in group:
                    group[key] = number_on(device, group[key])

    @property
    def loss_scale(self) -> Tensor:
        """The current loss scale: a 0-d float32 tensor."""
        return self.scale_object()

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, the scale in its first group."""
        numbers = self.scale_object.numbers
        state_dict = super().state_dict()
        # What is moved in place must not move in what was saved.
        for key in (*NUMBERS, SKIPS):
            if isinstance(numbers.get(key), Tensor):
                state_dict["param_groups"][0][key] = numbers[key].clone()
        return state_dict

    def variables(self) -> list[Tensor]:
        """Return the wrapped optimizer's state, then the numbers of a dynamic scale."""
        numbers = self.scale_object.numbers
        own = [numbers[key] for key in NUMBERS if key in numbers]
        return [*super().variables(), *map(torch.as_tensor, own)]


def number_on(device: torch.device | None, number: Any) -> Any:
    """Return a number as a 0-d tensor on ``device``; None: as a plain number."""
    if device is None:
        return number.item() if isinstance(number, Tensor) else number
    if isinstance(number, Tensor):
        return number.to(device)
    dtype = torch.float32 if isinstance(number, float) else torch.int64
    return torch.full((), number, dtype=dtype, device=device)
