"""Benchmarks as data: which setups are timed and which ratios are wanted."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.record import digest
from lockstep.spec.errors import unknown_name

__all__ = ["FOLDER", "Benchmark", "Row", "find", "known", "read"]

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """Ours against one peer in one setup.

    Attributes:
        goal: the largest ratio wanted, if any.
        limit: what keeps us from the goal, shown where it is missed.
        headline: what stands behind the ratio in the answer; the row is not in it if
            there is none.
    """

    backend: str
    setup: Mapping[str, str]
    peer: str
    what: str
    goal: float | None = None
    limit: str = ""
    headline: str = ""

    @property
    def setup_id(self) -> str:
        """Twelve hexadecimal digits that follow from the setup."""
        return digest(dict(self.setup), 12)


@dataclass(frozen=True)
class Benchmark:
    """A question, the rows of its table and how often each variant is timed.

    Attributes:
        answer: a clause in which ``{}`` stands for the ratios of the headlines.
        notes: sentences for the small print.
        peers: what each peer is called.
    """

    name: str
    question: str
    title: str
    task: str
    answer: str
    notes: Sequence[str]
    peers: Mapping[str, str]
    rounds: Mapping[str, int]
    rows: Sequence[Row]
    path: Path

    @property
    def backends(self) -> list[str]:
        """The backends that the rows speak of, each once."""
        return list(dict.fromkeys(row.backend for row in self.rows))

    def setups(self, backend: str) -> dict[str, Mapping[str, Any]]:
        """Return the setups of a backend by their ids, each once."""
        return {r.setup_id: r.setup for r in self.rows if r.backend == backend}


def known() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Benchmark:
    """Read a benchmark; HarnessError with the nearest name if there is none."""
    if name not in known():
        raise HarnessError(str(unknown_name("benchmark", name, known())))
    return read(FOLDER / f"{name}.toml")


def read(path: Path) -> Benchmark:
    """Read a benchmark from its file."""
    content = tomllib.loads(path.read_text("utf-8"))
    rows = tuple(Row(**row) for row in content.pop("row"))
    return Benchmark(name=path.stem, rows=rows, path=path, **content)
