"""What NovoGrad refuses under strict, where the original fails."""

from __future__ import annotations

from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    Refusal,
)

__all__ = [
    "NAME",
    "require_all_present",
    "require_float32",
    "require_list",
]

NAME = "NovoGrad"


PAIRS_NOT_LISTED = Refusal(
    MalformedPairsError,
    "NovoGrad: expected a list of (gradient, variable), as the original, got {got}; "
    "leave strict off, or pass list(pairs).",
)
ABSENT_GRADIENT = Refusal(
    NoGradientsError,
    "NovoGrad: expected a gradient for every variable, as the original, "
    "got None for {names}; leave strict off, or leave such variables out.",
)
NOT_FLOAT32 = Refusal(
    DtypeError,
    "NovoGrad: expected float32 for {name!r}, as the original, got {got}; "
    "leave strict off, or train float32 masters.",
)
# quirks.novograd_limits
DECAY_AS_TENSOR = Refusal(
    DtypeError,
    "NovoGrad: weight_decay: expected a number, as the original, got a tensor; "
    "leave strict off, or give a number.",
)


def require_list(grads_and_vars: Any) -> None:
    """Raise unless the pairs are in a list: the original writes into it.

    Quirk ``novograd_limits``.
    """
    if not isinstance(grads_and_vars, list):
        raise PAIRS_NOT_LISTED.error(got=type(grads_and_vars).__name__)


def require_all_present(absent: list[str]) -> None:
    """Raise if the gradient of any variable, here by name, is absent.

    Quirk ``novograd_limits``.
    """
    if absent:
        raise ABSENT_GRADIENT.error(names=", ".join(absent))


def require_float32(name: str, dtype: str) -> None:
    """Raise unless a variable is float32: the original's norm is, and nothing casts.

    Quirk ``novograd_limits``.
    """
    if dtype != "float32":
        raise NOT_FLOAT32.error(name=name, got=dtype)
