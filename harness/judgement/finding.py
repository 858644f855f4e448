"""The results of comparing: a task's judgement, and the finding that a page shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.records.code import code_digest
from harness.records.record import Record
from harness.tasks.checks import Check

PREDICTIONS = "predictions"
"""The table of primary comparisons, computed by ``harness.judgement.verdicts``."""


def joined(words: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


@dataclass(frozen=True)
class Judgement:
    """The result of a task's ``judge`` for some records.

    Attributes:
        tables: by name. The tables of plots are the data of the plots.
        checks: what must hold by arithmetic or by the rule, and whether it does.
        note: why there are no tables; then it is the answer.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """Everything that a page says about an experiment.

    Attributes:
        answer: the text of ``experiments/NAME.md`` with numbers filled in.
        verdict: of all claims, or how many rows of a benchmark are faster; empty if
            nothing is judged.
        verdicts: name of a claim -> one of ``reproduced``, ``partly``,
            ``not reproduced``, ``no difference`` and ``undecided``. The claim "" is the
            question of an experiment that the ledger does not know.
        missing: declared runs without records, and runs that did not end well.
        provenance: scale, seeds, backends and versions of the runs; no date.
        notices: sentences shown with the verdict, for example that a prediction was
            written after the runs.
        age: when the records were made, and whether the code has changed since.
        local: the finding of the user's own runs, or None.
    """

    experiment: str
    task: str
    title: str
    question: str
    answer: str
    verdict: str
    tables: Mapping[str, pd.DataFrame]
    small_print: Sequence[str]
    missing: Sequence[str]
    provenance: Mapping[str, Any]
    notices: Sequence[str] = ()
    verdicts: Mapping[str, str] = field(default_factory=dict)
    age: str = ""
    local: Finding | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object: tables as lists of rows."""
        return {
            **vars(self),
            "tables": {
                name: json.loads(frame.to_json(orient="records", double_precision=15))
                for name, frame in self.tables.items()
            },
            "local": self.local and self.local.as_json(),
        }


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
    if any(r.code.digest != code_digest(r.task, r.subject["backend"]) for r in records):
        text += " The code has changed since."
    return text
