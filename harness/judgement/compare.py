"""Turn records into a finding: its tables, verdicts, answer and small print.

Nothing here imports a framework. The tables are computed by the ``report`` of the task;
the words are in ``experiments/NAME.md``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.bench.compare import measured
from harness.bench.declare import Benchmark
from harness.declarations.declare import SCALES, Experiment
from harness.declarations.primaries import EVEN, SHARE
from harness.declarations.tune import sweep_table, with_choices
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.claims import claims_of
from harness.judgement.finding import PREDICTIONS, Finding, Judgement
from harness.judgement.words import with_words
from harness.records.code import code_digest
from harness.records.files import RESULTS, folder, read
from harness.records.record import Record, digest, latest
from harness.tasks import part
from harness.tasks.checks import listed

UNJUDGED_SCALE = "quick"
"""The scale for a first look. It has too few runs for a verdict."""


def compare(
    experiment: Experiment, root: Path = RESULTS, own_arms: Experiment | None = None
) -> Finding | None:
    """Judge the published records of an experiment, and the user's own records.

    Return None if there are neither. If only the user's own exist, return their
    finding. Records are ignored until every declared combination of settings has a run.

    Args:
        own_arms: the experiment of the user's own records, with further arms.

    Raises:
        HarnessError: a file of records is damaged.
    """
    of_user = own_arms or experiment
    of_all = _records(experiment, folder(experiment.name, True, root))
    own = _records(of_user, folder(experiment.name, False, root))
    published = _judge(with_choices(experiment, of_all), of_all)
    local = _judge(with_choices(of_user, own, of_all), own)
    if published is None or local is None:
        return published or local
    return dataclasses.replace(published, local=_matched(published, local))


def _records(experiment: Experiment, home: Path) -> list[Record]:
    """Return the last record of every run in a folder."""
    return [
        record
        for backend in experiment.backends
        for record in latest(read(home / f"{backend}.jsonl"))
    ]


def _matched(published: Finding, local: Finding) -> Finding:
    """Add the table ``match``: do intervals overlap, or lie on one side of none?"""
    if not (PREDICTIONS in published.tables and PREDICTIONS in local.tables):
        return local
    keys, numbers = ["comparison", "effect", "backend"], ["estimate", "low", "high"]
    theirs, own = (f.tables[PREDICTIONS][keys + numbers] for f in (published, local))
    match = theirs.merge(own, on=keys, suffixes=("_published", "_own"))
    equal = np.where(match["effect"] == SHARE, EVEN, 0.0)
    lows, highs = (match[[f"{e}_published", f"{e}_own"]] for e in ("low", "high"))
    match["matches"] = (
        (lows.max(axis=1) <= highs.min(axis=1))
        | (lows.min(axis=1) > equal)
        | (highs.max(axis=1) < equal)
    )
    verdict = ""
    if published.verdict and local.verdict:
        same = published.verdict == local.verdict
        other = f"{local.verdict}, not {published.verdict}"
        verdict = f"; the verdict is {'the same' if same else other}"
    sentence = (
        f"{match['matches'].sum()} of {len(match)} intervals agree with the published "
        f"ones, of scale {published.provenance['scale']}{verdict}. "
        "The bits need not match."
    )
    return dataclasses.replace(
        local,
        tables={"match": match, **local.tables},
        small_print=[sentence, *local.small_print],
    )


def _judge(experiment: Experiment, records: Sequence[Record]) -> Finding | None:
    """Judge the records of one folder, at its most complete scale."""
    scale, chosen = _at_best_scale(experiment, records)
    usable = [record for record in chosen if record.settled]
    declared = {digest(run.config, 12) for run in experiment.runs(scale)}
    recorded = {digest(record.config, 12) for record in usable}
    if declared - recorded or len(declared) < len(experiment.arms(scale)):
        return None
    judgement, predictions = _by_task(experiment, usable)
    tables, by_claim = dict(judgement.tables), dict[str, str]()
    notices = list[str]()
    if len(predictions):
        notices = list(verdicts.notices(experiment, usable, predictions))
        if scale == UNJUDGED_SCALE:
            predictions = predictions.assign(outcome=verdicts.NOT_JUDGED)
            sentence = (
                f"These runs are of scale {scale}, which shows the direction: there "
                "are too few of them for a verdict. Scale std has one."
            )
            notices.insert(0, sentence)
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
    )
    if judgement.note:
        return finding
    return with_words(finding, experiment, judgement.checks)


def _by_task(
    experiment: Experiment, records: Sequence[Record]
) -> tuple[Judgement, pd.DataFrame]:
    """Return what the task's report says and the predictions; a fault is a note."""
    judgement, predictions = Judgement(), pd.DataFrame()
    # A fault in one user's experiment must not break the pages of all others.
    try:
        judgement = part(experiment.task, "report").judge(records)
        if experiment.primaries:
            predictions = verdicts.results(experiment, records)
    except HarnessError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        note = f"These records cannot be judged: harness.tasks.{experiment.task} got "
        judgement = dataclasses.replace(judgement, note=f"{note}{got}.")
    return judgement, predictions


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


def _at_best_scale(
    experiment: Experiment, records: Sequence[Record]
) -> tuple[str, list[Record]]:
    """Return the scale with the highest share of its runs; if equal, the largest."""
    best: tuple[float, str, list[Record]] = (-1.0, SCALES[0], [])
    for scale in SCALES:
        ids = {run.id for run in experiment.runs(scale)}
        there = [record for record in records if record.id in ids]
        settled = sum(record.settled for record in there)
        share = settled / max(len(ids), 1)
        if settled and share >= best[0]:
            best = share, scale, there
    return best[1], best[2]


def _verdicts_of(experiment: Experiment, table: pd.DataFrame) -> dict[str, str]:
    """Return the verdict on each claim that the experiment tests."""
    primaries = {primary.name: primary for primary in experiment.primaries}
    claims = {c.name: c.primaries for c in claims_of(experiment.name)}
    if not any(set(names) <= primaries.keys() for names in claims.values()):
        claims = {"": tuple(primaries)}
    return {
        claim: verdicts.judge([primaries[name] for name in names], table)
        for claim, names in claims.items()
    }


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


def counted_records(of: Experiment | Benchmark, home: Path) -> list[Record]:
    """Return the settled records of all declared runs, one per run.

    For a benchmark these are the last measurement of each setup. Records that the file
    no longer declares are history: they are not judged.

    Raises:
        HarnessError: a file is damaged.
    """
    if isinstance(of, Benchmark):
        return [r for processes in measured(of, home).values() for r in processes]
    declared = {run.id for scale in SCALES for run in of.possible_runs(scale)}
    return [
        record
        for backend in of.backends
        for record in latest(read(home / f"{backend}.jsonl"))
        if record.settled and record.id in declared
    ]


def age_of(records: Sequence[Record]) -> str:
    """Return dates, version and commit of records, and whether the code has changed.

    A change of code says nothing about the numbers: most changes alter none.
    """
    dated = sorted((r for r in records if r.start), key=lambda r: str(r.start))
    if not dated:
        return "The date of these records is unknown." if records else ""
    last = dated[-1]
    days = sorted({str(record.start)[:10] for record in (dated[0], last)})
    version = f"Lockstep {last.subject['lockstep']}"
    commit = f", commit {last.code.commit[:8]}" if last.code.commit else ""
    text = f"Measured {' to '.join(days)}, last with {version}{commit}."
    current = (code_digest(r.task, r.subject["backend"]) for r in records)
    if any(r.code.digest != code for r, code in zip(records, current, strict=True)):
        text += " The code has changed since."
    return text
