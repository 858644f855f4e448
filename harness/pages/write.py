"""Write ``docs/generated/``: all pages into a scratch folder, then those that differ.

:func:`write_pages` writes everything, :func:`write_page` the page of one experiment or
benchmark.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bench import compare as bench
from harness.bench import declare as benchmarks
from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures import plot
from harness.judgement import compare
from harness.judgement.finding import Finding
from harness.pages.claims import OF_SOURCES, claims_page, ledger
from harness.pages.findings import (
    Answered,
    Question,
    finding_page,
    index_page,
    table_files,
    thumbnails,
)
from harness.pages.names import names_insert
from harness.pages.oracle import oracle_inserts
from harness.pages.parity import parity_inserts
from harness.pages.summaries import coverage, summaries, summary_page
from harness.pages.templating import as_text, render
from harness.records.files import RESULTS
from harness.records.files import folder as records

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

SHOWN = 6
"""The number of cards of experiments on the home page."""


@dataclass(frozen=True)
class Source:
    """One kind of question: how to list and compare it, and how to run it again.

    Attributes:
        folder: the folder of its pages.
        questions: returns all of them.
        compare: returns the finding of one from a folder of results.
        commands: what a command does -> the command.
    """

    folder: str
    questions: Callable[[], Sequence[Question]]
    compare: Callable[[Any, Path], Finding | None]
    commands: Mapping[str, str]


EXPERIMENTS = Source(
    folder="experiments",
    questions=lambda: [declare.find(name) for name in declare.known()],
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
    questions=lambda: [benchmarks.find(name) for name in benchmarks.known()],
    compare=bench.compare,
    commands={
        "Quick: one process, no verdicts": ".venv/bin/nox -s bench -- {name} --quick",
        "As published: six processes": ".venv/bin/nox -s bench -- {name}",
    },
)


def write_pages(
    docs: Path = DOCS,
    results: Path = RESULTS,
    done: Callable[[], Any] = lambda: None,
) -> list[Path]:
    """Write every generated page, figure and insert; return the files that changed.

    Nothing is changed if a page cannot be made. A file with the same content keeps its
    time.

    Args:
        docs: the folder that contains ``generated``.
        results: the folder of the records.
        done: called after each experiment and benchmark.
    """
    with tempfile.TemporaryDirectory(prefix="pages-") as scratch:
        folder = Path(scratch)
        answers = write_findings(folder, EXPERIMENTS, results, done)
        timed = write_findings(folder, BENCHMARKS, results, done)
        texts = overviews(answers, timed)
        for name, text in inserts(answers, timed, results).items():
            texts[f"inserts/{name}.md"] = text
        for name, text in texts.items():
            _write(folder / name, text)
        return _replace(docs / "generated", folder)


def write_page(name: str, docs: Path = DOCS) -> Path:
    """Write the page of one experiment or benchmark, with its figures and tables.

    The other pages that quote it are written by :func:`write_pages`.
    """
    source, question = next(
        (source, question)
        for source in (EXPERIMENTS, BENCHMARKS)
        for question in source.questions()
        if question.name == name
    )
    home = docs / "generated" / source.folder
    shutil.rmtree(home / name, ignore_errors=True)
    write_finding(home, source, question, RESULTS)
    return home / f"{name}.md"


def write_findings(
    folder: Path,
    source: Source,
    results: Path,
    done: Callable[[], Any] = lambda: None,
) -> list[Answered]:
    """Write a page for each question of a source, with figures and tables as files."""
    answers = []
    for question in source.questions():
        answered = write_finding(folder / source.folder, source, question, results)
        for problem in answered.problems:
            warnings.warn(problem, stacklevel=2)
        answers.append(answered)
        done()
    return answers


def write_finding(
    home: Path, source: Source, question: Question, results: Path
) -> Answered:
    """Compare and draw one question; write its page, figures and tables.

    Records that cannot be read and figures that cannot be drawn are problems, which the
    page shows.
    """
    name, problems = question.name, list[str]()
    finding = None
    try:
        finding = source.compare(question, results)
    except HarnessError as error:
        problems.append(str(error))
    own = finding.local if finding else None
    answered = Answered(
        question,
        finding,
        published=records(name, True, results).is_dir(),
        figures=_draw(finding, home / name, problems),
        own_figures=_draw(own, home / name / "own", problems),
        problems=problems,
    )
    commands = {what: line.format(name=name) for what, line in source.commands.items()}
    _write(home / f"{name}.md", finding_page(answered, commands))
    return answered


def _draw(
    finding: Finding | None, folder: Path, problems: list[str]
) -> Sequence[plot.Figure]:
    """Write tables and figures; append to ``problems`` if drawing fails."""
    if finding is None:
        return ()
    for name, text in table_files(finding).items():
        _write(folder / name, text)
    try:
        return plot.draw(finding, folder)
    except HarnessError as error:
        problems.append(str(error))
        return ()


def overviews(answers: Sequence[Answered], timed: Sequence[Answered]) -> dict[str, str]:
    """Return path -> text of the pages that show several questions."""
    pages = summaries(answers)
    experiments = index_page(
        "Experiments",
        "Each experiment asks one question. The numbers of its answer come from the "
        "published results when this site is built.",
        coverage(answers, timed),
        thumbnails(pages),
    )
    benchmarks = index_page(
        "Benchmarks",
        "How much time a step takes with a wrapper, compared with the bare optimizer "
        "or with another implementation.",
        "",
        thumbnails(timed, with_answers=True),
    )
    return {
        "claims.md": claims_page([*answers, *timed]),
        "experiments/index.md": experiments,
        "benchmarks/index.md": benchmarks,
        **{
            f"experiments/{page.place}.md": summary_page(page)
            for page in pages
            if len(page.parts) > 1
        },
    }


def inserts(
    answers: Sequence[Answered], timed: Sequence[Answered], results: Path
) -> dict[str, str]:
    """Return name -> text of what pages written by hand include."""
    claims = ledger([*answers, *timed])[OF_SOURCES]
    tested = [row for row in claims if row["badge"].style != "none"]
    shown = summaries(answers)[:SHOWN]
    return {
        "home_claims": render("home_claims.html.jinja", rows=tested),
        "home_experiments": thumbnails(shown, "generated/experiments/"),
        "names": names_insert(),
        **{f"cost_{each.question.name}": f"{as_text(each.answer)}\n" for each in timed},
        **oracle_inserts(results),
        **parity_inserts(results),
    }


def _replace(target: Path, folder: Path) -> list[Path]:
    """Make ``target`` equal to a folder; return the files that change, sorted."""
    new = {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target) not in new:
            path.unlink()
    changed = []
    for name, content in new.items():
        path = target / name
        if not (path.is_file() and path.read_bytes() == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            changed.append(path)
    return sorted(changed)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="\n")
