"""Progress of a whole command: bars on a terminal, or a line from time to time."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Progress", "duration"]

SECONDS_BETWEEN_LINES = 10.0


@dataclass
class Count:
    """Runs of one part.

    Attributes:
        total: number of runs.
        done: number of runs that this command has finished.
        seconds: total time of these runs, without the first: in it the framework loads
            libraries, which may take longer than all other runs.
        before: mean seconds of a run in earlier commands; None if there was none.
    """

    total: int = 0
    done: int = 0
    seconds: float = 0.0
    before: float | None = None

    @property
    def mean(self) -> float | None:
        """Mean seconds of a run in this command, else in earlier ones, else None."""
        return self.seconds / (self.done - 1) if self.done > 1 else self.before


class Progress:
    """Counts runs by part, estimates the remaining time and shows both.

    Args:
        jobs: number of runs that are done at the same time.
        console: for bars. By default there are bars if the output is a terminal and
            rich is installed.
    """

    def __init__(self, jobs: int = 1, console: Console | None = None) -> None:
        self.jobs = jobs
        self.parts: dict[str, Count] = {}
        self._last_line: float | None = None
        self._bars: dict[str, Any] = {}
        self.display: Any = None
        if console is None and not sys.stdout.isatty():
            return
        try:
            from rich import progress as rich
        except ImportError:
            return
        self.display = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._whole = self.display.add_task("all runs", total=0, left="")

    def expect(self, part: str, total: int, before: float | None = None) -> None:
        """Set the number of runs of a part, and their mean duration if known."""
        count = self.parts.setdefault(part, Count())
        count.total = total
        count.before = count.before if before is None else before
        self._draw(part)

    def advance(self, part: str, seconds: float) -> None:
        """Count a run that is done.

        Without bars, print the first run, the last of a part, and one every 10 s.
        """
        count = self.parts[part]
        count.done += 1
        count.seconds += seconds if count.done > 1 else 0
        if self.display is not None:
            if part not in self._bars:
                self._bars[part] = self.display.add_task(part, total=0, left="")
            self._draw(part)
            return
        now, last = time.monotonic(), self._last_line
        quiet = last is not None and now - last < SECONDS_BETWEEN_LINES
        if quiet and count.done < count.total:
            return
        self._last_line = now
        every = f"{self.done} of {self.total} in all"
        left = "" if self.left is None else f", about {duration(self.left)} left"
        self.write(f"{part}: {count.done} of {count.total} runs; {every}{left}")

    def close(self, part: str) -> None:
        """Set a part's total to the number of its finished runs."""
        self.expect(part, self.parts[part].done)

    def write(self, text: str) -> None:
        """Print a text, above the bars if there are some."""
        if self.display is None:
            print(text, flush=True)
            return
        # Brackets are not read as markup.
        options: dict[str, Any] = {"markup": False, "highlight": False}
        self.display.console.print(text, **options, soft_wrap=True)

    @property
    def done(self) -> int:
        """Number of finished runs of all parts."""
        return sum(count.done for count in self.parts.values())

    @property
    def total(self) -> int:
        """Number of runs of all parts."""
        return sum(count.total for count in self.parts.values())

    @property
    def left(self) -> float | None:
        """Seconds until all runs are done, or None while no mean is known.

        A part without any finished run uses the mean over all parts.
        """
        if self.done == self.total:
            return 0.0
        counts = self.parts.values()
        known = [(max(c.done - 1, 1), c.mean) for c in counts if c.mean is not None]
        if not known:
            return None
        usual = sum(w * mean for w, mean in known) / sum(w for w, _ in known)
        seconds = sum(
            (count.total - count.done) * (usual if count.mean is None else count.mean)
            for count in counts
        )
        return seconds / self.jobs

    def _draw(self, part: str) -> None:
        """Update the bars of a part and of the whole. Hide that of a finished part."""
        if self.display is None:
            return
        if part in self._bars:
            total, done = self.parts[part].total, self.parts[part].done
            numbers = {"total": total, "completed": done, "visible": done < total}
            self.display.update(self._bars[part], **numbers)
        left = "" if self.left is None else f"about {duration(self.left)} left"
        numbers = {"total": self.total, "completed": self.done}
        self.display.update(self._whole, **numbers, left=left)

    def __enter__(self) -> Self:
        if self.display is not None:
            self.display.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.display is not None:
            self.display.stop()


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
