"""The page of a finding: question, answer, figures, tables and provenance.

The same page serves experiments and benchmarks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from markupsafe import Markup

from harness.bench.declare import Benchmark
from harness.declarations.declare import Experiment
from harness.declarations.primaries import DIFFERENCE, LOG_RATIO, SHARE, SLOPE
from harness.judgement.claims import NO_VERDICT, NOT_MEASURED, claims_of
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.verdicts import NOT_JUDGED
from harness.pages.tables import PAIRS, Badge, Cell, frame_table, records_table, table
from harness.pages.templating import number, render

if TYPE_CHECKING:
    from harness.figures.plot import Figure

Question: TypeAlias = Experiment | Benchmark

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
    """

    question: Question
    finding: Finding | None
    published: bool
    figures: Sequence[Figure] = ()
    own_figures: Sequence[Figure] = ()
    problems: Sequence[str] = ()

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
        judged = [
            (claims.get(name, ""), Badge(verdict))
            for name, verdict in finding.verdicts.items()
            if verdict
        ]
        predicts = PREDICTIONS in finding.tables
        other = finding.verdict or (NOT_JUDGED if predicts else NO_VERDICT)
        return judged or [("", Badge(other))]

    @property
    def badges(self) -> list[Badge]:
        """The different verdicts."""
        return list(dict.fromkeys(badge for _, badge in self.verdicts))


# -- the page --------------------------------------------------------------------------


def finding_page(answered: Answered, commands: Mapping[str, str]) -> str:
    """Return the page of a question; its files are in the folder of its name.

    ``commands`` maps the purpose of each command to the command.
    """
    finding, question = answered.finding, answered.question
    own = finding.local if finding else None
    return render(
        "finding.md.jinja",
        answered=answered,
        name=question.name,
        finding=finding,
        figures=[(_sentence(figure.name), figure) for figure in answered.figures],
        tables=_sheets(finding),
        results=results_html(finding) if finding else "",
        own=own,
        own_results=results_html(own) if own else "",
        own_figures={figure.name: figure for figure in answered.own_figures},
        own_tables=_sheets(own),
        commands=commands,
        scales=_scales(question) if isinstance(question, Experiment) else "",
        provenance=_provenance(finding.provenance) if finding else [],
    )


def index_page(title: str, introduction: str, above: str, cards: str) -> str:
    """Return the page that shows questions as cards, below a table."""
    return render(
        "index.md.jinja",
        title=title,
        introduction=introduction,
        above=Markup(above),
        cards=Markup(cards),
    )


def thumbnails(
    answers: Iterable[Any], folder: str = "", with_answers: bool = False
) -> str:
    """Return cards with links to the pages of questions.

    Args:
        answers: the questions, or summaries of them.
        folder: the folder of their pages, relative to the page of the cards.
        with_answers: whether the cards also show the answers.
    """
    return render(
        "thumbnails.html.jinja",
        answers=answers,
        folder=folder,
        with_answers=with_answers,
    )


# -- tables ----------------------------------------------------------------------------


def table_files(finding: Finding) -> dict[str, str]:
    """Return every table as CSV text, by file name."""
    return {
        _file(name): frame.to_csv(index=False, lineterminator="\n")
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
    sheets = []
    for name, frame in finding.tables.items() if finding else ():
        if name != PREDICTIONS and len(frame):
            title, short = _sentence(name), len(frame) <= LONGEST
            html = frame_table(title, frame) if short else ""
            sheets.append(Sheet(title, _file(name), len(frame), html))
    return sheets


def _scales(experiment: Experiment) -> str:
    """Return the scales, with the reason for each, as a table."""
    rows: list[list[Cell | str]] = [
        [
            Cell(name, None, "code"),
            Cell(str(scale.seeds), float(scale.seeds)),
            ", ".join(f"{key} {value}" for key, value in scale.settings.items()),
            scale.because,
        ]
        for name, scale in experiment.scales.items()
    ]
    return table("Scales", ["Scale", "Seeds", "Settings", "Why"], rows)


def _provenance(values: Mapping[str, Any]) -> list[str]:
    """Return the provenance of the runs: single values, and ``subjects`` as a table."""
    facts = {name: value for name, value in values.items() if name != "subjects"}
    parts: list[str] = [Markup(render("facts.md.jinja", facts=facts))]
    if values.get("subjects"):
        parts.append(records_table("Subjects", values["subjects"]))
    return parts


def _file(name: str) -> str:
    return f"table-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.csv"


def _sentence(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


# -- predictions and results -----------------------------------------------------------

Row = Mapping[Any, Any]

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
    frame = finding.tables.get(PREDICTIONS)
    rows = [] if frame is None else [_result(row) for row in frame.to_dict("records")]
    return table("Predictions and results", COLUMNS, rows, style=PAIRS) if rows else ""


def _result(row: Row) -> list[Cell | str]:
    control = ("control",) if row["control"] else ()
    p = f"p-value {number(row['p'], 2)}" if row["p"] >= 1e-3 else "p-value < 0.001"
    return [
        Cell(row["claim"], row["comparison"], "claim", _arms(row)),
        Cell(row["outcome"], row["outcome"], notes=(*control, p)),
        Cell(effect(row), float(row["estimate"]), notes=(f"{row['pairs']} seeds",)),
        prediction(row),
        row["backend"] + (" (judged)" if row["judged"] else ""),
    ]


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
    names = ("estimate", "low", "high")
    estimate, low, high = (_number(row, row[name]) for name in names)
    return f"{KINDS[row['effect']]} {estimate} [{low}, {high}]"


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


def _against(row: Row) -> str:
    """Return the settings of both arms; those that they share are named once."""
    if not row["against"]:
        return str(row["arm"])
    arm, other = (str(row[name]).split(", ") for name in ("arm", "against"))
    first = ", ".join(each for each in arm if each not in other)
    second = ", ".join(each for each in other if each not in arm)
    shared = ", ".join(each for each in arm if each in other)
    return f"{first} against {second}" + (f"; both with {shared}" if shared else "")
