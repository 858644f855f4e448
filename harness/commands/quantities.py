"""Parse durations, sizes and bandwidths from the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from harness.errors import HarnessError
from lockstep.messages.errors import sentence

__all__ = ["bandwidth", "duration", "size"]

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20}
BYTES["GiB"] = 2.0**30
BITS = {"kbit": 1e3 / 8, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8}
RATES = {f"{name}/s": scale for name, scale in (BITS | BYTES).items()}


def duration(text: str, option: str) -> float:
    """Return seconds.

    Raises:
        HarnessError: the text is no such quantity. The functions below raise it, too.

    Example:
        >>> duration("30ms", "--step")
        0.03
    """
    return _read(text, option, SECONDS, "30ms")


def size(text: str, option: str) -> float:
    """Return bytes.

    Example:
        >>> size("0.7 MB", "--model")
        700000.0
    """
    return _read(text, option, BYTES, "91MB")


def bandwidth(text: str, option: str) -> float:
    """Return bytes per second. ``Gbit`` alone means per second, too.

    Example:
        >>> bandwidth("1Gbit", "--bandwidth"), bandwidth("2 MB/s", "--bandwidth")
        (125000000.0, 2000000.0)
    """
    return _read(text, option, RATES | BITS, "1Gbit/s")


def _read(text: str, option: str, units: Mapping[str, float], example: str) -> float:
    parts = re.fullmatch(r"\s*([\d.]+(?:[eE][-+]?\d+)?)\s*([A-Za-z/]+)\s*", text)
    named = {name.lower(): scale for name, scale in units.items()}
    try:
        if parts is None:
            raise ValueError
        value = float(parts[1]) * named[parts[2].lower()]
        if not math.isfinite(value):
            raise ValueError
    except (ValueError, KeyError):
        expected = f"a number and one of {', '.join(units)}"
        remedy = f"write it as in {example}"
        raise HarnessError(sentence(option, expected, repr(text), remedy)) from None
    return value
