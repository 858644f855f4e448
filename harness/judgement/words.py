"""The words of an experiment: Markdown written by hand, in which numbers are filled in.

``experiments/NAME.md`` has the sections ``## Answer`` and ``## Small print`` (a list).
It is a Jinja template. Its values are the tables by name, whose rows ``at`` finds, the
comparisons (``result("NAME")``), the settings of all runs (``settings``), and whether
each check holds. Its front matter has the verdict of each claim that the words are
about, and a digest of the tables for which they were last read. The present digest is
printed by ``harness compare NAME``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from harness.declarations.declare import EXPERIMENTS, Experiment
from harness.declarations.primaries import LOG_RATIO
from harness.errors import HarnessError
from harness.judgement.finding import PREDICTIONS, Finding, joined
from harness.records.record import digest
from harness.statistics import LEVEL
from harness.tasks.checks import Check

DIGITS = 6
"""Significant digits that the digest of tables depends on."""


class Table:
    """A table whose rows a template can name: ``losses.at(method="fp32").loss``."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def rows(self, **keys: Any) -> list[dict[Any, Any]]:
        """Return every row with these values; an error if there is none."""
        hits = self.frame
        for name, value in keys.items():
            hits = hits[hits[name] == value]
        if hits.empty:
            raise LookupError(f"there is no row with {keys}")
        return hits.to_dict("records")

    def at(self, **keys: Any) -> dict[Any, Any]:
        """Return the first row with these values; an error if there is none."""
        return self.rows(**keys)[0]


def with_words(
    finding: Finding, experiment: Experiment, checks: Sequence[Check]
) -> Finding:
    """Add the answer and the small print; a default one if the words do not fit."""
    path = EXPERIMENTS / f"{experiment.name}.md"
    if not path.exists():
        return dataclasses.replace(finding, answer=_default(finding))
    head, text = front_matter(path)
    notices = list(finding.notices)
    try:
        filled = _filled(text, finding, experiment, checks)
        parts = re.split(r"^## (.+)$", filled, flags=re.MULTILINE)[1:]
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        answer, small_print = sections["Answer"], sections["Small print"]
    except (LookupError, TypeError, ValueError, jinja2.TemplateError) as error:
        notices.append(f"The words of {path.name} do not fit these runs: {error}.")
        return dataclasses.replace(finding, answer=_default(finding), notices=notices)
    if head.get("tables") != tables_digest(finding.tables):
        notices.append(
            f"The numbers are newer than the words of {path.name}, which were written "
            "for other runs or tables."
        )
    lines = [" ".join(part.split()) for part in f"\n{small_print}".split("\n- ")[1:]]
    return dataclasses.replace(
        finding,
        answer=" ".join(answer.split()),
        small_print=[*lines, *finding.small_print],
        notices=notices,
    )


def tables_digest(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a digest of all numbers and texts of tables."""
    form = f"%.{DIGITS}g"
    text = {k: frame.to_csv(float_format=form) for k, frame in tables.items()}
    return digest(text, 12)


def front_matter(path: Path) -> tuple[dict[str, str], str]:
    """Return the front matter, lines of ``key: value``, and the text below it.

    Raises:
        HarnessError: there is none.
    """
    text = path.read_text("utf-8")
    parts = re.fullmatch(r"---\n(.*?)---\n(.*)", text, flags=re.DOTALL)
    if parts is None:
        raise HarnessError(f"{path.name}: expected front matter between two --- lines.")
    lines = [line.partition(": ") for line in parts[1].splitlines()]
    return {key: value for key, _, value in lines}, parts[2]


def _filled(
    text: str, finding: Finding, experiment: Experiment, checks: Sequence[Check]
) -> str:
    tables = {
        name.replace(" ", "_"): Table(frame) for name, frame in finding.tables.items()
    }
    scale = experiment.scale(finding.provenance["scale"])

    def result(name: str) -> dict[Any, Any]:
        """Return a comparison on the judged backend; log ratios become ratios."""
        row = tables[PREDICTIONS].at(comparison=name, judged=True)
        if row["effect"] == LOG_RATIO:
            ends = ("estimate", "low", "high")
            row |= {end: float(np.exp(row[end])) for end in ends}
        return row

    return ENVIRONMENT.from_string(text).render(
        **tables,
        result=result,
        settings={**experiment.fixed, **scale.settings, "seeds": scale.seeds},
        checks=dict(checks),
        level=LEVEL,
    )


def _default(finding: Finding) -> str:
    """Return an answer that fits any runs: how many predictions are confirmed."""
    frame = finding.tables.get(PREDICTIONS)
    if frame is None:
        return "The tables and figures below show what was measured."
    outcomes = frame[frame["judged"].astype(bool)]["outcome"].tolist()
    counts = [f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes)]
    return f"Predictions: {joined(counts)}."


# -- filters ---------------------------------------------------------------------------


def short(value: float, digits: int = 2) -> str:
    """Return a number with so many significant digits: ``0.49``, ``17``, ``3,689``."""
    if not np.isfinite(value) or value == 0:
        return str(value)
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{round(value, places):,.{places}f}"


def percent(value: float, places: int = 0) -> str:
    """Return a share in per cent, without the sign: ``45``."""
    return f"{100 * value:.{places}f}"


def interval(row: Mapping[Any, Any], name: str = "", form: str = ".2f") -> str:
    """Return ``2.07 [1.78, 2.27]`` of a comparison, or of the columns of a table."""
    names = (
        (name, f"{name}_low", f"{name}_high") if name else ("estimate", "low", "high")
    )
    middle, low, high = (f"{row[each]:{form}}" for each in names)
    return f"{middle} [{low}, {high}]"


ENVIRONMENT = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
ENVIRONMENT.filters.update(short=short, percent=percent, interval=interval, exp=np.exp)
