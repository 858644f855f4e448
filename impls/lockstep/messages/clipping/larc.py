"""Parameters of LARC, their checks and messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lockstep.checks import CHOOSE, is_positive, require
from lockstep.errors import (
    OutOfRangeError,
    unknown_name,
)
from lockstep.messages.clipping import refusals
from lockstep.quirks import quirks_of

__all__ = [
    "LARC",
    "MODES",
    "LarcPolicy",
    "bad_rate",
    "check_rate",
    "check_rate_dtype",
    "larc_policy",
]

LARC = "LARC"
MODES = ("clip", "scale")
PARAMETERS = {
    "larc_eta": "eta",
    "larc_mode": "mode",
    "min_update": "min_update",
    "epsilon": "epsilon",
}
"""Name in ``larc_params`` -> name in the policy."""


class LarcPolicy(NamedTuple):
    """Parameters of LARC; the numbers are rounded to float32 where they are used.

    Attributes:
        eta: the trust coefficient: the ratio of an update's norm to its weight's norm.
        mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio.
        epsilon: added to the gradient's norm.
        guarded: whether the ratio is 1 where a norm is 0; False under strict.
    """

    eta: float
    mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7
    guarded: bool = True


def larc_policy(larc_params: Mapping[str, Any], strict: bool = False) -> LarcPolicy:
    """Check ``larc_params`` and return the policy.

    ``larc_eta`` is required; ``larc_mode``, ``min_update`` and ``epsilon`` are
    optional. Strict: types and names are checked, ranges are not.

    Raises:
        OutOfRangeError: a ValueError; ``larc_eta`` is missing, or a number is no float
            or out of range.
        UnknownNameError: a ValueError; an unknown name or mode.
    """
    if not isinstance(larc_params, Mapping):
        raise refusals.PARAMS_NOT_A_DICT.error(got=larc_params)
    for name in larc_params:
        if name not in PARAMETERS:
            raise unknown_name(f"{LARC}: larc_params", name, PARAMETERS)
    if "larc_eta" not in larc_params:
        got = ", ".join(larc_params) or "an empty dict"
        raise refusals.MISSING_ETA.error(got=got)
    for name, value in larc_params.items():
        _check_type(name, value)
    named = {PARAMETERS[name]: value for name, value in larc_params.items()}
    quirks = quirks_of(strict)
    policy = LarcPolicy(**named, guarded=not quirks.larc_zero_norm)
    return policy if quirks.clip_limit else _checked(policy)


def _check_type(name: str, value: Any) -> None:
    if name == "larc_mode":
        if value not in MODES:
            raise unknown_name(f"{LARC}: larc_mode", value, MODES)
    elif not isinstance(value, float):
        remedy = f"write {value}.0" if type(value) is int else "write a Python float"
        raise refusals.PARAMETER_NOT_A_FLOAT.error(name=name, got=value, remedy=remedy)


def _checked(policy: LarcPolicy) -> LarcPolicy:
    fine = is_positive(policy.eta)
    require(LARC, "larc_eta", policy.eta, fine, "> 0, finite", CHOOSE)
    for name in ("min_update", "epsilon"):
        value = getattr(policy, name)
        require(LARC, name, value, 0 <= value < math.inf, ">= 0, finite")
    return policy


def check_rate(lr: Any) -> None:
    """Raise for a Python number that is no rate; tensors are not checked."""
    if isinstance(lr, int | float) and not 0 <= lr < math.inf:
        raise bad_rate(repr(lr), "a finite number >= 0")


def check_rate_dtype(dtype: str) -> None:
    """Strict: raise unless a rate that is a tensor is float32."""
    if dtype != "float32":
        raise refusals.RATE_DTYPE.error(got=dtype)


def bad_rate(got: str, expected: str = "a number or a 0-d tensor") -> OutOfRangeError:
    """Build the error for an invalid rate; ``expected`` describes a valid one."""
    return refusals.BAD_RATE.error(expected=expected, got=got)
