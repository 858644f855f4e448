"""The files of one experiment on one backend, open for appending."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.records.code import code_digest
from harness.records.files import read, read_code, read_environments
from harness.records.log import Log
from harness.records.record import Record, digest

__all__ = ["Store"]


class Store:
    """Records, and beside them each environment and each state of the code once.

    Raises:
        HarnessError: a file is damaged, cannot be written, or is being written to.
    """

    def __init__(self, home: Path, backend: str) -> None:
        names = ("", ".environments", ".code")
        paths = [home / f"{backend}{name}.jsonl" for name in names]
        with ExitStack() as opened:
            files = [opened.enter_context(Log(path)) for path in paths]
            self._records, self._environments, self._code = files
            self.records = read(paths[0])
            self._known = {*read_environments(paths[1]), *read_code(paths[2])}
            self._stack = opened.pop_all()

    def environment(self, content: Mapping[str, Any]) -> str:
        """Return the id of an environment; write it down if it is new."""
        return self._once(self._environments, digest(content, 8), content)

    def code(self, modules: Mapping[str, str]) -> str:
        """Return the digest of a state of the code; write it down if it is new."""
        content = {"modules": dict(modules)}
        return self._once(self._code, code_digest(modules), content)

    def append(self, record: Record) -> None:
        """Write a record."""
        self._records.append(record.as_json())
        self.records.append(record)

    def _once(self, log: Log, identifier: str, content: Mapping[str, Any]) -> str:
        if identifier not in self._known:
            log.append({"id": identifier, **content})
            self._known.add(identifier)
        return identifier

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
