"""Turn records into a finding: tables, verdicts, and words with numbers filled in.

The tables are computed by the ``report`` of the task. The words are in
``experiments/NAME.md``, a Jinja template with the sections ``## Answer`` and ``## Small
print`` (a list). Its values are the tables by name, whose rows ``at`` finds, the
comparisons (``result("NAME")``), the settings of all runs (``settings``), and whether
each check holds. Its front matter has the verdict of each claim that the words are
about, and the digest of the tables for which they were last read, which ``harness
compare NAME`` prints.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from harness.declarations.declare import EXPERIMENTS, SCALES, Experiment
from harness.declarations.primaries import LOG_RATIO
from harness.declarations.tune import sweep_table, with_choices
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.claims import claims_of
from harness.judgement.finding import (
    PREDICTIONS,
    Finding,
    Judgement,
    age_of,
    joined,
)
from harness.records.files import RESULTS, folder, read
from harness.records.record import Record, digest, latest
from harness.statistics import LEVEL
from harness.tasks import part
from harness.tasks.checks import Check, listed

FIRST_LOOK = "quick"
TOO_FEW = (
    f"These runs are of scale {FIRST_LOOK}, which shows the direction: there are too "
    "few of them for a verdict. Scale std has one."
)


def compare(
    experiment: Experiment, root: Path = RESULTS, own_arms: Experiment | None = None
) -> Finding | None:
    """Judge the published records of an experiment, and the user's own records.

    Return None if there are neither. If only the user's own exist, return their
    finding. Records are ignored until every declared combination of settings has a run.

    Args:
        own_arms: the experiment of the user's own records, with further arms.

    Raises:
        HarnessError: a file of records is damaged, or the task cannot judge it. Beside
            published records, the user's own are then left out with a notice.
    """
    of_all = records_of(experiment, folder(experiment.name, True, root))
    published = _judge(with_choices(experiment, of_all), of_all)
    of_user = own_arms or experiment
    try:
        own = records_of(of_user, folder(experiment.name, False, root))
        local = _judge(with_choices(of_user, own, of_all), own)
    except HarnessError as error:
        if published is None:
            raise
        notice = f"Your own runs are left out: {error}"
        return dataclasses.replace(published, notices=[*published.notices, notice])
    if published is None:
        return local
    return dataclasses.replace(published, local=local)


def records_of(experiment: Experiment, home: Path) -> list[Record]:
    """Return the valid record of every run in a folder."""
    return [
        record
        for backend in experiment.backends
        for record in latest(read(home / f"{backend}.jsonl"))
    ]


# -- the records of one folder ---------------------------------------------------------


def _judge(experiment: Experiment, records: Sequence[Record]) -> Finding | None:
    """Judge the records at their most complete scale."""
    scale, chosen = _at_best_scale(experiment, records)
    usable = [record for record in chosen if record.settled]
    declared = {digest(run.config, 12) for run in experiment.runs(scale)}
    recorded = {digest(record.config, 12) for record in usable}
    if declared - recorded or len(declared) < len(experiment.arms(scale)):
        return None
    judgement, predictions = _results(experiment, usable)
    tables, notices, by_claim = dict(judgement.tables), list[str](), dict[str, str]()
    if len(predictions):
        notices += verdicts.notices(experiment, usable, predictions)
        if scale == FIRST_LOOK:
            predictions = predictions.assign(outcome=verdicts.NOT_JUDGED)
            notices.insert(0, TOO_FEW)
        by_claim = _verdicts_of(experiment, predictions)
        tables = {PREDICTIONS: predictions, **tables}
    small_print = listed(judgement.checks)
    if experiment.tune is not None:
        tables["sweep"] = sweep_table(experiment, scale)
        small_print.append(_tuning(experiment, scale))
    finding = Finding(
        experiment=experiment.name,
        task=experiment.task,
        title=experiment.title,
        question=experiment.question,
        answer=judgement.note,
        verdict=", ".join(dict.fromkeys(filter(None, by_claim.values()))),
        tables=tables,
        small_print=small_print,
        missing=list(_missing(experiment, scale, chosen)),
        provenance=_provenance(scale, usable),
        notices=notices,
        verdicts=by_claim,
        age=age_of(usable),
    )
    if judgement.note:
        return finding
    return with_words(finding, experiment, judgement.checks)


def _at_best_scale(
    experiment: Experiment, records: Sequence[Record]
) -> tuple[str, list[Record]]:
    """Return the scale with the highest share of its runs; if equal, the largest."""
    best: tuple[float, str, list[Record]] = (0.0, SCALES[0], [])
    for scale in SCALES:
        ids = {run.id for run in experiment.runs(scale)}
        there = [record for record in records if record.id in ids]
        share = sum(record.settled for record in there) / max(len(ids), 1)
        if share and share >= best[0]:
            best = share, scale, there
    return best[1], best[2]


def _results(
    experiment: Experiment, records: Sequence[Record]
) -> tuple[Judgement, pd.DataFrame]:
    """Return what the task's report says, and the result of every prediction."""
    # A fault in one user's experiment must not break the pages of all others.
    try:
        judgement = part(experiment.task, "report").judge(records)
        return judgement, verdicts.results(experiment, records)
    except HarnessError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        raise HarnessError(
            f"{experiment.name}: these records cannot be judged: "
            f"harness.tasks.{experiment.task} got {got}."
        ) from error


def _verdicts_of(experiment: Experiment, table: pd.DataFrame) -> dict[str, str]:
    """Return the verdict on each claim that the experiment tests."""
    primaries = {primary.name: primary for primary in experiment.primaries}
    claims = {c.name: c.primaries for c in claims_of(experiment.name)}
    return {
        claim: verdicts.judge([primaries[n] for n in names if n in primaries], table)
        for claim, names in (claims or {"": tuple(primaries)}).items()
    }


def _tuning(experiment: Experiment, scale: str) -> str:
    """Return a sentence on how the tuned setting was chosen."""
    tune, choices = experiment.tune, experiment.choices.get(scale, ())
    assert tune is not None
    return (
        f"{tune.path} was chosen for each arm among {len(tune.values)} values, by the "
        f"median {tune.metric} of {tune.seeds} further seeds on "
        f"{experiment.backends[0]}; {sum(choice.at_edge for choice in choices)} of "
        f"{len(choices)} arms are best at the edge of these."
    )


def _missing(
    experiment: Experiment, scale: str, records: Sequence[Record]
) -> Iterator[str]:
    """Yield sentences about declared runs that are missing or not ``ok``."""
    declared = len(experiment.runs(scale))
    for backend in experiment.backends:
        mine = [r for r in records if r.subject["backend"] == backend]
        absent = declared - len({r.id for r in mine if r.settled})
        if absent:
            yield f"{backend}: {absent} of {declared} runs are missing."
        bad = Counter((r.status, r.reason) for r in mine if r.status != "ok")
        for (status, reason), count in bad.items():
            yield f"{backend}: {count} {status}: {reason}."


def _provenance(scale: str, records: Sequence[Record]) -> dict[str, Any]:
    subjects = {tuple(sorted(record.subject.items())) for record in records}
    return {
        "scale": scale,
        "runs": len(records),
        "seeds": len({record.seed for record in records}),
        "backends": sorted({record.subject["backend"] for record in records}),
        "subjects": [dict(subject) for subject in sorted(subjects)],
    }


# -- words -----------------------------------------------------------------------------

DIGITS = 6
"""Significant digits that the digest of tables depends on."""


def with_words(
    finding: Finding, experiment: Experiment, checks: Sequence[Check]
) -> Finding:
    """Add the answer and the small print; a default one if the words do not fit."""
    path = EXPERIMENTS / f"{experiment.name}.md"
    default = dataclasses.replace(finding, answer=_default_answer(finding))
    if not path.exists():
        return default
    head, text = front_matter(path)
    try:
        filled = _filled(text, finding, experiment, checks)
        answer, small_print = re.split(r"^## .+$", filled, flags=re.MULTILINE)[1:]
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        jinja2.TemplateError,
    ) as error:
        notice = f"The words of {path.name} do not fit these runs: {error}."
        return dataclasses.replace(default, notices=[*finding.notices, notice])
    notices = list(finding.notices)
    if head.get("tables") != tables_digest(finding.tables):
        notices.append(
            f"The numbers are newer than the words of {path.name}, which were written "
            "for other runs or tables."
        )
    lines = [" ".join(line.split()) for line in small_print.split("\n- ")[1:]]
    return dataclasses.replace(
        finding,
        answer=" ".join(answer.split()),
        small_print=[*lines, *finding.small_print],
        notices=notices,
    )


def front_matter(path: Path) -> tuple[dict[str, str], str]:
    """Return the front matter, lines of ``key: value``, and the text below it.

    Raises:
        HarnessError: there is none.
    """
    parts = re.fullmatch(r"---\n(.*?)---\n(.*)", path.read_text("utf-8"), re.DOTALL)
    if parts is None:
        raise HarnessError(f"{path.name}: expected front matter between two --- lines.")
    lines = [line.partition(": ") for line in parts[1].splitlines()]
    return {key: value for key, _, value in lines}, parts[2]


def tables_digest(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a digest of all numbers and texts of tables."""
    form = f"%.{DIGITS}g"
    text = {k: frame.to_csv(float_format=form) for k, frame in tables.items()}
    return digest(text, 12)


def _default_answer(finding: Finding) -> str:
    """Return an answer that fits any runs: how many predictions are confirmed."""
    frame = finding.tables.get(PREDICTIONS)
    if frame is None:
        return "The tables and figures below show what was measured."
    outcomes = frame[frame["judged"].astype(bool)]["outcome"].tolist()
    counts = [f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes)]
    return f"Predictions: {joined(counts)}."


class Rows:
    """A table whose rows a template can name: ``losses.at(method="fp32").loss``."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def at(self, **keys: Any) -> dict[Any, Any]:
        """Return the first row with these values; an error if there is none."""
        hits = self.frame
        for name, value in keys.items():
            hits = hits[hits[name] == value]
        if hits.empty:
            raise LookupError(f"there is no row with {keys}")
        row: dict[Any, Any] = hits.iloc[:1].to_dict("records")[0]
        return row


def _filled(
    text: str, finding: Finding, experiment: Experiment, checks: Sequence[Check]
) -> str:
    tables = {n.replace(" ", "_"): Rows(table) for n, table in finding.tables.items()}
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
