"""Progress of a command: a bar on a terminal, or a line from time to time."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts what is done, estimates the remaining time and shows both.

    Args:
        unit: what is counted, in the plural.
        total: their number, as far as it is known; see ``expect``.
        console: by default standard output.

    Attributes:
        total: the number of units, done or not.
    """

    def __init__(
        self, unit: str, total: int = 0, console: Console | None = None
    ) -> None:
        self.total, self._unit, self._done = total, unit, 0
        self._console = console or Console()
        self._start = time.monotonic()
        self._last_line = -SECONDS_BETWEEN_LINES
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(unit, total=total, left="")

    def expect(self, more: int) -> None:
        """Add so many units to the total; a negative number are less."""
        self.total += more
        self._bar.update(self._task, total=self.total)

    def advance(self, what: str) -> None:
        """Count a unit that is done, and show what it was.

        Without a terminal, print the first one, the last one, and one every 10 s.
        """
        self._done += 1
        remaining = self.total - self._done
        seconds = time.monotonic() - self._start
        left = f"about {duration(seconds / self._done * remaining)} left"
        self._bar.update(self._task, description=what, completed=self._done, left=left)
        if self._console.is_terminal:
            return
        if not remaining or seconds - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = seconds
            self.write(f"{what}: {self._done} of {self.total} {self._unit}, {left}")

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
