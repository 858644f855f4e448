"""The processes of this machine, where the system has /proc to see them in."""

from __future__ import annotations

from pathlib import Path


def children_of(parent: int) -> list[int]:
    """Return the processes whose parent this one is."""
    return [pid for pid, fields in processes() if int(fields[1]) == parent]


def lives(wanted: int) -> bool:
    """Whether a process runs; one that ended and was not asked for does not."""
    return any(pid == wanted and fields[0] != "Z" for pid, fields in processes())


def processes() -> list[tuple[int, list[str]]]:
    """Return each process with its state, its parent and so on."""
    listed = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8").rpartition(") ")[2].split()
        except OSError:
            continue
        listed.append((int(path.parent.name), fields))
    return listed


def descendants_of(ancestor: int) -> list[int]:
    """Return the children of a process, their children and so on."""
    found = children_of(ancestor)
    return [*found, *(pid for child in found for pid in descendants_of(child))]
