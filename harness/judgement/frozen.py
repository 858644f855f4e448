"""The frozen findings: what every experiment's records gave before a change of code.

``frozen.json.xz`` has the run ids, verdict and tables of each experiment, and the
verdict of each claim. A change of code may change only what it means to change;
``python -m harness frozen findings`` names every difference.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.declarations import declare
from harness.declarations.declare import SCALES
from harness.judgement.claims import answer, read_claims
from harness.judgement.compare import compare
from harness.records.files import RESULTS
from harness.records.record import digest

__all__ = ["FROZEN", "differences", "findings", "read", "write"]

FROZEN = Path(__file__).parent / "frozen.json.xz"

DIGITS = 12
"""Significant digits of numbers: sums in another order differ in the last ones."""


def findings(root: Path = RESULTS) -> dict[str, Any]:
    """Compute the findings of all experiments and the ledger from records."""
    experiments = {name: declare.find(name) for name in declare.known()}
    compared = {name: compare(each, root) for name, each in experiments.items()}
    content: dict[str, Any] = {
        f"experiment {name}": {
            "verdict": finding.verdict,
            "runs": _run_ids(experiments[name]),
            **{
                f"table {title}": {
                    column: [_plain(value) for value in frame[column].tolist()]
                    for column in map(str, frame.columns)
                }
                for title, frame in finding.tables.items()
            },
        }
        for name, finding in compared.items()
        if finding is not None
    }
    content["ledger"] = {
        claim.name: answer(claim, compared.get(claim.experiment))[0]
        for claim in read_claims()
        if not claim.benchmark
    }
    return content


def _run_ids(experiment: declare.Experiment) -> dict[str, str]:
    """Return a digest of all run ids of each scale."""
    return {
        scale: digest(sorted(run.id for run in experiment.possible_runs(scale)), 12)
        for scale in SCALES
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON can store it; numbers as text, which holds NaN, too."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return value if isinstance(value, bool | int | str | None) else str(value)


def write(content: Mapping[str, Any], path: Path = FROZEN) -> None:
    """Write findings to a compressed file; the same findings give the same bytes."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def read(path: Path = FROZEN) -> dict[str, Any]:
    """Read the frozen findings."""
    content: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return content


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Yield a line for every difference: where it is, and both values."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            where = f"{place}, {key}" if place else key
            if key not in after:
                yield f"{where}: gone"
            elif key not in before:
                yield f"{where}: new"
            else:
                yield from differences(before[key], after[key], where)
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{place}: {len(before)} rows, now {len(after)}"
            return
        for row, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                yield f"{place}, row {row}: {old}, now {new}"
    elif before != after:
        yield f"{place}: {before}, now {after}"
