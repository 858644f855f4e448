"""Strict checks of NovoGrad, for arguments with which the original fails."""

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
    """Raise unless the pairs are in a list, because the original writes into it.

    Quirk ``novograd_limits``.
    """
    if not isinstance(grads_and_vars, list):
        raise refusals.PAIRS_NOT_LISTED.error(got=type(grads_and_vars).__name__)


def require_all_present(absent: list[str]) -> None:
    """Raise if a gradient is absent; ``absent``: the names of such variables.

    Quirk ``novograd_limits``.
    """
    if absent:
        raise refusals.ABSENT_GRADIENT.error(names=", ".join(absent))


def require_float32(name: str, dtype: str) -> None:
    """Raise unless a variable is float32, the dtype of the original's norm.

    Quirk ``novograd_limits``.
    """
    if dtype != "float32":
        raise refusals.NOT_FLOAT32.error(name=name, got=dtype)
