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
from harness.records.verified import Verification, read_verified

__all__ = ["Store"]


class Store:
    """Records, with each environment and each state of the code stored once.

    Attributes:
        records: all records of the file, including new ones.
        environments: the environments of its file by id.

    Raises:
        HarnessError: a file is damaged, cannot be written, or is being written to.
    """

    def __init__(self, home: Path, backend: str) -> None:
        names = ("", ".environments", ".code", ".verified")
        paths = [home / f"{backend}{name}.jsonl" for name in names]
        with ExitStack() as opened:
            files = [opened.enter_context(Log(path)) for path in paths]
            self._records, self._environments, self._code, self._verified = files
            self.records = read(paths[0])
            self.environments = read_environments(paths[1])
            self._known = {*self.environments, *read_code(paths[2])}
            read_verified(paths[3])
            self._stack = opened.pop_all()

    def environment(self, content: Mapping[str, Any]) -> str:
        """Return the id of an environment. Write the environment if it is new."""
        identifier = digest(content, 8)
        self.environments[identifier] = dict(content)
        return self._once(self._environments, identifier, content)

    def code(self, modules: Mapping[str, str]) -> str:
        """Return the digest of a state of the code. Write the state if it is new."""
        content = {"modules": dict(modules)}
        return self._once(self._code, code_digest(modules), content)

    def append(self, record: Record) -> None:
        """Write a record; keep it as a reader of the file sees it, in float32."""
        content = record.as_json()
        copy = Record.from_json(content)  # Nothing unreadable is written.
        self._records.append(content)
        self.records.append(copy)

    def verify(self, verification: Verification) -> None:
        """Write a verification."""
        self._verified.append(verification.as_json())

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
