"""One line about a center, for people who watch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["status_line"]

MB = 1e6


def status_line(
    status: Mapping[str, Any], rounds_before: int | None, seconds: float
) -> str:
    """Return what matters of a status.

    Args:
        status: of a center.
        rounds_before: those of ``seconds`` ago; None if nobody looked then.
        seconds: since then.

    Example:
        >>> counts = {"bytes_pushed": 0, "bytes_pulled": 4e6, "staleness": {0: 3, 2: 1}}
        >>> saved = {"checkpoint_rounds": 0, "checkpoint_error": None}
        >>> whole = {"center": "a", "rounds": 4, "workers": 2, **counts, **saved}
        >>> status_line(whole, 0, 2.0)
        'a: 4 rounds, 2.0/s, 2 workers, mean staleness 0.50, 0.0 MB pushed, \
4.0 MB pulled, checkpoint of round 0'
    """
    return ", ".join(
        [
            f"{status['center']}: {counted(status['rounds'], 'round')}",
            *rate(status["rounds"], rounds_before, seconds),
            counted(status["workers"], "worker"),
            f"mean staleness {mean(status['staleness']):.2f}",
            f"{status['bytes_pushed'] / MB:,.1f} MB pushed",
            f"{status['bytes_pulled'] / MB:,.1f} MB pulled",
            f"checkpoint of round {status['checkpoint_rounds']:,}",
            *problems(status),
        ]
    )


def counted(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate(rounds: int, before: int | None, seconds: float) -> list[str]:
    """Return the rounds a second; a center that was restarted may have fewer."""
    if before is None:
        return []
    return [f"{max(0, rounds - before) / seconds:.1f}/s"]


def mean(staleness: Mapping[int, int]) -> float:
    """Return the mean of a histogram; 0 without any push."""
    pushes = sum(staleness.values())
    return sum(s * count for s, count in staleness.items()) / max(1, pushes)


def problems(status: Mapping[str, Any]) -> list[str]:
    """Return why the last checkpoint was not written."""
    error = status["checkpoint_error"]
    return [] if error is None else [f"checkpoint failed: {error}"]
