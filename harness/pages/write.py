"""Write ``docs/generated/``: first all pages apart, then the files that change."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.errors import HarnessError
from harness.judgement.compare import age_of, counted_records
from harness.judgement.finding import Finding
from harness.pages.claims import OF_SOURCES, claims_page, ledger
from harness.pages.differences import contents_insert
from harness.pages.findings import (
    Answered,
    finding_page,
    index_page,
    table_files,
    thumbnails,
)
from harness.pages.library import parallel_table, problems_insert
from harness.pages.names import names_insert
from harness.pages.oracle import oracle_inserts
from harness.pages.parity import heat_map, parity_inserts
from harness.pages.readme import DRAWN
from harness.pages.reference import reference_inserts, reference_pages
from harness.pages.sources import (
    BENCHMARKS,
    EXPERIMENTS,
    Question,
    Source,
)
from harness.pages.summaries import Summary, coverage, summaries, summary_page
from harness.pages.templating import render
from harness.records.files import folder as records
from harness.tasks import part

if TYPE_CHECKING:
    from harness.figures.plot import Figure

ROOT = Path(__file__).resolve().parent.parent.parent
BACKENDS = ROOT / "impls" / "lockstep"

SHOWN = 6
"""The number of cards of experiments on the home page."""

Spread: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def write_pages(
    docs: Path = ROOT / "docs",
    results: Path = ROOT / "results",
    jobs: int = 1,
    done: Callable[[], Any] = lambda: None,
) -> list[Path]:
    """Write every generated page, figure and insert; return the files that changed.

    Nothing is changed if a page cannot be made. A file with the same content keeps its
    time.

    Args:
        docs: the folder that contains ``generated``.
        results: the folder of the records.
        jobs: the number of processes that compare and draw.
        done: called after each of the :func:`questions`.
    """
    target, changed = docs / "generated", list[Path]()
    with _staged(target, changed) as folder, _processes(jobs) as spread:
        answers = write_findings(folder, EXPERIMENTS, results, spread, done)
        timed = write_findings(folder, BENCHMARKS, results, spread, done)
        _write(folder / "claims.md", claims_page([*answers, *timed]))
        pages, home = summaries(answers), folder / "experiments"
        for page in pages:
            if len(page.parts) > 1:
                _write(home / f"{page.place}.md", summary_page(page))
        index = index_page(EXPERIMENTS, answers, pages, coverage(answers, timed))
        _write(home / "index.md", index)
        inserts = {
            **parity_inserts(results),
            **oracle_inserts(results),
            **home_inserts(pages, answers, timed, results),
            **_costs(timed),
            "data_parallel": parallel_table(),
            "differences_contents": contents_insert(),
            **reference_inserts(BACKENDS),
            "names": names_insert(),
            "problems": problems_insert(),
        }
        for name, text in inserts.items():
            _write(folder / "inserts" / f"{name}.md", text)
        for path, text in reference_pages(BACKENDS).items():
            _write(folder / "reference" / path, text)
    return sorted(changed)


def questions() -> dict[str, Source]:
    """Return the name of each experiment and benchmark with its source."""
    return {
        question.name: source
        for source in (EXPERIMENTS, BENCHMARKS)
        for question in source.questions()
    }


def write_page(name: str, docs: Path = ROOT / "docs") -> Path:
    """Write the page of one experiment or benchmark, with its figures and tables.

    The other pages that quote it are written by :func:`write_pages`.
    """
    source = questions()[name]
    one = replace(
        source, questions=lambda: [q for q in source.questions() if q.name == name]
    )
    home = docs / "generated" / source.folder
    with tempfile.TemporaryDirectory() as staging:
        write_findings(Path(staging), one, ROOT / "results")
        new = Path(staging) / source.folder
        shutil.rmtree(home / name, ignore_errors=True)
        shutil.copytree(new / name, home / name)
        shutil.copy(new / f"{name}.md", home)
    return home / f"{name}.md"


def home_inserts(
    pages: Sequence[Summary],
    experiments: Sequence[Answered],
    benchmarks: Sequence[Answered],
    results: Path,
) -> dict[str, str]:
    """Return the inserts of the home page by name.

    The caption beside its figure is empty without results.
    """
    claims = ledger([*experiments, *benchmarks])[OF_SOURCES]
    tested = [row for row in claims if row["badge"].style != "none"]
    drawn = (
        answered.finding
        for answered in experiments
        if answered.question.name == DRAWN and answered.published and answered.finding
    )
    heads = (part(each.task, "report").brief(each).caption for each in drawn)
    return {
        "home_claims": render("home_claims.html.jinja", rows=tested),
        "home_heads": "".join(heads),
        "home_experiments": thumbnails(pages[:SHOWN], "generated/experiments/"),
        "home_parity": heat_map(results),
    }


def _costs(timed: list[Answered]) -> dict[str, str]:
    """Return the insert ``cost_NAME`` of each benchmark, for a page in a subfolder."""
    return {
        f"cost_{answered.question.name}{end}": render(
            "cost.md.jinja", answered=answered, up=up
        )
        for answered in timed
        for end, up in (("", "../"), ("_top", ""))
    }


@contextmanager
def _processes(count: int) -> Iterator[Spread]:
    """Yield a function like ``map`` that uses ``count`` processes; 1 is this one."""
    if count == 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context) as pool:
        yield pool.map


def write_findings(
    folder: Path,
    source: Source,
    results: Path,
    spread: Spread = map,
    done: Callable[[], Any] = lambda: None,
) -> list[Answered]:
    """Write an index and a page per question, with figures and tables as files.

    ``spread``: a function like ``map``, for the slow part of each question.
    ``done``: called after each question.
    """
    home = folder / source.folder
    answer = partial(_answer, home, source, results)
    answers = []
    for answered in spread(answer, source.questions()):
        answers.append(_with_age(answered, source, results))
        done()
    for answered in answers:
        for problem in answered.problems:
            warnings.warn(problem, stacklevel=2)
        name = answered.question.name
        _write(home / f"{name}.md", finding_page(answered, source.commands_for(name)))
    _write(home / "index.md", index_page(source, answers))
    return answers


def _answer(home: Path, source: Source, results: Path, question: Question) -> Answered:
    """Compare and draw one question; write its figures and tables."""
    published = records(question.name, True, results).is_dir()
    try:
        finding = source.compare(question, results)
    except HarnessError as error:
        return Answered(question, None, published, problems=(str(error),))
    if finding is None:
        return Answered(question, None, published)
    files, problems = home / question.name, list[str]()
    figures = _draw(source, finding, files, problems)
    own_figures: Sequence[Figure] = ()
    if finding.local is not None:
        own_figures = _draw(source, finding.local, files / "own", problems)
    return Answered(question, finding, published, figures, own_figures, problems)


def _with_age(answered: Answered, source: Source, results: Path) -> Answered:
    """Add the age of the records; if they cannot be read, drop the finding."""
    question, published = answered.question, answered.published
    if answered.finding is None:
        return answered
    try:
        place = records(question.name, published, results)
        age = age_of(counted_records(question, place))
    except HarnessError as error:
        return Answered(question, None, published, problems=(str(error),))
    return replace(answered, age=age)


def _draw(
    source: Source, finding: Finding, folder: Path, problems: list[str]
) -> Sequence[Figure]:
    """Write tables and figures; append to ``problems`` if drawing fails."""
    _write_tables(folder, finding)
    try:
        return source.draw(finding, folder)
    except HarnessError as error:
        problems.append(str(error))
        return ()


def _write_tables(folder: Path, finding: Finding) -> None:
    for name, text in table_files(finding).items():
        _write(folder / name, text)


@contextmanager
def _staged(target: Path, changed: list[Path]) -> Iterator[Path]:
    """Yield an empty folder, whose files replace ``target``; list those that change."""
    with tempfile.TemporaryDirectory(prefix="pages-") as staging:
        yield Path(staging)
        new = {
            path.relative_to(staging): path.read_bytes()
            for path in Path(staging).rglob("*")
            if path.is_file()
        }
    for name, content in new.items():
        path = target / name
        if not (path.is_file() and path.read_bytes() == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            changed.append(path)
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target) not in new:
            path.unlink()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", newline="\n")
