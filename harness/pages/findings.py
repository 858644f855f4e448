"""The page of a finding: question, answer, figures, tables and provenance.

The same page serves experiments and benchmarks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from harness.declarations.declare import Experiment
from harness.declarations.primaries import DIFFERENCE, LOG_RATIO, SHARE, SLOPE
from harness.judgement.claims import NO_VERDICT, NOT_MEASURED, claims_of
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.verdicts import NOT_JUDGED
from harness.pages.sources import Question, Source
from harness.pages.tables import PAIRS, Badge, Cell, frame_table, records_table, table
from harness.pages.templating import number, render

if TYPE_CHECKING:
    from harness.figures.plot import Figure

LONGEST = 500
"""The most rows of a table on a page; longer tables are only a download."""


@dataclass(frozen=True)
class Answered:
    """A question with its finding, which is None without results.

    Attributes:
        published: whether there are published results. If not, a finding is from a
            user's own records.
        figures: the figures of the finding, drawn.
        own_figures: the figures of a user's own run, shown after the published ones.
        problems: sentences about unreadable records, or about figures not drawn.
        age: when the records were made, and whether the code has changed since.
    """

    question: Question
    finding: Finding | None
    published: bool
    figures: Sequence[Figure] = ()
    own_figures: Sequence[Figure] = ()
    problems: Sequence[str] = ()
    age: str = ""

    @property
    def answer(self) -> str:
        """The answer in one sentence."""
        if self.finding:
            return self.finding.answer
        return "Not judged." if self.problems else "Not measured yet."

    @property
    def verdicts(self) -> list[tuple[str, Badge]]:
        """Each tested claim with its verdict; or "" and why there is none."""
        finding = self.finding
        if finding is None:
            return [("", Badge(NOT_JUDGED if self.problems else NOT_MEASURED))]
        if not self.published:
            return [("", Badge("your own run"))]
        claims = {claim.name: claim.claim for claim in claims_of(self.question.name)}
        judged = {
            claims.get(name, ""): Badge(verdict)
            for name, verdict in finding.verdicts.items()
            if verdict
        }
        predicts = PREDICTIONS in finding.tables
        other = finding.verdict or (NOT_JUDGED if predicts else NO_VERDICT)
        return list(judged.items()) or [("", Badge(other))]

    @property
    def badges(self) -> list[Badge]:
        """The different verdicts."""
        return list(dict.fromkeys(badge for _, badge in self.verdicts))


def finding_page(answered: Answered, commands: Mapping[str, str]) -> str:
    """Return the page of a question; its files are in the folder of its name.

    ``commands`` maps the purpose of each command to the command.
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
        own=own,
        own_figures={figure.name: figure for figure in answered.own_figures},
        own_tables=_sheets(own),
        commands=commands,
        scales=_scales(answered.question),
        provenance=_provenance(finding.provenance) if finding else [],
    )


def index_page(
    source: Source,
    answers: Sequence[Answered],
    cards: Sequence[Any] | None = None,
    above: str = "",
) -> str:
    """Return the page that shows questions as cards, below a table.

    ``cards``: the answers, or summaries of them, that have a card; None: all answers.
    """
    shown = answers if cards is None else cards
    return render(
        "index.md.jinja",
        title=source.title,
        introduction=source.introduction,
        above=Markup(above),
        cards=thumbnails(shown, "", source.shows_answers),
    )


def thumbnails(
    answers: Sequence[Any], folder: str, with_answers: bool = False
) -> Markup:
    """Return cards with links to the pages of questions.

    Args:
        answers: the questions, or summaries of them.
        folder: the folder of their pages, relative to the page of the cards.
        with_answers: whether the cards also show the answers.
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
    """A collapsible table of a page; a long one is only a download."""

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
        if name != PREDICTIONS and len(frame)
    ]


def _scales(question: Question) -> str:
    """Return the scales of an experiment, with the reason for each, as a table."""
    if not isinstance(question, Experiment):
        return ""
    rows: list[list[Cell | str]] = [
        [
            Cell(name, None, "code"),
            Cell(str(scale.seeds), float(scale.seeds)),
            ", ".join(f"{key} {value}" for key, value in scale.settings.items()),
            scale.because,
        ]
        for name, scale in question.scales.items()
    ]
    return table("Scales", ["Scale", "Seeds", "Settings", "Why"], rows)


def _provenance(values: Mapping[str, Any]) -> list[str]:
    """Return the provenance of the runs: single values first, then lists as tables."""
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


Row = Mapping[Any, Any]

SETTINGS = ", "
"""What separates the settings of an arm in the table."""

KINDS = {
    LOG_RATIO: "ratio",
    DIFFERENCE: "difference",
    SHARE: "share",
    SLOPE: "slope per doubling",
}
"""Effect -> what a page calls its number."""

COLUMNS = ("Claim", "Outcome", "Measured", "Predicted", "Backend")


def results_html(finding: Finding) -> str:
    """Return the table of predictions and results; empty if nothing is judged."""
    rows = [
        [
            Cell(row["claim"], row["comparison"], "claim", _arms(row)),
            Cell(row["outcome"], row["outcome"], notes=(*_control(row), _p(row["p"]))),
            Cell(effect(row), float(row["estimate"]), notes=(_pairs(row),)),
            prediction(row),
            row["backend"] + (" (judged)" if row["judged"] else ""),
        ]
        for row in _rows(finding)
    ]
    caption = "Predictions and results"
    return table(caption, COLUMNS, rows, style=PAIRS) if rows else ""


def prediction(row: Row) -> str:
    """Return the prediction, such as ``ratio above 1`` or ``ratio 0.95 to 1.05``."""
    kind = KINDS[row["effect"]]
    low, high = (_number(row, row[f"predicted_{end}"]) for end in ("low", "high"))
    if math.isinf(row["predicted_high"]):
        return f"{kind} above {low}"
    if math.isinf(row["predicted_low"]):
        return f"{kind} below {high}"
    return f"{kind} {low} to {high}"


def effect(row: Row) -> str:
    """Return the median effect with its interval; log ratios are shown as ratios."""
    estimate, low, high = (
        _number(row, row[name]) for name in ("estimate", "low", "high")
    )
    return f"{KINDS[row['effect']]} {estimate} [{low}, {high}]"


def _rows(finding: Finding) -> list[dict[Any, Any]]:
    frame = finding.tables.get(PREDICTIONS)
    return [] if frame is None else frame.to_dict("records")


def _number(row: Row, value: float) -> str:
    """Return a number as text; logarithms of ratios are shown as ratios."""
    shown = float(np.exp(value) if row["effect"] == LOG_RATIO else value)
    if math.isinf(shown) or shown == 0 or not 1e-4 <= abs(shown) < 1e4:
        return number(shown, 3)
    return f"{shown:#.3g}".removesuffix(".").replace("-", "−")


def _arms(row: Row) -> tuple[str, ...]:
    """Return the name, the compared arms and the reason, only on the judged backend."""
    if not row["judged"]:
        return ()
    unit = f" ({row['unit']})" if row["unit"] != row["metric"] else ""
    compared = f"{row['comparison']}: {row['metric']}{unit}, {_against(row)}"
    return compared, f"Reason: {row['because']}"


def _control(row: Row) -> tuple[str, ...]:
    return ("control",) if row["control"] else ()


def _against(row: Row) -> str:
    """Return the settings of both arms; those that they share are named once."""
    if not row["against"]:
        return str(row["arm"])
    arm, other = (row[name].split(SETTINGS) for name in ("arm", "against"))
    first, second = (
        SETTINGS.join(each for each in own if each not in others)
        for own, others in ((arm, other), (other, arm))
    )
    shared = SETTINGS.join(each for each in arm if each in other)
    return f"{first} against {second}" + (f"; both with {shared}" if shared else "")


def _pairs(row: Row) -> str:
    return f"{row['pairs']} seeds"


def _p(value: float) -> str:
    return f"p-value {number(value, 2)}" if value >= 1e-3 else "p-value < 0.001"
