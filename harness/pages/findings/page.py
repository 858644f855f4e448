"""A finding as a page: question, answer, pictures, tables, small print.

The same page serves experiments and benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from harness.declarations.declare import Experiment
from harness.judgement.claims import NO_VERDICT, NOT_MEASURED
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.verdicts import NOT_JUDGED
from harness.pages.findings.sources import Figure, Question
from harness.pages.findings.verdicts import results_html, verdict_sentence
from harness.pages.markup.badges import Badge
from harness.pages.markup.tables import Cell, frame_table, records_table, table
from harness.pages.markup.templating import render
from harness.records.staleness import Staleness

__all__ = ["Answered", "finding_page", "index_page", "table_files", "thumbnails"]

LONGEST = 500
"""Rows of a table that a page still shows; a longer one is a download only."""


@dataclass(frozen=True)
class Answered:
    """A question with what was found out; nothing if no result is there.

    Attributes:
        published: whether there are published results; else they are a user's own.
        figures: the figures of the finding, drawn.
        own_figures: those of a user's own run that stands beside the published one.
        problems: sentences about records that cannot be read, or figures not drawn.
        staleness: of the records that the finding is judged from.
        charts: the data of figures that a reader can explore, by their names.
    """

    question: Question
    finding: Finding | None
    published: bool
    figures: Sequence[Figure] = ()
    own_figures: Sequence[Figure] = ()
    problems: Sequence[str] = ()
    staleness: Staleness | None = None
    charts: Mapping[str, Markup] = field(default_factory=dict)

    @property
    def stale(self) -> str:
        """How many records are stale and why; nothing if none is."""
        return str(self.staleness) if self.staleness and self.staleness.stale else ""

    @property
    def answer(self) -> str:
        """The answer in one sentence."""
        if self.finding:
            return self.finding.answer
        return "Not judged." if self.problems else "Not measured yet."

    @property
    def badge(self) -> Badge:
        """The verdict, or why there is none."""
        if self.finding is None:
            return Badge(NOT_JUDGED if self.problems else NOT_MEASURED)
        if not self.published:
            return Badge("your own run")
        predicts = PREDICTIONS in self.finding.tables
        return Badge(self.finding.verdict or (NOT_JUDGED if predicts else NO_VERDICT))


def finding_page(answered: Answered, commands: Mapping[str, str]) -> str:
    """Return the page of a question whose files lie in the folder of its name.

    ``commands`` maps what a command does to the command.
    """
    finding = answered.finding
    own = finding.local if finding else None
    return render(
        "finding.md.jinja",
        answered=answered,
        name=answered.question.name,
        finding=finding,
        figures=[(_sentence(figure.name), figure) for figure in answered.figures],
        tables=_sheets(finding),
        results=results_html(finding) if finding else "",
        counts=verdict_sentence(finding) if finding else "",
        own=own,
        own_figures={figure.name: figure for figure in answered.own_figures},
        own_tables=_sheets(own),
        commands=commands,
        scales=_scales(answered.question),
        provenance=_provenance(finding.provenance) if finding else [],
    )


def index_page(
    title: str, introduction: str, answers: Sequence[Answered], with_answers: bool
) -> str:
    """Return the page that shows all questions as cards.

    ``with_answers``: the cards have the answers, too.
    """
    cards = thumbnails(answers, "", with_answers)
    return render("index.md.jinja", title=title, introduction=introduction, cards=cards)


def thumbnails(
    answers: Sequence[Answered], folder: str, with_answers: bool = False
) -> Markup:
    """Return cards that lead to the pages of questions.

    Args:
        answers: the questions.
        folder: where their pages lie, seen from the page of the cards.
        with_answers: the cards have the answers, too.
    """
    cards = render(
        "thumbnails.html.jinja",
        answers=answers,
        folder=folder,
        with_answers=with_answers,
    )
    return Markup(cards)


def table_files(finding: Finding) -> dict[str, str]:
    """Return every table as CSV text, by file name."""
    return {
        f"table-{_slug(name)}.csv": frame.to_csv(index=False, lineterminator="\n")
        for name, frame in finding.tables.items()
    }


@dataclass(frozen=True)
class Sheet:
    """A table of a page: it folds away, and is left to its file if it is long."""

    title: str
    file: str
    rows: int
    html: str


def _sheets(finding: Finding | None) -> list[Sheet]:
    tables = finding.tables if finding else {}
    return [
        Sheet(
            _sentence(name),
            f"table-{_slug(name)}.csv",
            len(frame),
            frame_table(_sentence(name), frame) if len(frame) <= LONGEST else "",
        )
        for name, frame in tables.items()
        if name != PREDICTIONS
    ]


def _scales(question: Question) -> str:
    """Return the scales of an experiment, with the reason for each, as a table."""
    if not isinstance(question, Experiment):
        return ""
    rows: list[list[Cell | str]] = [
        [
            Cell(scale.name, None, "code"),
            Cell(str(scale.seeds), float(scale.seeds)),
            ", ".join(f"{key} {value}" for key, value in scale.settings.items()),
            scale.because,
        ]
        for scale in question.scales.values()
    ]
    return table("Scales", ["Scale", "Seeds", "Settings", "Why"], rows)


def _provenance(values: Mapping[str, Any]) -> list[str]:
    """Return what is known of the runs: single facts first, then lists as tables."""
    lists = {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and value and isinstance(value[0], Mapping)
    }
    facts = {name: value for name, value in values.items() if name not in lists}
    tables = [records_table(_sentence(name), rows) for name, rows in lists.items()]
    return [Markup(render("facts.md.jinja", facts=facts)), *tables]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _sentence(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]
