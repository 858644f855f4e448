"""Pages that sum up several experiments, and the table of what was measured.

``experiments/pages.toml`` declares the pages. Each has the answer and the first figure
of its experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.declarations import declare
from harness.declarations.toml_files import Table, Text, TomlFile
from harness.errors import HarnessError
from harness.pages.findings import Answered
from harness.pages.tables import Badge
from harness.pages.templating import render
from lockstep.errors import unknown_name

FOLDER = "generated/experiments/"


class Page(Table):
    """A page and the experiments that it sums up, the most important one first."""

    name: Text
    title: Text
    question: Text
    experiments: tuple[Text, ...]


class Pages(Table):
    """All pages, in their order."""

    page: tuple[Page, ...]


def pages(path: Path = declare.PAGES) -> list[Page]:
    """Return the declared pages, then one for each experiment that none of them has.

    Raises:
        HarnessError: the file is malformed, or names an unknown experiment.
    """
    file = TomlFile(path)
    declared = list(file.checked(Pages, file.content).page)
    known, listed = declare.known(), [n for p in declared for n in p.experiments]
    for name in listed:
        if name not in known:
            text = f"{path.name}: {unknown_name('experiment', name, known)}"
            raise HarnessError(text)
    others = [declare.find(name) for name in known if name not in listed]
    return [
        *declared,
        *(
            Page(name=o.name, title=o.title, question=o.question, experiments=(o.name,))
            for o in others
        ),
    ]


def navigation() -> Iterator[dict[str, Any]]:
    """Yield the entries of the navigation: pages, with their experiments below."""
    for page in pages():
        parts = [f"{FOLDER}{name}.md" for name in page.experiments]
        if len(parts) > 1:
            yield {page.title: [f"{FOLDER}{page.name}/index.md", *parts]}
        else:
            yield {page.title: parts[0]}


@dataclass(frozen=True)
class Summary:
    """A page with the answers of its experiments.

    Attributes:
        question: its name, title and question.
        parts: its experiments; a page of one is that of the experiment itself.
    """

    question: Page
    parts: Sequence[Answered]

    @property
    def place(self) -> str:
        """Where the page is, without its ending, from the folder of experiments."""
        name = self.question.name
        return f"{name}/index" if len(self.parts) > 1 else name

    @property
    def badges(self) -> list[Badge]:
        """The different verdicts of its experiments."""
        return list(dict.fromkeys(b for part in self.parts for b in part.badges))


def summaries(answers: Iterable[Answered]) -> list[Summary]:
    """Return all pages with the answers of their experiments."""
    by_name = {answered.question.name: answered for answered in answers}
    found = (
        Summary(page, [by_name[n] for n in page.experiments if n in by_name])
        for page in pages()
    )
    return [summary for summary in found if summary.parts]


def summary_page(summary: Summary) -> str:
    """Return the page of a summary; those of its experiments lie one folder above."""
    return render("summary.md.jinja", summary=summary)


# -- what was measured -----------------------------------------------------------------

CONVERGENCE, THROUGHPUT = "convergence", "throughput"
AREAS: Mapping[tuple[str, str], Sequence[str]] = {
    ("Multitask", CONVERGENCE): (
        "absent_tasks_tuned",
        "absent_tasks",
        "absent_genres",
        "skipping_hurts",
    ),
    ("Multitask", THROUGHPUT): ("training_throughput", "multitask_overhead"),
    ("Embedding clipping", CONVERGENCE): ("recommender", "link_prediction"),
    ("Embedding clipping", THROUGHPUT): ("training_throughput", "row_clipping"),
    ("Mixed precision", CONVERGENCE): ("mixed_precision", "mixed_precision_text"),
    ("Mixed precision", THROUGHPUT): (
        "throughput",
        "training_throughput",
        "loss_scaling",
        "masters",
    ),
    ("Asynchronous workers", CONVERGENCE): (
        "worker_processes",
        "asynchronous_rates",
        "asynchronous_workers",
    ),
    ("Asynchronous workers", THROUGHPUT): ("worker_processes",),
}
"""Tool and question -> the experiments and benchmarks that ask it."""

BACKENDS = {"pytorch": "PyTorch", "tf": "TensorFlow", "keras3": "Keras 3"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def coverage(experiments: Sequence[Answered], benchmarks: Sequence[Answered]) -> str:
    """Return the table; a cell has links, or says that nothing was measured there.

    The asynchronous workers of the NumPy reference are simulated, on no device.
    """
    places = {each.question.name: "" for each in experiments}
    places |= {each.question.name: "../benchmarks/" for each in benchmarks}
    measured = [each for each in (*experiments, *benchmarks) if each.published]

    def links(names: Sequence[str], backend: str, device: str) -> list[tuple[str, str]]:
        found = {
            each.question.name: each.question.title
            for each in measured
            if each.finding and (backend, device) in _subjects(each.finding.provenance)
        }
        return [(f"{places[n]}{n}.html", found[n]) for n in names if n in found]

    rows = [
        (
            f"{tool}: {asks}",
            [
                *(
                    [(text, links(names, of, key)) for key, text in DEVICES.items()]
                    for of in BACKENDS
                ),
                [("Simulated", links(names, "reference", "cpu"))],
            ],
        )
        for (tool, asks), names in AREAS.items()
    ]
    return render("coverage.html.jinja", names=[*BACKENDS.values(), "NumPy"], rows=rows)


def _subjects(provenance: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the backends and devices of records."""
    subjects = provenance.get("subjects", [])
    return {(subject["backend"], subject["device"]) for subject in subjects}
