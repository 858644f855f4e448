"""What is said of runs that trained nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record

METRICS = {"loss": Metric(lambda record: record.summary["loss"], "nats", "smaller")}


def judge(records: Sequence[Record]) -> Judgement:
    """Return the loss of every run as a table."""
    rows = [
        {
            "backend": r.subject["backend"],
            "arm": r.config["arm"],
            "rate": r.config["rate"],
            "seed": r.seed,
            "loss": r.summary["loss"],
        }
        for r in sorted(records, key=lambda r: (r.subject["backend"], r.seed, r.id))
    ]
    return Judgement(tables={"losses": pd.DataFrame(rows)})
