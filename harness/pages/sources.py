"""The two sources of findings: experiments and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.bench import compare as bench
from harness.bench import declare as benchmarks
from harness.bench.declare import Benchmark
from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.judgement import compare
from harness.judgement.finding import Finding

if TYPE_CHECKING:
    from harness.figures.plot import Figure


Question: TypeAlias = Experiment | Benchmark


def draw(finding: Finding, folder: Path) -> Sequence[Figure]:
    """Draw the figures of a finding; import matplotlib only when called."""
    from harness.figures import plot

    return plot.draw(finding, folder)


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
    shows_answers: bool = False

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
    shows_answers=True,
    commands={
        "Quick: one process, no verdicts": ".venv/bin/nox -s bench -- {name} --quick",
        "As published: six processes": ".venv/bin/nox -s bench -- {name}",
    },
)
