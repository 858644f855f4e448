"""Errors for what a wrapper cannot wrap."""

from __future__ import annotations

from typing import Any

from lockstep.errors import NotAnOptimizerError
from lockstep.interface import WRAPPERS
from lockstep.messages.base import refusals
from lockstep.messages.nouns import Nouns
from lockstep.messages.scaling import refusals as scaling_refusals
from lockstep.pipeline import stages_of

__all__ = ["not_an_optimizer", "refuse_second_scale"]


def not_an_optimizer(owner: str, opt: object, nouns: Nouns) -> NotAnOptimizerError:
    """Build the error for an ``opt`` that the wrapper ``owner`` cannot wrap."""
    wrapping = WRAPPERS[owner]
    got, remedy = type(opt).__name__, f"pass the optimizer {wrapping.optimizer}"
    if isinstance(opt, type):
        got, remedy = f"the class {opt.__name__}", "pass an instance"
    scales = "unscale" in wrapping.stages
    row = refusals.NOT_SCALABLE if scales else refusals.NOT_AN_OPTIMIZER
    return row.error(owner=owner, nouns=nouns, got=got, remedy=remedy)


def refuse_second_scale(owner: str, optimizer: Any) -> None:
    """Raise if a wrapper inside already scales the loss, at any depth.

    ``owner``: the wrapper that would scale the loss again.
    """
    if "unscale" in stages_of(optimizer):
        raise scaling_refusals.SCALED_TWICE.error(
            owner=owner, got=type(optimizer).__name__
        )
