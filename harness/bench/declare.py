"""Benchmarks as data: the setups that are timed, their peers, and the goals.

Every ``[[row]]`` is a row of the table. In a ``[[control]]`` a variant is timed against
itself, built twice. A ``[[growth]]`` gives one row for each of its points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.declarations.toml_files import Key, TomlFile
from harness.errors import HarnessError
from harness.records.record import digest
from harness.timing import AGAIN
from lockstep.errors import unknown_name
from lockstep.registry import BACKENDS

__all__ = ["FOLDER", "Benchmark", "Row", "find", "known", "read"]

FOLDER = Path(__file__).parent

MEASURED = tuple(name for name, backend in BACKENDS.items() if backend.framework)
"""Backends for which a task can have a file with steps."""

SCALES = ("quick", "std")

MEASURES = ("ratio", "difference", "time")
"""Arm's time / peer's time; arm's time - peer's time; the arm's time alone."""

TEXTS = ("question", "title", "task", "answer")
TABLES = ("peers", "rounds", "row")
OPTIONAL_TABLES = ("control", "growth")
ROW = ("backend", "setup", "what")
OPTIONAL_ROW = ("arm", "peer", "measure", "goal", "limit", "headline")
CONTROL = ("backend", "setup", "peer")
GROWTH = ("name", "backend", "setup", "vary", "points", "what")
OPTIONAL_GROWTH = ("arm", "peer", "measure")


@dataclass(frozen=True)
class Row:
    """A variant of a step in one setup, against a peer or alone.

    Attributes:
        arm: the variant that is judged.
        peer: the variant that it is compared with; empty if ``measure`` is ``time``.
        measure: one of ``MEASURES``. Differences and times are microseconds per step.
        goal: the largest value that meets the goal, if there is one.
        limit: why the arm cannot reach the goal, shown if the goal is missed.
        headline: text that follows the value in the answer. Rows without one are not in
            the answer.
        control: whether arm and peer are the same variant, built twice.
        growth: what grows along the points of a line; empty for a row of the table.
        x: position of the row on that line.
    """

    backend: str
    setup: Mapping[str, str]
    what: str
    arm: str = "ours"
    peer: str = ""
    measure: str = "ratio"
    goal: float | None = None
    limit: str = ""
    headline: str = ""
    control: bool = False
    growth: str = ""
    x: float | None = None

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


@dataclass(frozen=True)
class Benchmark:
    """A question, the rows of its table and the number of rounds.

    Attributes:
        answer: a clause in which ``{}`` is replaced by the values of the headlines.
        notes: sentences for the small print.
        peers: name of a peer -> its title.
        rounds: scale -> number of rounds for each variant in a process.
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
        """The backends that have rows, without duplicates."""
        return list(dict.fromkeys(row.backend for row in self.rows))

    def setups(self, backend: str) -> dict[str, Setup]:
        """Return the setups of a backend by their ids."""
        rows = [row for row in self.rows if row.backend == backend]
        configs = {row.setup_id: row.setup for row in rows}
        return {
            key: Setup(
                benchmark=self.name,
                task=self.task,
                id=key,
                config=config,
                variants=list(
                    dict.fromkeys(
                        name
                        for row in rows
                        if row.setup_id == key
                        for name in row.variants
                    )
                ),
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
        HarnessError: names file, line and key of the fault, and what is allowed there.
    """
    file = TomlFile(path)
    required = (*TEXTS, *TABLES)
    file.require_keys((), (*required, "notes", *OPTIONAL_TABLES), required)
    for name in TEXTS:
        _require_text(file, (name,))
    _require_notes_and_tables(file)
    rows = [*_rows(file), *_controls(file), *_growth(file)]
    content = file.content
    return Benchmark(
        name=path.stem,
        rows=rows,
        path=path,
        notes=content.get("notes", []),
        peers=content["peers"],
        rounds=content["rounds"],
        **{name: content[name] for name in TEXTS},
    )


def _require_notes_and_tables(file: TomlFile) -> None:
    notes = file.content.get("notes", [])
    texts = isinstance(notes, list) and all(isinstance(note, str) for note in notes)
    file.require(texts, ("notes",), "a list of sentences")
    file.require_keys(("peers",), file.content["peers"])
    for peer in file.content["peers"]:
        _require_text(file, ("peers", peer))
    file.require_keys(("rounds",), SCALES, SCALES)
    for scale in SCALES:
        rounds = file.value(("rounds", scale))
        counted = type(rounds) is int and rounds > 0
        file.require(counted, ("rounds", scale), "a number of rounds, 1 or more")
    for name in ("row", *OPTIONAL_TABLES):
        entries = file.content.get(name, [])
        file.require(isinstance(entries, list), (name,), f"tables, each [[{name}]]")


def _rows(file: TomlFile) -> Iterator[Row]:
    for place, content in enumerate(file.content["row"]):
        key: Key = ("row", place)
        file.require_keys(key, (*ROW, *OPTIONAL_ROW), ROW)
        for name in ("what", "limit", "headline", "arm"):
            if name in content:
                _require_text(file, (*key, name))
        goal = content.get("goal", 1.0)
        number = isinstance(goal, int | float) and not isinstance(goal, bool)
        file.require(number and goal > 0, (*key, "goal"), "a number above 0")
        _require_setup(file, key)
        _require_measure(file, key)
        yield Row(**content)


def _controls(file: TomlFile) -> Iterator[Row]:
    for place, content in enumerate(file.content.get("control", [])):
        key: Key = ("control", place)
        file.require_keys(key, CONTROL, CONTROL)
        _require_setup(file, key)
        _require_measure(file, key)
        name = file.content["peers"].get(content["peer"], content["peer"])
        what = f"{', '.join(content['setup'].values())}: {name}, built twice"
        yield Row(**content, what=what, arm=content["peer"] + AGAIN, control=True)


def _growth(file: TomlFile) -> Iterator[Row]:
    for place, content in enumerate(file.content.get("growth", [])):
        key: Key = ("growth", place)
        file.require_keys(key, (*GROWTH, *OPTIONAL_GROWTH), GROWTH)
        for name in ("name", "what", "vary"):
            _require_text(file, (*key, name))
        _require_setup(file, key)
        _require_measure(file, key)
        points = content["points"]
        file.require(
            isinstance(points, Mapping)
            and len(points) > 1
            and all(type(x) in (int, float) for x in points.values()),
            (*key, "points"),
            "a table of at least two points, value of the setting = number on the axis",
        )
        rest = {name: content[name] for name in OPTIONAL_GROWTH if name in content}
        for value, x in points.items():
            yield Row(
                backend=content["backend"],
                setup={**content["setup"], content["vary"]: value},
                what=content["what"],
                growth=content["name"],
                x=float(x),
                **rest,
            )


def _require_setup(file: TomlFile, key: Key) -> None:
    """Require a backend that can be timed, and settings that are texts."""
    content = file.value(key)
    if content["backend"] not in MEASURED:
        raise file.unknown((*key, "backend"), "backend", MEASURED)
    setup = content["setup"]
    texts = isinstance(setup, Mapping) and all(
        isinstance(value, str) for value in setup.values()
    )
    file.require(texts, (*key, "setup"), "a table of settings, each a text")


def _require_measure(file: TomlFile, key: Key) -> None:
    """Require a known measure, and a peer if the measure compares."""
    content = file.value(key)
    measure = content.get("measure", "ratio")
    if measure not in MEASURES:
        raise file.unknown((*key, "measure"), "measure", MEASURES)
    if measure == "time":
        text = "no peer, since a time is compared with nothing"
        file.require("peer" not in content, (*key, "peer"), text, "leave it out")
    elif "peer" not in content:
        text = f"one of {', '.join(file.content['peers'])}"
        raise file.error((*key, "peer"), text, "none", "write it there")
    elif content["peer"] not in file.content["peers"]:
        raise file.unknown((*key, "peer"), "peer", file.content["peers"])


def _require_text(file: TomlFile, key: Key) -> None:
    value: Any = file.value(key)
    file.require(isinstance(value, str) and bool(value), key, "a text")
