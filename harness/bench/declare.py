"""Benchmarks as data: what is timed, against what, and what we aim at.

``NAME.toml`` declares one. Every ``[[row]]`` is a row of its table: a variant of a step
against a peer, or alone. Rows with the same ``setup`` are timed in the same rounds.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from harness.declarations.toml_files import (
    Positive,
    Table,
    Text,
    TomlFile,
    one_of,
    wrong,
)
from harness.errors import HarnessError
from harness.records.record import digest
from harness.tasks import own
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
        twice: whether the peer is also timed against itself, built a second time: a
            control.
        control: whether this row is one.
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
        return digest(self.setup, 12)

    @property
    def variants(self) -> list[str]:
        """The variants that must be timed for this row."""
        return [name for name in (self.arm, self.peer) if name]


class Setup(Table):
    """Variants that are timed together, in the same rounds.

    Attributes:
        benchmark: name of the benchmark.
        config: the settings with which the task builds the variants.
        variants: names of the variants.
    """

    benchmark: str
    task: str
    id: str
    config: dict[str, str]
    variants: tuple[str, ...]

    @property
    def key(self) -> str:
        """Unique name of the setup: ``BENCHMARK/ID``."""
        return f"{self.benchmark}/{self.id}"

    def __str__(self) -> str:
        return "-".join([self.benchmark, *self.config.values()])


class Benchmark(Table):
    """A question and the rows of its table.

    Attributes:
        answer: a clause in which ``{}`` is replaced by the values of the headlines.
        notes: sentences for the small print.
        peers: name of a peer -> its title.
    """

    name: str
    question: Text
    title: Text
    task: Text
    answer: Text
    notes: tuple[str, ...] = ()
    peers: dict[str, Text]
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

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the table, and of controls."""
        controls = [
            Row(
                backend=row.backend,
                setup=row.setup,
                what=f"{', '.join(row.setup.values())}: {self.peers[row.peer]}, "
                "built twice",
                arm=row.peer + AGAIN,
                peer=row.peer,
                control=True,
            )
            for row in self.row
            if row.twice
        ]
        return [*self.row, *controls]

    @property
    def backends(self) -> list[str]:
        """The backends that have rows, without duplicates."""
        return list(dict.fromkeys(row.backend for row in self.row))

    def setups(self, backend: str, scale: str = "std") -> list[Setup]:
        """Return the setups of a backend; at scale quick, without controls."""
        by_id: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.backend == backend and (scale == "std" or not row.control):
                by_id.setdefault(row.setup_id, []).append(row)
        return [
            Setup(
                benchmark=self.name,
                task=self.task,
                id=key,
                config=rows[0].setup,
                variants=tuple(dict.fromkeys(n for row in rows for n in row.variants)),
            )
            for key, rows in by_id.items()
        ]


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
    return file.checked(Benchmark, {**file.content, "name": path.stem})


def of_optimizer(place: str) -> Benchmark:
    """Return the benchmark of a user's own optimizer, ``mine.py:make``.

    Raises:
        HarnessError: the file cannot be used.
    """
    optimizer = own.described({"file": place})
    given = {"file": place, "text": optimizer["text"]}
    models = {"S400": "400 small tensors", "T25M": "23M parameters"}
    pairs = (
        ("ours", "adam", "your optimizer"),
        ("wrapped", "yours", "in the multitask wrapper"),
    )
    rows = [
        Row(
            backend=backend,
            setup={"model": model, **given},
            arm=arm,
            peer=peer,
            what=f"{what}, {size}",
        )
        for backend in ("pytorch", "keras3")
        for model, size in models.items()
        for arm, peer, what in pairs
    ]
    return Benchmark(
        name="own_optimizer",
        question="How long does a step of an own optimizer take?",
        title=optimizer["name"],
        task="own_optimizer",
        answer="A step of the optimizer takes {}",
        peers={"adam": "Adam", "yours": "the same without a wrapper"},
        row=tuple(rows),
    )
