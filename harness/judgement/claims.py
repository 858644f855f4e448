"""The ledger: claims of sources and of our own, each with the comparisons that test it.

``experiments/claims.toml`` names claims and comparisons. The verdict is computed from
the results of the comparisons, by the rule in ``harness.judgement.verdicts``. A claim
about time names a benchmark instead. It predicts that each of the benchmark's ratios to
one peer is above 1: this is confirmed if the whole interval is, and refuted if the
interval is below 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from harness.bench import declare as benchmarks
from harness.bench.compare import PROCESSES
from harness.declarations import declare
from harness.declarations.toml_files import Table, Text, TomlFile, one_of
from harness.judgement import verdicts
from harness.judgement.finding import PREDICTIONS, Finding

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
        page: the tool's page, with an anchor, that shows the claim by a short script.
        shown: with a page, the verdict that a test proves, if it is no illustration.
        note: what that test finds; without any of these, what would answer the claim.
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
    page: Text = ""
    shown: Text = ILLUSTRATED
    note: Text = ""

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
    if claim.page:
        return claim.shown, []
    if not claim.test:
        return NO_RECORD, []
    if finding is None:
        return NOT_MEASURED, []
    if claim.benchmark:
        ratios = _ratios(claim, finding)
        outcomes = [row["outcome"] for row in ratios]
        return verdicts.verdict_of(outcomes) or NOT_MEASURED, ratios
    table = finding.tables.get(PREDICTIONS)
    rows = [] if table is None else table.to_dict("records")
    by_name = {row["comparison"]: row for row in rows if row["judged"]}
    verdict = finding.verdicts.get(claim.name) or NOT_MEASURED
    return verdict, [by_name[name] for name in claim.primaries if name in by_name]


def _ratios(claim: Claim, finding: Finding) -> list[dict[Any, Any]]:
    """Return the ratios of a benchmark to the claim's peer, each with its outcome."""
    against = benchmarks.find(claim.benchmark).peers[claim.peer]

    def outcome(row: Mapping[Any, Any]) -> str:
        if row["low"] > 1:
            return verdicts.CONFIRMED
        return verdicts.REFUTED if row["high"] < 1 else verdicts.UNDECIDED

    return [
        {**row, "outcome": outcome(row)}
        for row in finding.tables["rows"].to_dict("records")
        if row["against"] == against and row["measure"] == "ratio"
        if not row["control"] and row["processes"] >= PROCESSES
    ]
