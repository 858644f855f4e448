"""``lockstep watch NAME``: prints a line about a center every few seconds."""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from lockstep.errors import OutOfRangeError, UnsupportedError
from lockstep.ray.center import RayCenter, import_ray

MB = 1e6
PATIENCE = 10.0
"""Seconds in which a cluster must answer."""


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
    """Connect to the cluster and watch; Ctrl-C ends the command."""
    center = RayCenter(given.name)
    if not 0 < given.seconds < float("inf"):
        raise OutOfRangeError(
            f"--seconds: expected a number > 0, got {given.seconds:g}; "
            "say how long to wait between two lines."
        )
    connect(given.address)
    with contextlib.suppress(KeyboardInterrupt):
        watch(center, given.seconds)


def connect(address: str) -> None:
    """Connect to a cluster; Ray itself waits for minutes for one that is gone."""
    ray = import_ray("NAME")
    failures: list[Exception] = []

    def call() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            failures.append(error)

    # Ray has no limit of its own, and a daemon does not keep the command alive.
    connecting = threading.Thread(target=call, daemon=True)
    connecting.start()
    connecting.join(PATIENCE)
    if failures or connecting.is_alive():
        got = "none" if failures else f"no answer within {PATIENCE:g} seconds"
        raise UnsupportedError(
            f"watch: expected a Ray cluster (address {address!r}), got {got}; "
            "start it with ray start --head, or give its --address."
        )


def watch(center: RayCenter, seconds: float) -> None:
    """Print a line every ``seconds`` seconds, until training has ended."""
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
    """Return the line for a status; ``rounds_before``: those ``seconds`` ago, or None.

    Example:
        >>> counts = {"bytes_pushed": 0, "bytes_pulled": 4e6, "staleness": {0: 3, 2: 1}}
        >>> saved = {"checkpoint_rounds": 0, "checkpoint_error": None}
        >>> whole = {"center": "a", "rounds": 4, "workers": 2, **counts, **saved}
        >>> whole["active_workers"] = 1
        >>> status_line(whole, 0, 2.0)
        'a: 4 rounds, 2.0/s, 1 of 2 workers active, mean staleness 0.50, \
0.0 MB pushed, 4.0 MB pulled, checkpoint of round 0'
    """
    rounds, pushes = status["rounds"], status["staleness"]
    stale = sum(s * count for s, count in pushes.items()) / max(1, sum(pushes.values()))
    parts = [f"{status['center']}: {counted(rounds, 'round')}"]
    if rounds_before is not None:
        # A restarted center may have fewer rounds.
        parts.append(f"{max(0, rounds - rounds_before) / seconds:.1f}/s")
    workers = counted(status["workers"], "worker")
    parts += [
        f"{status['active_workers']} of {workers} active",
        f"mean staleness {stale:.2f}",
        f"{status['bytes_pushed'] / MB:,.1f} MB pushed",
        f"{status['bytes_pulled'] / MB:,.1f} MB pulled",
        f"checkpoint of round {status['checkpoint_rounds']:,}",
    ]
    if status["checkpoint_error"] is not None:
        parts.append(f"checkpoint failed: {status['checkpoint_error']}")
    return ", ".join(parts)


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, such as "2 rounds"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
