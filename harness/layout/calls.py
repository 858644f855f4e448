"""The Python functions of Lockstep that a step enters, one after another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import lockstep

__all__ = ["Calls", "Step", "count_calls"]

ROOT = Path(lockstep.__file__).parent
WARM_UP = 3
"""Steps before the one that is counted: slots are made and caches are full."""

INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Step(NamedTuple):
    """What is counted, and what must be done before each time, which is not."""

    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


class Calls(NamedTuple):
    """What one step enters of Lockstep.

    Attributes:
        calls: functions entered. A generator counts once; comprehensions and generator
            expressions do not count, since their calls depend on the version of Python
            and on the number of tensors.
        files: different files that these functions are in.
        changes: how often a function is entered that is in another file than the one
            entered before it.
    """

    calls: int
    files: int
    changes: int


def count_calls(step: Step, root: Path = ROOT) -> Calls:
    """Take a step four times and count what the last one enters below ``root``."""
    for _ in range(WARM_UP):
        step.prepare()
        step.run()
    step.prepare()
    files = _entered(step.run, root)
    changes = sum(one != other for one, other in pairwise(files))
    return Calls(len(files), len(set(files)), changes)


def _entered(run: Callable[[], object], root: Path) -> list[str]:
    """Return the file of each function that ``run`` enters, in order."""
    # Frames are kept, so that a generator that goes on is known by its own.
    frames: dict[int, FrameType] = {}
    inside = str(root) + os.sep

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and _counts(frame.f_code, inside):
            frames.setdefault(id(frame), frame)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return [frame.f_code.co_filename for frame in frames.values()]


def _counts(code: CodeType, inside: str) -> bool:
    return code.co_name not in INLINED and code.co_filename.startswith(inside)
