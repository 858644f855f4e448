"""One row of the parity report: the result of one case on one backend."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

Status = Literal["passed", "failed", "skipped"]
Against = Literal["", "recording", "reference", "framework rule", "refusal"]

WAYS = {
    "recording": "as the original",
    "reference": "as documented",
    "framework rule": "by the framework's rule",
    "refusal": "refused alike",
}
"""What a case was compared with -> in which way it is right."""


@dataclass(frozen=True)
class Divergence:
    """The first difference of a trajectory from its record (indices start at 0)."""

    step: int
    quantity: str
    index: list[int]
    got: str
    expected: str


@dataclass(frozen=True)
class Row:
    """A case on a backend in one execution mode. Distances are None if not compared.

    If the case passed, ``reason`` names the quantities that were not compared.
    ``against``: what the case was compared with, or ``refusal`` if the backend refuses
    it, as the reference does or as is documented. Where this is not the recording,
    ``difference`` is the anchor of the listed difference.
    """

    id: str
    family: str
    kind: str
    backend: str
    mode: str
    status: Status
    reason: str = ""
    max_ulp: float | None = None
    max_ulp_raw: float | None = None
    first_divergence: Divergence | None = None
    against: Against = ""
    difference: str = ""

    @property
    def way(self) -> str:
        """In which of the four ways the case is right, if it passed, in words."""
        return WAYS.get(self.against, "as the original")

    @property
    def in_part(self) -> bool:
        """Whether the case passed but some quantities were not compared."""
        return self.status == "passed" and bool(self.reason)

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON object. Infinity becomes a string."""
        return {k: "inf" if v == math.inf else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Row:
        """Build a row from JSON."""
        return _ROW.validate_python(content)


_ROW = TypeAdapter(Row)
