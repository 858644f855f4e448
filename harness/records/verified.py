"""Verifications: later code that gave the same outcome as a group of records.

A group is the records of one configuration on one backend and device. One of its seeds
is run again. If the outcome is equal, the whole group is valid for the new code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.records.log import damaged, read_lines
from harness.records.record import Code, Record, digest, is_code

__all__ = ["COMPARISONS", "Verification", "group_of", "read_verified"]

COMPARISONS = ("bits", "1e-4")
"""How outcomes were compared: bit by bit, or within this relative difference."""


@dataclass(frozen=True)
class Verification:
    """One line: a repeated run of a group, with an equal outcome.

    Attributes:
        id: of the group's configuration.
        device: of the group.
        code: of the repeated run.
        environment: of the repeated run.
        seed: that was repeated.
        record: digest of the record that the outcome was compared with.
        comparison: one of ``COMPARISONS``.
        start: UTC, to the second, as ISO 8601.
    """

    id: str
    device: str
    code: Code
    environment: str
    seed: int
    record: str
    comparison: str
    start: str

    @property
    def group(self) -> tuple[str, str]:
        """The group, as returned by ``group_of``."""
        return self.id, self.device

    def follows(self, record: Record) -> bool:
        """Whether a record of the group is no later than this verification."""
        return record.start is None or record.start <= self.start

    def as_json(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verification:
        """Build a verification from JSON.

        Raises:
            ValueError: a key is missing or unknown, or its value is invalid.
        """
        names = {each.name for each in dataclasses.fields(cls)}
        if different := names ^ content.keys():
            raise ValueError(f"keys missing or unknown: {', '.join(sorted(different))}")
        texts = names - {"code", "seed"}
        wrong = [name for name in texts if not isinstance(content[name], str)]
        wrong += ["seed"] if type(content["seed"]) is not int else []
        wrong += [] if is_code(content["code"]) else ["code"]
        wrong += [] if content["comparison"] in COMPARISONS else ["comparison"]
        if wrong:
            raise ValueError(f"another kind of value in {', '.join(sorted(wrong))}")
        return cls(**{**content, "code": Code(**content["code"])})


def group_of(record: Record) -> tuple[str, str]:
    """Return what the records of a group share, except the backend of their file."""
    return digest(record.config, 12), record.subject["device"]


def read_verified(path: Path) -> list[Verification]:
    """Read the verifications of a file. Return an empty list if there is no file.

    Raises:
        HarnessError: a line is damaged.
    """
    verified = []
    for number, content in enumerate(read_lines(path), start=1):
        try:
            verified.append(Verification.from_json(content))
        except ValueError as error:
            raise damaged(path, number, str(error)) from error
    return verified
