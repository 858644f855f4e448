"""Progress of several workers: bars with the time left, or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["Bars", "Lines", "Progress", "progress"]

SECONDS_BETWEEN_LINES = 10.0


class Progress(Protocol):
    """Counts the runs that are done, by backend."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def advance(self, name: str) -> None:
        """Count one more."""
        ...


class Bars:
    """One bar a backend, for terminals."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        from rich import progress as rich

        self.display = rich.Progress(
            rich.TextColumn("{task.description:>9}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
        )
        self.bars: dict[str, Any] = {
            name: self.display.add_task(name, total=total)
            for name, total in totals.items()
        }

    def advance(self, name: str) -> None:
        """Count one more."""
        self.display.advance(self.bars[name])

    def __enter__(self) -> Self:
        self.display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.display.stop()


class Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self.totals = totals
        self.done = dict.fromkeys(totals, 0)
        self.start = time.monotonic()
        self.last = dict.fromkeys(totals, self.start)

    def advance(self, name: str) -> None:
        """Count one more; the first, the last and one every ten seconds are told."""
        self.done[name] += 1
        done, total, now = self.done[name], self.totals[name], time.monotonic()
        quiet = now - self.last[name] < SECONDS_BETWEEN_LINES
        if quiet and done not in (1, total):
            return
        self.last[name] = now
        left = (now - self.start) / done * (total - done)
        print(f"{name}: {done} of {total} runs, about {left:.0f} s left", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def progress(totals: Mapping[str, int]) -> Progress:
    """Choose bars for a terminal, if rich is there, and lines for anything else."""
    if sys.stdout.isatty():
        try:
            return Bars(totals)
        except ImportError:
            pass
    return Lines(totals)
