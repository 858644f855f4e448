"""Progress of a whole command: a bar on a terminal, or a line from time to time."""

from __future__ import annotations

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts runs by part, estimates the remaining time and shows both.

    Args:
        console: by default standard output. There is a bar if it is a terminal.

    Attributes:
        totals: number of runs of each part.
        done: number of its finished runs.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.totals: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self._console = console or Console()
        self._start = time.monotonic()
        self._last_line = self._start - SECONDS_BETWEEN_LINES
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("all runs", total=0, left="")

    @property
    def total(self) -> int:
        """Number of runs of all parts."""
        return sum(self.totals.values())

    def expect(self, part: str, total: int) -> None:
        """Set the number of runs of a part."""
        self.totals[part] = total
        self._bar.update(self._task, total=self.total)

    def advance(self, part: str) -> None:
        """Count a run that is done.

        Without a bar, print the first run, the last of a part, and one every 10 s.
        """
        self.done[part] += 1
        done, now = self.done.total(), time.monotonic()
        seconds = (now - self._start) / done * (self.total - done)
        left = f"about {duration(seconds)} left"
        self._bar.update(self._task, description=part, completed=done, left=left)
        due = now - self._last_line >= SECONDS_BETWEEN_LINES
        if not self._console.is_terminal and (
            due or self.done[part] >= self.totals[part]
        ):
            self._last_line = now
            counts = f"{self.done[part]} of {self.totals[part]} runs"
            self.write(f"{part}: {counts}; {done} of {self.total} in all, {left}")

    def close(self, part: str) -> None:
        """Set a part's total to the number of its finished runs."""
        self.expect(part, self.done[part])

    def write(self, text: str) -> None:
        """Print a text, above the bar if there is one. Brackets are no markup."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def duration(seconds: float) -> str:
    """Format a duration in s, min or h.

    Example:
        >>> duration(42.4), duration(150), duration(9000)
        ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
