"""What NovoGrad refuses under strict, where the original fails."""

from __future__ import annotations

from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    sentence,
)

__all__ = [
    "NAME",
    "decay_as_tensor",
    "require_all_present",
    "require_float32",
    "require_list",
]

NAME = "NovoGrad"

REMEDY = "leave strict off, or "


def require_list(grads_and_vars: Any) -> None:
    """Raise unless the pairs are in a list: the original writes into it.

    # Quirk: docs/differences.md#novograd-limits
    """
    if not isinstance(grads_and_vars, list):
        got, remedy = type(grads_and_vars).__name__, REMEDY + "pass list(pairs)"
        expected = "a list of (gradient, variable), as the original"
        raise MalformedPairsError(sentence(NAME, expected, got, remedy))


def require_all_present(absent: list[str]) -> None:
    """Raise if the gradient of any variable, here by name, is absent.

    # Quirk: docs/differences.md#novograd-limits
    """
    if absent:
        expected = "a gradient for every variable, as the original"
        remedy = REMEDY + "leave such variables out"
        got = f"None for {', '.join(absent)}"
        raise NoGradientsError(sentence(NAME, expected, got, remedy))


def require_float32(name: str, dtype: str) -> None:
    """Raise unless a variable is float32: the original's norm is, and nothing casts.

    # Quirk: docs/differences.md#novograd-limits
    """
    if dtype != "float32":
        expected = f"float32 for {name!r}, as the original"
        remedy = REMEDY + "train float32 masters"
        raise DtypeError(sentence(NAME, expected, dtype, remedy))


def decay_as_tensor() -> DtypeError:
    """Build the error for a decay that the original cannot compare with 0.

    # Quirk: docs/differences.md#novograd-limits
    """
    expected, got = "a number, as the original", "a tensor"
    remedy = REMEDY + "give a number"
    return DtypeError(sentence(f"{NAME}: weight_decay", expected, got, remedy))
