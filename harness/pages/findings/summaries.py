"""Pages that sum up several experiments: each one's answer and first figure.

``experiments/pages.toml`` declares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.declarations import declare
from harness.declarations.toml_files import Table, Text, TomlFile
from harness.errors import HarnessError
from harness.pages.findings.page import Answered
from harness.pages.markup.badges import Badge
from harness.pages.markup.templating import render
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
