"""The files in ``snapshots/``: nested mappings of text, one line per leaf."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["FOLDER", "Snapshot", "differences", "read", "write"]

FOLDER = Path(__file__).parent / "snapshots"

Snapshot: TypeAlias = Mapping[str, Any]
"""Keys -> text or another such mapping."""


def read(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the snapshot of this name."""
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return content


def write(name: str, content: Snapshot, folder: Path = FOLDER) -> Path:
    """Write a snapshot with sorted keys and return its path."""
    path = folder / f"{name}.json"
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", "utf-8")
    return path


def differences(frozen: Snapshot, fresh: Snapshot) -> list[str]:
    """Return a line for each leaf that differs or is missing on one side.

    Example:
        >>> differences({"a": {"b": "1", "c": "2"}}, {"a": {"b": "1", "c": "3"}})
        ['- a / c: 2', '+ a / c: 3']
    """
    before, after = dict(_leaves(frozen)), dict(_leaves(fresh))
    lines = []
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            lines += [f"- {key}: {before[key]}"] if key in before else []
            lines += [f"+ {key}: {after[key]}"] if key in after else []
    return lines


def _leaves(content: Snapshot, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        name = f"{above} / {key}" if above else key
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, name)
        else:
            yield name, value
