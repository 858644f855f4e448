"""Runs that train nothing, take little time and fail on demand.

The environment variable ``TOY_FAILS`` says how and with which seed, such as
``kill 3``: its process is killed, ``exit 3``: it exits, ``raise 3``: the run raises,
``wait 3``: the run takes an hour, ``start``: the process is killed before any run.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.records.record import Outcome

BEST = {"plain": 0.1, "wrapped": 0.3}


@dataclass(frozen=True)
class Settings:
    """An arm, a rate and a number that nothing depends on."""

    arm: str
    rate: float
    steps: int


def prepare(backend: str, device: str) -> None:
    """Refuse no device."""
    _fail("start")


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Return a loss that is lowest at the arm's best rate and differs by seed."""
    _fail(str(seed))
    time.sleep(0.002)  # a duration that a record can hold
    distance = abs(math.log(config["rate"] / BEST[config["arm"]]))
    return Outcome("ok", "", {}, {"loss": 1 + distance + 1e-3 * math.sin(seed)})


def _fail(place: str) -> None:
    how, _, where = os.environ.get("TOY_FAILS", "").partition(" ")
    if place not in (where, how):
        return
    if how in ("kill", "start"):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(7)
    if how == "wait":
        time.sleep(3600)
    raise RuntimeError("as it was asked")
