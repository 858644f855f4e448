"""The files of one experiment on one backend, open for appending."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.records.files import read, read_environments
from harness.records.log import Log
from harness.records.record import Record, digest

__all__ = ["Store"]


class Store:
    """Records, with each environment stored once.

    Attributes:
        records: all records of the file, including new ones.
        environments: the environments of its file by id.

    Raises:
        HarnessError: a file is damaged, cannot be written, or is being written to.
    """

    def __init__(self, home: Path, backend: str) -> None:
        paths = home / f"{backend}.jsonl", home / f"{backend}.environments.jsonl"
        with ExitStack() as opened:
            self._records, self._environments = (
                opened.enter_context(Log(path)) for path in paths
            )
            self.records = read(paths[0])
            self.environments = read_environments(paths[1])
            self._stack = opened.pop_all()

    def environment(self, content: Mapping[str, Any]) -> str:
        """Return the id of an environment. Write the environment if it is new."""
        identifier = digest(content, 8)
        if identifier not in self.environments:
            self._environments.append({"id": identifier, **content})
            self.environments[identifier] = dict(content)
        return identifier

    def append(self, record: Record) -> None:
        """Write a record; keep it as a reader of the file sees it, in float32."""
        content = record.as_json()
        copy = Record.from_json(content)  # Nothing unreadable is written.
        self._records.append(content)
        self.records.append(copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
