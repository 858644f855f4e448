"""What NovoGrad refuses under strict, where the original fails."""

from __future__ import annotations

from typing import Any

from lockstep.messages.optimizers import refusals

__all__ = [
    "NAME",
    "require_all_present",
    "require_float32",
    "require_list",
]

NAME = "NovoGrad"


def require_list(grads_and_vars: Any) -> None:
    """Raise unless the pairs are in a list: the original writes into it.

    Quirk ``novograd_limits``.
    """
    if not isinstance(grads_and_vars, list):
        raise refusals.PAIRS_NOT_LISTED.error(got=type(grads_and_vars).__name__)


def require_all_present(absent: list[str]) -> None:
    """Raise if the gradient of any variable, here by name, is absent.

    Quirk ``novograd_limits``.
    """
    if absent:
        raise refusals.ABSENT_GRADIENT.error(names=", ".join(absent))


def require_float32(name: str, dtype: str) -> None:
    """Raise unless a variable is float32: the original's norm is, and nothing casts.

    Quirk ``novograd_limits``.
    """
    if dtype != "float32":
        raise refusals.NOT_FLOAT32.error(name=name, got=dtype)
