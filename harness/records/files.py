"""The folders of records, and reading their files.

A file belongs to one experiment and one backend. ``pytorch.environments.jsonl`` is in
the same folder as ``pytorch.jsonl`` and holds each environment of these runs once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.records.log import damaged, read_lines
from harness.records.record import Record, UnknownSchemaError, digest

__all__ = ["RESULTS", "folder", "read", "read_environments"]

RESULTS = Path(__file__).parent.parent.parent / "results"


def folder(experiment: str, publish: bool = False, root: Path = RESULTS) -> Path:
    """Return the folder of an experiment's records: published, or the user's own."""
    return root / experiment if publish else root / "local" / experiment


def read(path: Path) -> list[Record]:
    """Read the records of a file. Return an empty list if there is no file.

    Raises:
        HarnessError: a line is damaged. Only an incomplete last line is accepted.
    """
    records = []
    for number, content in enumerate(read_lines(path), start=1):
        try:
            records.append(Record.from_json(content))
        except UnknownSchemaError as error:
            remedy = "read it with the version of Lockstep that wrote it"
            raise damaged(path, number, str(error), remedy) from error
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise damaged(path, number, f"{type(error).__name__} ({error})") from error
    return records


def read_environments(path: Path) -> dict[str, dict[str, Any]]:
    """Return the environments of a file by id. Each id must match its content."""
    known = {}
    for number, content in enumerate(read_lines(path), start=1):
        stated, follows = content.pop("id"), digest(content, 8)
        if stated != follows:
            raise damaged(path, number, f"id {stated} of what has the id {follows}")
        known[stated] = content
    return known
