"""Progress of a whole command: a bar on a terminal, or a line from time to time."""

from __future__ import annotations

import time
from statistics import fmean
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts runs by part, estimates the remaining time and shows both.

    Args:
        jobs: number of runs that are done at the same time.
        console: by default standard output. There is a bar if it is a terminal.

    Attributes:
        totals: number of runs of each part.
        seconds: durations of its finished runs.
    """

    def __init__(self, jobs: int = 1, console: Console | None = None) -> None:
        self.jobs = jobs
        self.totals: dict[str, int] = {}
        self.seconds: dict[str, list[float]] = {}
        self._console = console or Console()
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
        self._task = self._bar.add_task("all runs", total=0, left="")

    def expect(self, part: str, total: int) -> None:
        """Set the number of runs of a part."""
        self.totals[part] = total
        self.seconds.setdefault(part, [])
        self._draw()

    def advance(self, part: str, seconds: float) -> None:
        """Count a run that is done.

        Without a bar, print the first run, the last of a part, and one every 10 s.
        """
        self.seconds[part].append(seconds)
        self._bar.update(self._task, description=part)
        self._draw()
        if self._console.is_terminal:
            return
        done, now = len(self.seconds[part]), time.monotonic()
        if done >= self.totals[part] or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            counts = f"{done} of {self.totals[part]} runs; {self.done} of {self.total}"
            self.write(f"{part}: {counts} in all{self._left()}")

    def close(self, part: str) -> None:
        """Set a part's total to the number of its finished runs."""
        self.expect(part, len(self.seconds[part]))

    def write(self, text: str) -> None:
        """Print a text, above the bar if there is one. Brackets are no markup."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @property
    def done(self) -> int:
        """Number of finished runs of all parts."""
        return sum(map(len, self.seconds.values()))

    @property
    def total(self) -> int:
        """Number of runs of all parts."""
        return sum(self.totals.values())

    @property
    def left(self) -> float | None:
        """Seconds until all runs are done, or None while no mean is known.

        A mean leaves out the first run of its part: in it the framework loads
        libraries, which may take longer than all other runs. A part without a mean uses
        that of all parts.
        """
        known = {part: times[1:] for part, times in self.seconds.items() if times[1:]}
        if not known:
            return 0.0 if self.done == self.total else None
        usual = fmean(seconds for times in known.values() for seconds in times)
        rest = sum(
            (total - len(self.seconds[part])) * fmean(known.get(part, [usual]))
            for part, total in self.totals.items()
        )
        return rest / self.jobs

    def _left(self) -> str:
        return "" if self.left is None else f", about {duration(self.left)} left"

    def _draw(self) -> None:
        left = self._left().lstrip(", ")
        self._bar.update(self._task, total=self.total, completed=self.done, left=left)

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
