"""The ledger: claims of sources and of our own, each with the comparisons that test it.

``experiments/claims.toml`` names claims and comparisons, but contains no verdict. The
verdict is computed from the results of the comparisons, by the rule in
``harness.judgement.verdicts``. A claim about time names a benchmark instead. Each of
the benchmark's ratios to one peer is confirmed if its whole interval is above the
predicted ratio, and refuted if it is below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from harness.bench import declare as benchmarks
from harness.bench.compare import PROCESSES
from harness.declarations import declare
from harness.declarations.toml_files import Positive, Table, Text, TomlFile, one_of
from harness.judgement import verdicts
from harness.judgement.finding import PREDICTIONS, Finding
from harness.parity.cases import GOLDEN, Case, array, read_cases
from lockstep.interface import Array
from lockstep.reference import clip_by_global_norm

NO_RECORD = "not tested"
"""Shown instead of a verdict: no experiment tests the claim."""

NOT_MEASURED = "not measured yet"
"""Shown instead of a verdict: an experiment tests the claim, but has no results."""

ILLUSTRATED, NO_VERDICT = "illustration", "measured"
"""Shown instead of a verdict: the claim restates arithmetic."""


class Claim(Table):
    """One sentence that is tested.

    Attributes:
        name: short name, for links.
        of: whether the claim is a source's or our own.
        source: where the claim is made.
        figure: the result that the source reports.
        experiment: name of the experiment that tests the claim; empty if none does.
        primaries: names of the experiment's comparisons that answer the claim
            together.
        benchmark: name of the benchmark that tests the claim, instead of an experiment.
        peer: denominator of the benchmark's ratios, as named in its file.
        low: the claim predicts ratios above this one.
        page: the tool's page, with an anchor, that shows the claim by a short script.
        cases: the family of recorded cases that test the claim, on this page.
        missing: what would answer the claim, if neither tests it.
    """

    name: Text
    of: Annotated[str, one_of("whose claim", ("source", "ours"))]
    claim: Text
    source: Text
    figure: Text
    experiment: Text = ""
    primaries: tuple[str, ...] = ()
    benchmark: Text = ""
    peer: Text = ""
    low: Positive = 0.0
    page: Text = ""
    cases: Text = ""
    missing: Text = ""

    @property
    def test(self) -> str:
        """The name of the experiment or benchmark; empty if there is none."""
        return self.experiment or self.benchmark


def read_claims(path: Path = declare.CLAIMS) -> list[Claim]:
    """Read the claims.

    Raises:
        HarnessError: a claim lacks a key or has another one; the sentence has the line.
    """
    file = TomlFile(path)
    tables = enumerate(file.content["claim"])
    return [file.checked(Claim, table, "claim", place) for place, table in tables]


def claims_of(experiment: str) -> list[Claim]:
    """Return the claims that an experiment tests; none for a user's own experiment."""
    return [claim for claim in read_claims() if claim.experiment == experiment]


def answer(claim: Claim, finding: Finding | None) -> tuple[str, list[dict[Any, Any]]]:
    """Return the verdict of a claim and the results behind it.

    Args:
        claim: the claim.
        finding: of its experiment or benchmark; None if there are no results.
    """
    if claim.cases:
        equal, count = equal_without_zeros()
        outcome = verdicts.REFUTED if equal == count else verdicts.UNDECIDED
        return verdicts.verdict_of([outcome]), []
    if claim.page:
        return ILLUSTRATED, []
    if not claim.test:
        return NO_RECORD, []
    if finding is None:
        return NOT_MEASURED, []
    if claim.benchmark:
        ratios = _ratios(claim, finding)
        outcomes = [row["outcome"] for row in ratios]
        return verdicts.verdict_of(outcomes) or NOT_MEASURED, ratios
    rows = {
        row["comparison"]: row for row in _rows(finding, PREDICTIONS) if row["judged"]
    }
    verdict = finding.verdicts.get(claim.name) or NOT_MEASURED
    return verdict, [rows[name] for name in claim.primaries if name in rows]


def _ratios(claim: Claim, finding: Finding) -> list[dict[Any, Any]]:
    """Return the ratios of a benchmark to the claim's peer, each with its outcome."""
    against = benchmarks.find(claim.benchmark).peers[claim.peer]

    def outcome(row: Mapping[Any, Any]) -> str:
        if row["low"] > claim.low:
            return verdicts.CONFIRMED
        return verdicts.REFUTED if row["high"] < claim.low else verdicts.UNDECIDED

    return [
        {**row, "outcome": outcome(row)}
        for row in _rows(finding, "rows")
        if row["against"] == against and row["measure"] == "ratio"
        if not row["control"] and row["processes"] >= PROCESSES
    ]


def _rows(finding: Finding, table: str) -> list[dict[Any, Any]]:
    frame = finding.tables.get(table)
    return [] if frame is None else frame.to_dict("records")


def equal_without_zeros() -> tuple[int, int]:
    """Return how many recorded norms have the bits of the norm without zeros.

    The second number counts the recorded lists of gradients that have a tensor of zeros
    and a finite norm above 0.
    """
    equal = count = 0
    for case in read_cases(GOLDEN, ["multitask_clip"]):
        if "raises" in case.expected or case.inputs.get("dtype") == "float16":
            continue
        for gradients, norm in _lists(case):
            nonzero = [gradient for gradient in gradients if gradient.any()]
            if np.isfinite(norm) and norm > 0 and len(nonzero) < len(gradients):
                _, stock = clip_by_global_norm(nonzero, float(case.inputs["clip_norm"]))
                equal += int(stock == norm)
                count += 1
    return equal, count


def _lists(case: Case) -> Iterator[tuple[list[Array], Array]]:
    """Yield the gradients of each step that are not None, with the recorded norm."""
    inputs, results = [case.inputs["gradients"]], [case.expected]
    if "steps" in case.expected:
        inputs, results = case.inputs["gradients"], case.expected["steps"]
    for values, expected in zip(inputs, results, strict=True):
        present = [array(value, "float32") for value in values if value is not None]
        yield present, array(expected["global_norm"], "float32")
