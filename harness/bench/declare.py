"""Benchmarks as data: the setups that are timed, their peers, and the goals.

Every ``[[row]]`` is a row of the table. With ``twice``, its peer is also timed against
itself, built a second time: a control, at scale std.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from harness.declarations.toml_files import (
    Count,
    Positive,
    Table,
    Text,
    TomlFile,
    one_of,
    wrong,
)
from harness.errors import HarnessError
from harness.records.record import digest
from harness.timing import AGAIN
from lockstep.errors import unknown_name
from lockstep.registry import BACKENDS

FOLDER = Path(__file__).parent

MEASURED = tuple(name for name, backend in BACKENDS.items() if backend.framework)
"""Backends for which a task can have a file with steps."""

MEASURES = ("ratio", "difference", "time")
"""Arm's time / peer's time; arm's time - peer's time; the arm's time alone."""


class Row(Table):
    """A variant of a step in one setup, against a peer or alone.

    Attributes:
        arm: the variant that is judged.
        peer: the variant that it is compared with; empty if ``measure`` is ``time``.
        measure: one of ``MEASURES``. Differences and times are microseconds per step.
        goal: the largest value that we aim at; no verdict depends on it.
        headline: text that follows the value in the answer. Rows without one are not in
            the answer.
        twice: whether there is a control of the peer.
        control: whether this row is one: arm and peer are the same, built twice.
    """

    backend: Annotated[str, one_of("backend", MEASURED)]
    setup: dict[str, str]
    what: Text
    arm: Text = "ours"
    peer: str = ""
    measure: Annotated[str, one_of("measure", MEASURES)] = "ratio"
    goal: Positive | None = None
    headline: str = ""
    twice: bool = False
    control: bool = False

    @property
    def setup_id(self) -> str:
        """Twelve hexadecimal digits: the digest of the setup."""
        return digest(dict(self.setup), 12)

    @property
    def variants(self) -> list[str]:
        """The variants that must be timed for this row."""
        return [name for name in (self.arm, self.peer) if name]


@dataclass(frozen=True)
class Setup:
    """Variants that are timed together, in the same rounds.

    Attributes:
        benchmark: name of the benchmark.
        config: the settings with which the task builds the variants.
        variants: names of the variants.
    """

    benchmark: str
    task: str
    id: str
    config: Mapping[str, str]
    variants: Sequence[str]
    rounds: Mapping[str, int]

    @property
    def key(self) -> str:
        """Unique name of the setup: ``BENCHMARK/ID``."""
        return f"{self.benchmark}/{self.id}"


class Rounds(Table):
    """The number of rounds for each variant in a process, by scale."""

    quick: Count
    std: Count


class Benchmark(Table):
    """A question, the rows of its table and the number of rounds.

    Attributes:
        answer: a clause in which ``{}`` is replaced by the values of the headlines.
        notes: sentences for the small print.
        peers: name of a peer -> its title.
    """

    name: str
    path: Path
    question: Text
    title: Text
    task: Text
    answer: Text
    notes: tuple[str, ...] = ()
    peers: dict[str, Text]
    rounds_: Annotated[Rounds, Field(alias="rounds")]
    row: tuple[Row, ...]

    @model_validator(mode="after")
    def _require_peers(self) -> Self:
        """Require a known peer where a measure compares."""
        for place, row in enumerate(self.row):
            if row.measure == "time" and row.peer:
                text = "expected no peer, since a time is compared with nothing"
                raise wrong(f"{text}; leave it out.", "row", place, "peer")
            if row.measure != "time" and row.peer not in self.peers:
                text = str(unknown_name("peer", row.peer, self.peers))
                raise wrong(text, "row", place, "peer")
        return self

    @property
    def rounds(self) -> dict[str, int]:
        """The number of rounds by scale."""
        return self.rounds_.model_dump()

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the table, and of controls."""
        rows = list(self.row)
        for row in self.row:
            if row.twice:
                what = f"{', '.join(row.setup.values())}: {self.peers[row.peer]}"
                control = Row(
                    backend=row.backend,
                    setup=row.setup,
                    what=f"{what}, built twice",
                    arm=row.peer + AGAIN,
                    peer=row.peer,
                    control=True,
                )
                rows.append(control)
        return rows

    @property
    def backends(self) -> list[str]:
        """The backends that have rows, without duplicates."""
        return list(dict.fromkeys(row.backend for row in self.rows))

    def setups(self, backend: str, scale: str = "std") -> dict[str, Setup]:
        """Return the setups of a backend by their ids; at scale quick, no controls."""
        variants: dict[str, list[str]] = {}
        configs = {}
        for row in self.rows:
            if row.backend == backend and (scale == "std" or not row.control):
                configs[row.setup_id] = row.setup
                variants.setdefault(row.setup_id, []).extend(row.variants)
        return {
            key: Setup(
                benchmark=self.name,
                task=self.task,
                id=key,
                config=config,
                variants=list(dict.fromkeys(variants[key])),
                rounds=self.rounds,
            )
            for key, config in configs.items()
        }


def known() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Benchmark:
    """Read a benchmark. Raise HarnessError with the nearest name if it is unknown."""
    if name not in known():
        raise HarnessError(str(unknown_name("benchmark", name, known())))
    return read(FOLDER / f"{name}.toml")


def read(path: Path) -> Benchmark:
    """Read a benchmark from its file.

    Raises:
        HarnessError: names file and key of the fault, and what is allowed there.
    """
    file = TomlFile(path)
    return file.checked(Benchmark, {**file.content, "name": path.stem, "path": path})
