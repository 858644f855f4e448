"""What is differentiated: a loss without arguments, and a list of variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lockstep.spec.errors import (
    DtypeError,
    LossNotCallableError,
    VarListError,
    sentence,
)

__all__ = ["check_no_arguments", "no_loss", "not_listed", "refuse_text"]


def check_no_arguments(loss: Callable[[], Any], owner: str) -> None:
    """Raise for a loss that needs arguments, which nobody here has."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return
    try:
        signature.bind()
    except TypeError as error:
        expected, remedy = "a callable without arguments", "write lambda: loss(batch)"
        got = f"one with {signature}"
        text = sentence(f"{owner}: loss", expected, got, remedy)
        raise LossNotCallableError(text) from error


def no_loss(owner: str, got: Any) -> LossNotCallableError:
    """What was computed, or given to be scaled, is no loss."""
    expected, remedy = "a 0-d tensor", "return the loss from its function"
    return LossNotCallableError(sentence(f"{owner}: loss", expected, repr(got), remedy))


def refuse_text(grad_loss: Any, owner: str) -> None:
    """Raise for a text as the upstream gradient, which a framework makes a tensor."""
    if isinstance(grad_loss, str | bytes):
        expected, remedy = "a number or a tensor", "leave it out for 1"
        subject, got = f"{owner}: grad_loss", repr(grad_loss)
        raise DtypeError(sentence(subject, expected, got, remedy))


def not_listed(owner: str, got: Any) -> VarListError:
    """An entry of a list of variables that is none."""
    remedy = "list those that are to be trained"
    return VarListError(
        sentence(f"{owner}: var_list", "a list of variables", repr(got), remedy)
    )
