"""LARC's parameters, the same on every backend: their names, defaults and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lockstep.checks import CHOOSE, require
from lockstep.errors import unknown_name

LARC, MODES = "LARC", ("clip", "scale")


class LarcPolicy(NamedTuple):
    """LARC's parameters; the numbers are rounded to float32 where they are used.

    Attributes:
        larc_eta: the trust coefficient: the ratio of an update's norm to its weight's
            norm, > 0.
        larc_mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio, >= 0.
        epsilon: added to the gradient's norm, >= 0.
    """

    larc_eta: float
    larc_mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7


def larc_policy(larc_params: Any, check_ranges: bool = True) -> LarcPolicy:
    """Check ``larc_params``, a dict with the names of :class:`LarcPolicy`.

    As in the original, a number must be a float: an int is refused.

    Raises:
        OutOfRangeError: a ValueError; ``larc_eta`` is missing, or a number is of
            another type or out of range.
        UnknownNameError: a ValueError; an unknown name or mode.
    """
    is_dict = isinstance(larc_params, Mapping)
    require(LARC, "larc_params", larc_params, is_dict, "a dict of parameters")
    for name, value in larc_params.items():
        if name not in LarcPolicy._fields:
            raise unknown_name(f"{LARC}: larc_params", name, LarcPolicy._fields)
        if name == "larc_mode":
            if value not in MODES:
                raise unknown_name(f"{LARC}: larc_mode", value, MODES)
            continue
        require(LARC, name, value, isinstance(value, float), "a float", "write 1.0")
        least = math.ulp(0.0) if name == "larc_eta" else 0.0
        expected = "> 0, finite" if least else ">= 0, finite"
        fine = least <= value < math.inf or not check_ranges
        require(LARC, name, value, fine, expected, CHOOSE)
    has_eta = "larc_eta" in larc_params
    remedy = "give the ratio of update to weight, such as 0.001"
    require(LARC, "larc_params", larc_params, has_eta, "an entry 'larc_eta'", remedy)
    return LarcPolicy(**larc_params)
