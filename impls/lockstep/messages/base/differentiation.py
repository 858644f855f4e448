"""What is differentiated: a loss without arguments, and a list of variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.messages.errors import (
    DtypeError,
    LossNotCallableError,
    OutOfRangeError,
    UnsupportedError,
    VarListError,
    sentence,
)

__all__ = [
    "check_count",
    "check_no_arguments",
    "check_options",
    "loss_not_callable",
    "no_loss",
    "no_var_list",
    "not_listed",
    "refuse_text",
]


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


def loss_not_callable(owner: str, got: str) -> LossNotCallableError:
    """Build the error for a loss that cannot be called."""
    expected = "a callable without arguments"
    remedy = "wrap it, as in compute_gradients(lambda: loss(w), [w])"
    return LossNotCallableError(sentence(f"{owner}: loss", expected, got, remedy))


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


def not_listed(owner: str, entry: Any) -> VarListError:
    """Build the error for ``var_list``, or an entry of it, that is no variable."""
    shown = entry is None or isinstance(entry, bool | int | float | str)
    got = repr(entry) if shown else f"a {type(entry).__name__}"
    remedy = "list those that are to be trained"
    return VarListError(
        sentence(f"{owner}: var_list", "a list of variables", got, remedy)
    )


def no_var_list(owner: str) -> VarListError:
    """Build the error for ``var_list=None`` where nobody knows the variables."""
    expected, remedy = "a list of variables", "NumPy finds none by itself: list them"
    return VarListError(sentence(f"{owner}: var_list", expected, "None", remedy))


def check_count(owner: str, expected: int, gradients: int) -> None:
    """Raise unless a loss that returns gradients returns one for each variable."""
    if gradients != expected:
        wanted = f"{expected} gradients, one for each variable"
        remedy = "return them in the order of var_list, None where there is none"
        text = sentence(f"{owner}: loss", wanted, str(gradients), remedy)
        raise UnsupportedError(text)


def check_options(
    owner: str, gate_gradients: Any, aggregation_method: Any = None
) -> None:
    """Raise unless options that act in a graph alone are those of TensorFlow."""
    if gate_gradients not in (GATE_NONE, GATE_OP, GATE_GRAPH):
        subject, expected = (
            f"{owner}: gate_gradients",
            "GATE_NONE, GATE_OP or GATE_GRAPH",
        )
        got, remedy = repr(gate_gradients), "leave it out for GATE_OP"
        raise OutOfRangeError(sentence(subject, expected, got, remedy))
    if aggregation_method not in (None, 0, 1, 2):
        subject, expected = f"{owner}: aggregation_method", "None, 0, 1 or 2"
        got, remedy = repr(aggregation_method), "leave it out for None"
        raise OutOfRangeError(sentence(subject, expected, got, remedy))
