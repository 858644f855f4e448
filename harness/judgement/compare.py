"""Turn records into a finding: its tables, verdicts, answer and small print.

Nothing here imports a framework. The tables are computed by
``harness.tasks.TASK.findings``; the words are in ``experiments/NAME.md``.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.declarations.declare import SCALES, Experiment
from harness.declarations.tune import choices_table, sweep_table, with_choices
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.claims import claims_of
from harness.judgement.finding import PREDICTIONS, Finding, Judgement, joined
from harness.judgement.words import with_words
from harness.records.files import RESULTS, folder, read
from harness.records.record import Record, digest, latest
from harness.tasks import part
from harness.tasks.checks import listed

__all__ = ["Finding", "compare"]


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


def _matched(published: Finding, local: Finding) -> Finding:
    """Add a table to a user's finding that compares it with the published one."""
    if not (published.tables and local.tables):
        return local
    match = part(local.task, "report").match(published.tables, local.tables)
    sentence = (
        f"{match['matches'].sum()} of {len(match)} intervals agree with the published "
        f"ones{_verdicts(published, local)}. The bits need not match."
    )
    return dataclasses.replace(
        local,
        tables={"match": match, **local.tables},
        small_print=[sentence, *local.small_print],
    )


def _verdicts(published: Finding, local: Finding) -> str:
    if not (published.verdict and local.verdict):
        return ""
    if local.verdict == published.verdict:
        return "; the verdict is the same"
    return f"; the verdict is {local.verdict}, not {published.verdict}"


def _records(experiment: Experiment, home: Path) -> list[Record]:
    """Return the last record of every run in a folder."""
    return [
        record
        for backend in experiment.backends
        for record in latest(read(home / f"{backend}.jsonl"))
    ]


def _judge(experiment: Experiment, records: Sequence[Record]) -> Finding | None:
    """Judge the records of one folder, at its most complete scale."""
    scale, chosen = _at_best_scale(experiment, records)
    usable = [record for record in chosen if record.settled]
    declared = {digest(run.config, 12) for run in experiment.runs(scale)}
    arms = {digest(record.config, 12) for record in usable}
    if declared - arms or len(declared) < len(experiment.arms(scale)):
        return None
    apart, left_out = _judged_records(experiment, scale, usable)
    judgement = _judgement(experiment.task, apart)
    finding = Finding(
        experiment=experiment.name,
        task=experiment.task,
        title=experiment.title,
        question=experiment.question,
        answer=judgement.note,
        verdict="",
        tables=judgement.tables,
        small_print=listed(judgement.checks),
        missing=[*left_out, *_missing(experiment, scale, chosen)],
        provenance=_provenance(scale, usable),
    )
    judged = _with_verdict(finding, experiment, usable)
    whole = _with_choices(judged, experiment, scale)
    if judgement.note:
        return whole
    return with_words(whole, experiment, judgement.checks)


def _with_choices(finding: Finding, experiment: Experiment, scale: str) -> Finding:
    """Add the chosen values and all values tried, if a value is tuned."""
    if experiment.tune is None:
        return finding
    table = choices_table(experiment, scale)
    sentence = (
        f"{experiment.tune.path} was chosen for each arm among "
        f"{len(experiment.tune.values)} values, by the median {experiment.tune.metric} "
        f"of {experiment.tune.seeds} further seeds on {experiment.backends[0]}; "
        f"{table['at_edge'].sum()} of {len(table)} arms are best at the edge of these."
    )
    sweep = sweep_table(experiment, scale)
    return dataclasses.replace(
        finding,
        tables={**finding.tables, "choices": table, "sweep": sweep},
        small_print=[*finding.small_print, sentence],
    )


def _with_verdict(
    finding: Finding, experiment: Experiment, records: Sequence[Record]
) -> Finding:
    """Add the results of the primary comparisons and the verdict, if there is one."""
    if experiment.reason:
        return dataclasses.replace(finding, notices=[experiment.reason])
    try:
        table = verdicts.results(experiment, records)
    except HarnessError:
        raise
    except Exception as error:
        return dataclasses.replace(
            finding, notices=[_not_judged(experiment.task, error)]
        )
    if table.empty:
        return finding
    notices = list(verdicts.notices(experiment, records, table))
    if finding.provenance["scale"] == verdicts.UNJUDGED_SCALE:
        table, sentence = verdicts.unjudged(table)
        notices.insert(0, sentence)
    by_claim = _verdicts_of(experiment, table)
    return dataclasses.replace(
        finding,
        verdict=", ".join(dict.fromkeys(filter(None, by_claim.values()))),
        verdicts=by_claim,
        tables={PREDICTIONS: table, **finding.tables},
        notices=notices,
    )


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


def _judgement(task: str, records: Sequence[Record]) -> Judgement:
    """Return a task's judgement, or a note of the error if its code raises one.

    A fault in one user's experiment must not break the pages of all others.
    """
    try:
        judgement: Judgement = part(task, "report").judge(records)
    except HarnessError:
        raise
    except Exception as error:
        return Judgement(note=_not_judged(task, error))
    return judgement


def _not_judged(task: str, error: Exception) -> str:
    got = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"These records cannot be judged: harness.tasks.{task} got {got}."


def _judged_records(
    experiment: Experiment, scale: str, records: Sequence[Record]
) -> tuple[list[Record], list[str]]:
    """Return the records that a task's tables can distinguish, and what is left out.

    Tables identify runs by the settings in ``findings.APART``. If runs differ only in
    other settings, those with the first declared values are judged.
    """
    apart = part(experiment.task, "report").APART
    first: dict[str, Mapping[str, Any]] = {}
    judged, differing = set(), dict[str, None]()
    for run in experiment.runs(scale):
        named = json.dumps([_setting(run.config, path) for path in apart])
        first_config = first.setdefault(named, run.config)
        if first_config == run.config:
            judged.add(digest(run.config, 12))
        differing |= {k: None for k, v in run.config.items() if first_config[k] != v}
    if not differing:
        return list(records), []
    names = joined([path.replace(".", "'s ") for path in apart])
    sentence = (
        f"runs that differ in {joined(list(differing))} alone are not judged but for "
        f"the first value: this task's tables tell runs apart by {names}."
    )
    return [r for r in records if digest(r.config, 12) in judged], [sentence]


def _setting(config: Mapping[str, Any], path: str) -> Any:
    """Return the setting at a path such as ``optimizer.name``."""
    value: Any = config
    for name in path.split("."):
        value = value[name]
    return value


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


def _missing(
    experiment: Experiment, scale: str, records: Sequence[Record]
) -> list[str]:
    """Return sentences about declared runs that are missing or not ``ok``."""
    sentences = []
    declared = len(experiment.runs(scale))
    for backend in experiment.backends:
        mine = [r for r in records if r.subject["backend"] == backend]
        absent = declared - len({r.id for r in mine if r.settled})
        if absent:
            sentences.append(f"{backend}: {absent} of {declared} runs are missing.")
        bad = Counter((r.status, r.reason) for r in mine if r.status != "ok")
        sentences += [f"{backend}: {n} {s}: {why}." for (s, why), n in bad.items()]
    return sentences


def _provenance(scale: str, records: Sequence[Record]) -> dict[str, Any]:
    subjects = {tuple(sorted(record.subject.items())) for record in records}
    return {
        "scale": scale,
        "runs": len(records),
        "seeds": len({record.seed for record in records}),
        "backends": sorted({record.subject["backend"] for record in records}),
        "subjects": [dict(subject) for subject in sorted(subjects)],
    }
