"""Checks of a saved training step, made before any of it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.messages.step import refusals
from lockstep.messages.step.training_step import (
    OWNER,
)
from lockstep.pytorch.base.foreign_state import is_state
from lockstep.pytorch.base.trial_step import check_bare
from lockstep.pytorch.base.wrapper import OptimizerWrapper

__all__ = ["check_saved"]

OWN = ("optimizer", "global_step", "micro_step", "iter_size", "accumulators")
"""The keys of a step's ``state_dict``."""


def check_saved(step: Any, state_dict: Any) -> list[Tensor | None]:
    """Check a saved step, and return its sums on the devices of the parameters.

    Raises:
        ValueError: the state was not saved by such a step.
    """
    if not isinstance(state_dict, Mapping) or set(state_dict) != set(OWN):
        is_mapping = isinstance(state_dict, Mapping)
        got = ", ".join(map(str, state_dict)) if is_mapping else repr(state_dict)
        raise refusals.OTHER_STATE.error(got=got or "nothing")
    for name in ("global_step", "micro_step", "iter_size"):
        count = state_dict[name]
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise refusals.NOT_A_COUNT.error(name=name, got=count)
    # A sum continues only with the same ``iter_size``, because its gradients were
    # divided by it. With a flag, it may have more micro-batches than ``iter_size``.
    ours = step.settings.iter_size if step.settings.accumulates else 1
    if state_dict["micro_step"] and (ours == 1 or state_dict["iter_size"] != ours):
        raise refusals.OTHER_ITER_SIZE.error(
            micro_step=state_dict["micro_step"], iter_size=state_dict["iter_size"]
        )
    sums = checked_sums(state_dict["accumulators"], step.parameters)
    check_optimizer(step.optimizer, state_dict["optimizer"])
    return sums


def checked_sums(saved: Any, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return copies of sums, each on the device of its parameter."""
    if not isinstance(saved, list) or not all(
        total is None or isinstance(total, Tensor) for total in saved
    ):
        raise refusals.OTHER_STATE.error(got=f"accumulators {saved!r}")
    shapes = [None if total is None else tuple(total.shape) for total in saved]
    fits = len(shapes) == len(parameters) and all(
        shape in (None, tuple(p.shape))
        for shape, p in zip(shapes, parameters, strict=True)
    )
    if not fits:
        raise refusals.OTHER_STATE.error(got=f"sums of shapes {shapes}")
    return [
        None if total is None else total.to(p.device, copy=True)
        for total, p in zip(saved, parameters, strict=True)
    ]


def check_optimizer(optimizer: Optimizer, saved: Any) -> None:
    """Raise if the saved optimizer has another update rule or other parameters."""
    if not is_state(saved):
        raise refusals.OTHER_STATE.error(got=f"the optimizer {saved!r:.60}")
    if isinstance(optimizer, OptimizerWrapper):
        optimizer._check_saved(dict(saved))
    else:
        check_bare(OWNER, saved, optimizer)
