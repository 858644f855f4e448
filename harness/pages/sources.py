"""The two sources of findings: experiments and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.bench import compare as bench
from harness.bench import declare as benchmarks
from harness.declarations import declare
from harness.judgement import compare
from harness.judgement.compare import counted_records
from harness.judgement.finding import Finding
from harness.records.record import Record


class Question(Protocol):
    """The declared properties that experiments and benchmarks have in common."""

    @property
    def name(self) -> str:
        """The name of its declaration's file."""
        ...

    @property
    def title(self) -> str:
        """A title of a few words."""
        ...

    @property
    def question(self) -> str:
        """The question in one sentence."""
        ...


class Figure(Protocol):
    """A drawn figure: NAME.light.svg, NAME.dark.svg and NAME.csv."""

    @property
    def name(self) -> str:
        """The first part of its files' names."""
        ...

    @property
    def alt(self) -> str:
        """The text for readers who cannot see the figure."""
        ...

    @property
    def caption(self) -> str:
        """How to read the figure."""
        ...


def draw(finding: Finding, folder: Path) -> Sequence[Figure]:
    """Draw the figures of a finding; import matplotlib only when called."""
    from harness.figures import plot

    return plot.draw(finding, folder)


def no_summary(findings: Sequence[Finding]) -> str:
    """Return no summary."""
    return ""


def experiments() -> list[Question]:
    """Return the experiments, in the order of their names."""
    return [declare.find(name) for name in declare.known()]


def timings() -> list[Question]:
    """Return the benchmarks, in the order of their names."""
    return [benchmarks.find(name) for name in benchmarks.known()]


@dataclass(frozen=True)
class Source:
    """One kind of question: how to list, compare and draw it, and how to run it again.

    The callables are functions of modules, because they are pickled by name for other
    processes.

    ``shows_answers``: whether the list of all questions also shows their answers.
    """

    folder: str
    title: str
    introduction: str
    questions: Callable[[], Sequence[Question]]
    compare: Callable[[Any, Path], Finding | None]
    commands: Mapping[str, str]
    draw: Callable[[Finding, Path], Sequence[Figure]] = draw
    summary: Callable[[Sequence[Finding]], str] = no_summary
    shows_answers: bool = False
    counted: Callable[[Any, Path], Sequence[Record]] = counted_records

    def introduction_to(self, findings: Sequence[Finding]) -> str:
        """Return the introduction, followed by the summary of all findings."""
        return f"{self.introduction} {self.summary(findings)}".strip()

    def commands_for(self, name: str) -> dict[str, str]:
        """Return the commands with the name filled in."""
        return {what: line.format(name=name) for what, line in self.commands.items()}


EXPERIMENTS = Source(
    folder="experiments",
    title="Experiments",
    introduction="Each experiment asks one question. The numbers of its answer "
    "come from the published results when this site is built.",
    questions=experiments,
    compare=compare.compare,
    commands={
        "Quick, with plots and this site": ".venv/bin/nox -s reproduce -- {name}",
        "At the scale that is published": (
            ".venv/bin/nox -s reproduce -- {name} --scale std"
        ),
    },
)
BENCHMARKS = Source(
    folder="benchmarks",
    title="Benchmarks",
    introduction=(
        "How much time a step takes with a wrapper, compared with the bare optimizer "
        "or with another implementation."
    ),
    questions=timings,
    compare=bench.compare,
    summary=bench.controls_summary,
    shows_answers=True,
    commands={
        "Quick: one process, no verdicts": ".venv/bin/nox -s bench -- {name} --quick",
        "As published: six processes": ".venv/bin/nox -s bench -- {name}",
    },
)
