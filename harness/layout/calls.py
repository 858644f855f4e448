"""The Python functions of Lockstep that a step enters, in order."""

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
"""Steps before the counted one, which create slots and fill caches."""

INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class Step(NamedTuple):
    """The counted function, and a preparation before each call, not counted."""

    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


class Calls(NamedTuple):
    """Calls of Lockstep's functions during one step.

    Attributes:
        calls: number of functions entered. A generator is counted once. Comprehensions
            and generator expressions are not counted, since their calls depend on the
            version of Python and on the number of tensors.
        files: number of different files of these functions.
        changes: number of calls whose function is in another file than the function
            entered before it.
    """

    calls: int
    files: int
    changes: int


def count_calls(step: Step, root: Path = ROOT) -> Calls:
    """Run a step four times and count the calls of the last one below ``root``."""
    for _ in range(WARM_UP):
        step.prepare()
        step.run()
    step.prepare()
    files = _entered(step.run, root)
    changes = sum(one != other for one, other in pairwise(files))
    return Calls(len(files), len(set(files)), changes)


def _entered(run: Callable[[], object], root: Path) -> list[str]:
    """Return the file of each function that ``run`` enters, in order."""
    # Frames are kept, so that a generator that resumes is recognized by its frame.
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
