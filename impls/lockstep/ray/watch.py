"""``lockstep watch NAME``: prints a line about a center every few seconds."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from lockstep.errors import OutOfRangeError, UnsupportedError, sentence
from lockstep.ray.actor import import_ray
from lockstep.ray.center import RayCenter

__all__ = ["add_options", "run", "status_line", "watch"]

MB = 1e6


def add_options(commands: Any) -> None:
    """Add the command and its options to the command line."""
    about = "print a line about a center on Ray now and then, until training has ended"
    parser = commands.add_parser("watch", help=about, description=about.capitalize())
    parser.add_argument("name", help="of the center, as in center='ray://NAME'")
    about = "of the cluster; default: the one that this machine belongs to"
    parser.add_argument("--address", default="auto", help=about)
    about = "between two lines; default: 5"
    parser.add_argument("--seconds", type=float, default=5.0, help=about)


def run(given: argparse.Namespace) -> None:
    """Connect to the cluster and watch; Ctrl-C ends the command.

    Raises:
        LockstepError: Ray is missing, or there is no such cluster or center.
    """
    center = RayCenter(given.name)
    ray = import_ray(center.name)
    try:
        ray.init(address=given.address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        remedy = "start it with ray start --head, or give its --address"
        expected = f"a Ray cluster (address {given.address!r})"
        raise UnsupportedError(sentence("watch", expected, "none", remedy)) from error
    with contextlib.suppress(KeyboardInterrupt):
        watch(center, given.seconds)


def watch(center: RayCenter, seconds: float) -> None:
    """Print a line every ``seconds`` seconds, until training has ended.

    Raises:
        OutOfRangeError: a ValueError; ``seconds`` is not > 0.
        CenterLostError: a ConnectionError; there is no such center, or not any more.
    """
    if not 0 < seconds < float("inf"):
        expected, remedy = "a number > 0", "say how long to wait between two lines"
        raise OutOfRangeError(sentence("--seconds", expected, f"{seconds:g}", remedy))
    before = None
    while True:
        status = center.status()
        print(status_line(status, before, seconds), flush=True)
        if status["ended"]:
            return
        before = status["rounds"]
        time.sleep(seconds)


def status_line(
    status: Mapping[str, Any], rounds_before: int | None, seconds: float
) -> str:
    """Return the line for a status.

    Args:
        status: the status of a center.
        rounds_before: the rounds at the previous status; None if there was none.
        seconds: the seconds since then.

    Example:
        >>> counts = {"bytes_pushed": 0, "bytes_pulled": 4e6, "staleness": {0: 3, 2: 1}}
        >>> saved = {"checkpoint_rounds": 0, "checkpoint_error": None}
        >>> whole = {"center": "a", "rounds": 4, "workers": 2, **counts, **saved}
        >>> whole["active_workers"] = 1
        >>> status_line(whole, 0, 2.0)
        'a: 4 rounds, 2.0/s, 1 of 2 workers active, mean staleness 0.50, \
0.0 MB pushed, 4.0 MB pulled, checkpoint of round 0'
    """
    workers = counted(status["workers"], "worker")
    return ", ".join(
        [
            f"{status['center']}: {counted(status['rounds'], 'round')}",
            *rate(status["rounds"], rounds_before, seconds),
            f"{status['active_workers']} of {workers} active",
            f"mean staleness {mean(status['staleness']):.2f}",
            f"{status['bytes_pushed'] / MB:,.1f} MB pushed",
            f"{status['bytes_pulled'] / MB:,.1f} MB pulled",
            f"checkpoint of round {status['checkpoint_rounds']:,}",
            *problems(status),
        ]
    )


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, such as "2 rounds"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate(rounds: int, before: int | None, seconds: float) -> list[str]:
    """Return the rounds per second; 0 if a restarted center has fewer."""
    if before is None:
        return []
    return [f"{max(0, rounds - before) / seconds:.1f}/s"]


def mean(staleness: Mapping[int, int]) -> float:
    """Return the mean of a histogram; 0 if it is empty."""
    pushes = sum(staleness.values())
    return sum(s * count for s, count in staleness.items()) / max(1, pushes)


def problems(status: Mapping[str, Any]) -> list[str]:
    """Return the reason if the last checkpoint was not written."""
    error = status["checkpoint_error"]
    return [] if error is None else [f"checkpoint failed: {error}"]
