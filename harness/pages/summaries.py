"""Pages that sum up several experiments: each one's answer and first figure.

``experiments/pages.toml`` declares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Summary:
    """A page with the answers of its experiments.

    Attributes:
        question: its name, title and question, as those of an experiment.
        parts: its experiments; a page of one is that of the experiment itself.
    """

    question: Any
    parts: Sequence[Answered]

    @property
    def place(self) -> str:
        """Where the page is, without its ending, from the folder of experiments."""
        name = str(self.question.name)
        return f"{name}/index" if len(self.parts) > 1 else name

    @property
    def badges(self) -> list[Badge]:
        """The different verdicts of its experiments."""
        return list(dict.fromkeys(b for part in self.parts for b in part.badges))


def pages(path: Path | None = None) -> list[Any]:
    """Return the declared pages, then the experiments that none of them has.

    Raises:
        HarnessError: the file is malformed, or names an unknown experiment.
    """
    path = path or declare.PAGES
    file = TomlFile(path)
    declared = list(file.checked(Pages, file.content).page)
    known, listed = declare.known(), [n for p in declared for n in p.experiments]
    for name in listed:
        if name not in known:
            text = f"{path.name}: {unknown_name('experiment', name, known)}"
            raise HarnessError(text)
    return [*declared, *(declare.find(n) for n in known if n not in listed)]


def summaries(answers: Sequence[Answered]) -> list[Summary]:
    """Return all pages with the answers of their experiments."""
    by_name = {answered.question.name: answered for answered in answers}
    found = []
    for page in pages():
        names = getattr(page, "experiments", (page.name,))
        parts = [by_name[name] for name in names if name in by_name]
        if parts:
            found.append(Summary(page, parts))
    return found


def summary_page(summary: Summary) -> str:
    """Return the page of a summary; those of its experiments lie one folder above."""
    return render("summary.md.jinja", summary=summary)


def navigation() -> list[dict[str, Any]]:
    """Return the entries of the navigation: pages, with their experiments below."""
    entries: list[dict[str, Any]] = []
    for page in pages():
        names = getattr(page, "experiments", ())
        parts = [{declare.find(n).title: f"{FOLDER}{n}.md"} for n in names]
        index = f"{FOLDER}{page.name}/index.md"
        own = [index, *parts] if parts else f"{FOLDER}{page.name}.md"
        entries.append({page.title: own})
    return entries


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
        "asynchronous_rates",
        "asynchronous_workers",
    ),
    ("Asynchronous workers", THROUGHPUT): ("worker_throughput", "slow_link"),
}
"""Tool and question -> the experiments and benchmarks that ask it."""

BACKENDS = {"pytorch": "PyTorch", "tf": "TensorFlow", "keras3": "Keras 3"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def coverage(experiments: Sequence[Answered], benchmarks: Sequence[Answered]) -> str:
    """Return the table; a cell has links, or says that nothing was measured there.

    The asynchronous workers of the NumPy reference are simulated, on no device.
    """
    found = {each.question.name: ("", each) for each in experiments}
    found |= {each.question.name: ("../benchmarks/", each) for each in benchmarks}

    def links(names: Sequence[str], backend: str, device: str) -> list[tuple[str, str]]:
        return [
            (f"{folder}{each.question.name}.html", each.question.title)
            for folder, each in map(found.__getitem__, filter(found.get, names))
            if (backend, device) in places_of(each)
        ]

    rows = [
        (
            f"{tool}: {asks}",
            [
                [(text, links(names, backend, key)) for key, text in DEVICES.items()]
                for backend in BACKENDS
            ]
            + [[("Simulated", links(names, "reference", "cpu"))]],
        )
        for (tool, asks), names in AREAS.items()
    ]
    return render("coverage.html.jinja", names=[*BACKENDS.values(), "NumPy"], rows=rows)


def places_of(answered: Answered) -> set[tuple[str, str]]:
    """Return backend and device of published records."""
    if not answered.published or answered.finding is None:
        return set()
    subjects = answered.finding.provenance.get("subjects", [])
    return {(subject["backend"], subject["device"]) for subject in subjects}
