"""The output of ``lockstep port``: changes, names left to the user, and diffs."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.port.rewrite import Ported

__all__ = ["changes", "diff", "leftovers", "summary"]


def changes(path: Path, ported: Ported) -> Iterator[str]:
    """Yield a line for each change: its place, the old text and the new text."""
    for change in ported.changes:
        after = f"{change.before} -> {change.after}"
        added = f"added: {change.after}"
        yield f"{path}:{change.line}: {after if change.before else added}"


def leftovers(path: Path, ported: Ported) -> Iterator[str]:
    """Yield a line with advice for each name that the user must port."""
    for left in ported.leftovers:
        places = f" ({left.places} places)" if left.places > 1 else ""
        yield f"{path}:{left.line}: left to you: {left.name}{places}: {left.advice}"


def diff(path: Path, ported: Ported) -> Iterator[str]:
    """Yield the lines of a unified diff, without their newlines."""
    texts = (ported.source.decode(), ported.output.decode())
    # str.splitlines would also split at form feeds.
    before, after = (list(io.StringIO(text, newline="")) for text in texts)
    for line in difflib.unified_diff(before, after, str(path), str(path)):
        yield line.removesuffix("\n")
        if not line.endswith(("\n", "\r")):
            yield "\\ No newline at end of file"


def summary(results: Sequence[Ported], written: bool, refused: int) -> str:
    """Return the numbers of changed files, changes, and names left to the user."""
    changed = [ported for ported in results if ported.changes]
    number = sum(len(ported.changes) for ported in changed)
    left = sum(len(ported.leftovers) for ported in results)
    verb = "changed" if written else "would change"
    parts = [f"{len(changed)} of {_count(len(results) + refused, 'file')} {verb}"]
    parts += [f"{_count(number, 'change')}", f"{_count(left, 'name')} left to you"]
    parts += [f"{_count(refused, 'file')} could not be ported"] if refused else []
    dry = "" if written or not changed else " Nothing was written: --write does it."
    return ", ".join(parts) + "." + dry


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
