"""Checks of losses, lists of variables, and options of ``compute_gradients``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lockstep.errors import VarListError, with_article
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.messages.base import refusals

__all__ = [
    "check_count",
    "check_no_arguments",
    "check_options",
    "not_listed",
    "refuse_text",
]


def check_no_arguments(loss: Callable[[], Any], owner: str) -> None:
    """Raise for a loss that needs arguments, because it is called without any."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return
    try:
        signature.bind()
    except TypeError as error:
        raise refusals.LOSS_WITH_ARGUMENTS.error(
            owner=owner, signature=signature
        ) from error


def refuse_text(grad_loss: Any, owner: str) -> None:
    """Raise for a text as the upstream gradient; frameworks would accept it."""
    if isinstance(grad_loss, str | bytes):
        raise refusals.GRAD_LOSS_IS_TEXT.error(owner=owner, got=grad_loss)


def not_listed(owner: str, entry: Any) -> VarListError:
    """Build the error for ``var_list``, or an entry of it, that is no variable."""
    shown = entry is None or isinstance(entry, bool | int | float | str)
    got = repr(entry) if shown else with_article(type(entry).__name__)
    return refusals.NOT_LISTED.error(owner=owner, got=got)


def check_count(owner: str, expected: int, gradients: int) -> None:
    """Raise unless a loss that returns gradients returns one for each variable."""
    if gradients != expected:
        raise refusals.OTHER_NUMBER_OF_GRADIENTS.error(
            owner=owner, expected=expected, got=gradients
        )


def check_options(
    owner: str, gate_gradients: Any, aggregation_method: Any = None
) -> None:
    """Raise unless the options for graphs have values that TensorFlow allows."""
    if gate_gradients not in (GATE_NONE, GATE_OP, GATE_GRAPH):
        raise refusals.BAD_GATE.error(owner=owner, got=gate_gradients)
    if aggregation_method not in (None, 0, 1, 2):
        raise refusals.BAD_AGGREGATION.error(owner=owner, got=aggregation_method)
