"""The words of LARC: its parameters, and what it cannot work with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lockstep.messages.errors import (
    ClipAndLarcError,
    DtypeError,
    OutOfRangeError,
    UnsupportedError,
    sentence,
    unknown_name,
)
from lockstep.messages.ranges import CHOOSE, is_positive, require
from lockstep.quirks import quirks_of

__all__ = [
    "LARC",
    "MODES",
    "LarcPolicy",
    "absent_gradient",
    "bad_names",
    "bad_rate",
    "check_rate",
    "check_rate_dtype",
    "clip_and_larc",
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
"""Names as they are given -> names in the policy."""


class LarcPolicy(NamedTuple):
    """Parameters of LARC; the numbers are rounded to float32 where they are used.

    Attributes:
        eta: how large an update may be beside its weight, as a ratio of their norms.
        mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio.
        epsilon: added to the gradient's norm.
        guarded: the ratio is 1 where a norm is 0 (strict: not so).
    """

    eta: float
    mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7
    guarded: bool = True


def larc_policy(larc_params: Mapping[str, Any], strict: bool = False) -> LarcPolicy:
    """Check ``larc_params`` and return the policy.

    ``larc_eta`` is required; ``larc_mode``, ``min_update`` and ``epsilon`` may be left
    out. Strict: types and names are checked, ranges are not.

    Raises:
        OutOfRangeError: a ValueError; ``larc_eta`` is missing, a number is no float or
            out of its range.
        UnknownNameError: a ValueError; another name or mode.
    """
    if not isinstance(larc_params, Mapping):
        remedy = "write {'larc_eta': 0.001}"
        expected, got = "a dict of parameters", repr(larc_params)
        raise OutOfRangeError(sentence(f"{LARC}: larc_params", expected, got, remedy))
    for name in larc_params:
        if name not in PARAMETERS:
            raise unknown_name(f"{LARC}: larc_params", name, PARAMETERS)
    if "larc_eta" not in larc_params:
        remedy = "give the ratio of update to weight, such as 0.001"
        got = ", ".join(larc_params) or "an empty dict"
        subject, expected = f"{LARC}: larc_params", "an entry 'larc_eta'"
        raise OutOfRangeError(sentence(subject, expected, got, remedy))
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
        text = sentence(f"{LARC}: {name}", "of type float", repr(value), remedy)
        raise OutOfRangeError(text)


def _checked(policy: LarcPolicy) -> LarcPolicy:
    fine = is_positive(policy.eta)
    require(LARC, "larc_eta", policy.eta, fine, "> 0, finite", CHOOSE)
    for name in ("min_update", "epsilon"):
        value = getattr(policy, name)
        require(LARC, name, value, 0 <= value < math.inf, ">= 0, finite")
    return policy


def absent_gradient(owner: str, name: str) -> UnsupportedError:
    """Strict: an absent gradient, whose norm the original cannot take.

    # Quirk: docs/differences.md#clip-absent
    """
    remedy = "the original cannot leave it out; leave strict off"
    expected = f"a gradient for {name!r}"
    return UnsupportedError(sentence(owner, expected, "None", remedy))


def check_rate(lr: Any) -> None:
    """Raise for a Python number that is no rate; tensors are not looked at."""
    if isinstance(lr, int | float) and not 0 <= lr < math.inf:
        raise bad_rate(repr(lr), "a finite number >= 0")


def check_rate_dtype(dtype: str) -> None:
    """Strict: raise unless a rate that is a tensor is float32."""
    if dtype != "float32":
        remedy = "cast it, or leave strict off"
        expected = "lr to be a number or a float32 tensor"
        raise DtypeError(sentence(LARC, expected, dtype, remedy))


def bad_rate(got: str, expected: str = "a number or a 0-d tensor") -> OutOfRangeError:
    """Build the error for a rate that is not as ``expected``."""
    remedy = "pass the learning rate of this step"
    return OutOfRangeError(sentence(f"{LARC}: lr", expected, got, remedy))


def bad_names(expected: int, got: int) -> OutOfRangeError:
    """Build the error for names of which there are not as many as pairs."""
    remedy = "name every parameter, those without a gradient too"
    text = sentence("post_process_gradients: names", str(expected), str(got), remedy)
    return OutOfRangeError(text)


def clip_and_larc() -> ClipAndLarcError:
    """Build the error for a step that should clip and use LARC too."""
    expected, got = "clip_gradients or larc_params", "both"
    remedy = "leave one of them out"
    return ClipAndLarcError(sentence("optimize_loss", expected, got, remedy))
