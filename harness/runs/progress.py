"""Progress of a whole command: bars with the remaining time, or plain lines."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Bars", "Lines", "Progress", "Tally", "duration", "progress"]

SECONDS_BETWEEN_LINES = 10.0


@dataclass
class Count:
    """Runs of one part.

    Attributes:
        total: number of runs.
        done: number of runs that this command has finished.
        seconds: total time of these runs, without the first.
        before: mean seconds of a run in earlier commands; None if there was none.
    """

    total: int = 0
    done: int = 0
    seconds: float = 0.0
    before: float | None = None

    @property
    def timed(self) -> int:
        """Number of runs whose time is in ``seconds``."""
        return max(self.done - 1, 0)

    @property
    def mean(self) -> float | None:
        """Mean seconds of a run in this command, else in earlier ones, else None.

        The first run of a part is ignored: the framework loads libraries in it, which
        may take longer than all other runs.
        """
        return self.seconds / self.timed if self.timed else self.before


class Tally:
    """Counts runs by part, and estimates the remaining time of all of them.

    The estimate of a run is the mean time of its part. A part without any finished run
    uses the mean over all parts. ``jobs`` runs are done at the same time.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.parts: dict[str, Count] = {}

    def expect(self, part: str, total: int, before: float | None = None) -> None:
        """Set the number of runs of a part, and their mean duration if known."""
        count = self.parts.setdefault(part, Count())
        count.total = total
        count.before = count.before if before is None else before

    def count(self, part: str, seconds: float) -> None:
        """Count a run that is done."""
        self.parts[part].done += 1
        self.parts[part].seconds += seconds if self.parts[part].done > 1 else 0

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
        """Seconds until all runs are done, or None while no mean is known."""
        counts = self.parts.values()
        if self.done == self.total:
            return 0.0
        means = [(count.timed or 1, count.mean) for count in counts]
        known = [(weight, mean) for weight, mean in means if mean is not None]
        if not known:
            return None
        usual = sum(w * mean for w, mean in known) / sum(w for w, _ in known)
        seconds = sum(
            (count.total - count.done) * (usual if count.mean is None else count.mean)
            for count in counts
        )
        return seconds / self.jobs


class Progress:
    """Shows a tally and prints other messages."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def expect(self, part: str, total: int, before: float | None = None) -> None:
        """Set the number of runs of a part, and their mean duration if known."""
        self.tally.expect(part, total, before)

    def advance(self, part: str, seconds: float) -> None:
        """Count a run that is done."""
        self.tally.count(part, seconds)

    def close(self, part: str) -> None:
        """Set a part's total to the number of its finished runs."""
        self.expect(part, self.tally.parts[part].done)

    def write(self, text: str) -> None:
        """Print a text."""
        print(text, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class Lines(Progress):
    """Prints a line from time to time, for logs and pipes."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self.last: float | None = None

    def advance(self, part: str, seconds: float) -> None:
        """Count a run. Print the first one, the last of a part, and one every 10 s."""
        super().advance(part, seconds)
        count, now = self.tally.parts[part], time.monotonic()
        quiet = self.last is not None and now - self.last < SECONDS_BETWEEN_LINES
        if quiet and count.done < count.total:
            return
        self.last = now
        every = f"{self.tally.done} of {self.tally.total} in all"
        estimate = self.tally.left
        left = "" if estimate is None else f", about {duration(estimate)} left"
        self.write(f"{part}: {count.done} of {count.total} runs; {every}{left}")


class Bars(Progress):
    """Bars for terminals: one for the whole command, and one for each active part."""

    def __init__(self, tally: Tally, console: Console | None = None) -> None:
        from rich import progress as rich

        super().__init__(tally)
        self.display = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.whole = self.display.add_task("all runs", total=0, left="")
        self.bars: dict[str, Any] = {}

    def expect(self, part: str, total: int, before: float | None = None) -> None:
        """Set the number of runs of a part. Its bar appears with its first run."""
        super().expect(part, total, before)
        if part in self.bars:
            at_work = self.tally.parts[part].done < total
            self.display.update(self.bars[part], total=total, visible=at_work)
        self._show_whole()

    def advance(self, part: str, seconds: float) -> None:
        """Count a run. Hide the bar of a finished part."""
        super().advance(part, seconds)
        count = self.tally.parts[part]
        if part not in self.bars:
            self.bars[part] = self.display.add_task(part, total=count.total, left="")
        at_work = count.done < count.total
        self.display.update(self.bars[part], completed=count.done, visible=at_work)
        self._show_whole()

    def write(self, text: str) -> None:
        """Print a text above the bars. Brackets are not read as markup."""
        options: dict[str, Any] = {"markup": False, "highlight": False}
        self.display.console.print(text, **options, soft_wrap=True)

    def _show_whole(self) -> None:
        left = self.tally.left
        text = "" if left is None else f"about {duration(left)} left"
        done, total = self.tally.done, self.tally.total
        self.display.update(self.whole, completed=done, total=total, left=text)

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


def progress(jobs: int) -> Progress:
    """Return bars for a terminal if rich is installed, else lines."""
    if sys.stdout.isatty():
        try:
            return Bars(Tally(jobs))
        except ImportError:
            pass
    return Lines(Tally(jobs))
