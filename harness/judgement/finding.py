"""What comparing leads to: a task's judgement, and the finding that a page shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

__all__ = ["NO_ANSWER", "PREDICTIONS", "Finding", "Judgement", "joined"]

NO_ANSWER = "The runs of this experiment do not answer its task's question"
"""The answer where no part of the usual one can be computed."""

PREDICTIONS = "predictions"
"""The table of primary comparisons, as ``harness.judgement.verdicts`` makes it."""


def joined(words: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


@dataclass(frozen=True)
class Judgement:
    """What a task's ``findings`` part makes of records.

    Attributes:
        answer: a few sentences, computed.
        tables: by name; those of the plots are their data.
        small_print: sentences that belong to the answer.
    """

    answer: str
    tables: Mapping[str, pd.DataFrame]
    small_print: Sequence[str]


@dataclass(frozen=True)
class Finding:
    """Everything that a page says about an experiment.

    Attributes:
        verdict: one of ``reproduced``, ``partly``, ``not reproduced`` and
            ``undecided``, or what a benchmark says of its goals; empty if nothing is
            judged.
        missing: what was declared but is not there, and runs that did not end well.
        provenance: scale, seeds, backends and versions behind the numbers; no date.
        notices: sentences that belong beside the verdict, such as that a prediction
            was written after the runs.
        local: the same from a user's own runs, compared with this one in its table
            ``match``; None if there are none.
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
    local: Finding | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON can hold it: tables as lists of rows."""
        tables = {
            name: json.loads(frame.to_json(orient="records", double_precision=15))
            for name, frame in self.tables.items()
        }
        content = {**vars(self), "tables": tables, "local": None}
        for name in ("missing", "small_print", "notices"):
            content[name] = list(content[name])
        if self.local is not None:
            content["local"] = self.local.as_json()
        return content
