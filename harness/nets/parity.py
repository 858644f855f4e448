"""The numbers of a parity report: status, distance, first divergence of each case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.nets.snapshots import Snapshot, differences
from harness.processes.children import ROOT

__all__ = ["ESTIMATED", "PUBLISHED", "compare", "outcomes", "take"]

PUBLISHED = ROOT / "results" / "parity" / "report.json"
ADAGRAD = ("base_optimizers-p-012", "base_optimizers-p-013", "variable_clipping-p-016")
ESTIMATED = {
    f"tf {mode} / {case}"
    for mode in ("eager", "function", "graph", "v1")
    for case in ADAGRAD
}
"""TensorFlow's Adagrad refines the processor's estimate of 1 / sqrt(x). So the last
digits of these cases may differ between processor models."""


def take(report: Path = PUBLISHED) -> Snapshot:
    """Return the outcomes in a report written by ``harness parity --report``."""
    return outcomes(json.loads(report.read_text("utf-8")))


def outcomes(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return backend and execution mode -> case -> outcome, from rows as JSON."""
    content: dict[str, dict[str, str]] = {}
    for row in rows:
        mode = row["mode"] if "mode" in row else row["face"]
        content.setdefault(f"{row['backend']} {mode}", {})[row["id"]] = _outcome(row)
    return content


def compare(fresh: Snapshot, frozen: Snapshot) -> list[str]:
    """Return how the rows of a replay differ. Cases that were not replayed are ignored.

    Of ``ESTIMATED`` cases only the status is compared.
    """
    replayed = {
        mode: {case: frozen[mode].get(case, "no such case") for case in cases}
        for mode, cases in fresh.items()
    }
    return differences(_without_estimates(replayed), _without_estimates(fresh))


def _without_estimates(content: Snapshot) -> Snapshot:
    return {
        mode: {
            case: text.partition(",")[0] if f"{mode} / {case}" in ESTIMATED else text
            for case, text in cases.items()
        }
        for mode, cases in content.items()
    }


def _outcome(row: Mapping[str, Any]) -> str:
    """Return status, distances and first divergence, without names and reasons."""
    if row["max_ulp"] is None:
        return str(row["status"])
    text = f"{row['status']}, {row['max_ulp']} ULP, raw {row['max_ulp_raw']}"
    first = row["first_divergence"]
    if first is None:
        return text
    where = f"step {first['step']}, index {first['index']}"
    return f"{text}; {where}: got {first['got']}, expected {first['expected']}"
