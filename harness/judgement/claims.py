"""The ledger: claims of sources and of our own, each with the comparisons that test it.

``experiments/claims.toml`` names claims and comparisons, but contains no verdict. The
verdict is computed from the results of the comparisons, by the rule in
``harness.judgement.verdicts``. A claim about time names a benchmark instead. Each of
the benchmark's ratios to one peer is confirmed if its whole interval is above the
predicted ratio, and refuted if it is below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.bench import declare as benchmarks
from harness.bench.judge import PROCESSES
from harness.declarations import declare
from harness.declarations.toml_files import Key, TomlFile
from harness.judgement import verdicts
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.norms import equal_without_zeros

__all__ = [
    "NOT_MEASURED",
    "NO_RECORD",
    "NO_VERDICT",
    "Claim",
    "answer",
    "claims_of",
    "read_claims",
]

NO_RECORD = "not tested"
"""Shown instead of a verdict: no experiment tests the claim."""

NOT_MEASURED = "not measured yet"
"""Shown instead of a verdict: an experiment tests the claim, but has no results."""

NO_VERDICT = "illustration"
"""Shown instead of a verdict: the claim restates arithmetic."""

NORMS = "multitask_clip"
"""The family of recorded cases that test the claim about the global norm."""

OF = ("source", "ours")
REQUIRED = ("name", "of", "claim", "source", "figure")
OF_EXPERIMENT = ("experiment", "primaries", "picture")
OF_BENCHMARK = ("benchmark", "peer", "low", "picture")
KEYS = (*REQUIRED, *OF_EXPERIMENT, *OF_BENCHMARK[:-1], "page", "cases", "missing")


@dataclass(frozen=True)
class Claim:
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
        picture: name of a figure of the experiment or benchmark.
        page: the tool's page, with an anchor, that shows the claim by a short script.
        cases: the family of recorded cases that test the claim, on this page.
        missing: what would answer the claim, if neither tests it.
    """

    name: str
    of: Literal["source", "ours"]
    claim: str
    source: str
    figure: str
    experiment: str = ""
    primaries: Sequence[str] = ()
    benchmark: str = ""
    peer: str = ""
    low: float = 0.0
    picture: str = ""
    page: str = ""
    cases: str = ""
    missing: str = ""

    @property
    def test(self) -> str:
        """The name of the experiment or benchmark; empty if there is none."""
        return self.experiment or self.benchmark


def answer(claim: Claim, finding: Finding | None) -> tuple[str, list[dict[Any, Any]]]:
    """Return the verdict of a claim and the results behind it.

    Args:
        claim: the claim.
        finding: of its experiment or benchmark; None if there are no results.
    """
    if claim.cases:
        equal, count = equal_without_zeros()
        outcome = verdicts.REFUTED if equal == count else verdicts.UNDECIDED
        return verdicts.verdict_of([outcome]) or NOT_MEASURED, []
    if claim.page:
        return NO_VERDICT, []
    if not claim.test:
        return NO_RECORD, []
    if finding is None:
        return NOT_MEASURED, []
    if claim.benchmark:
        ratios = _ratios(claim, finding)
        outcomes = [row["outcome"] for row in ratios]
        return verdicts.verdict_of(outcomes) or NOT_MEASURED, ratios
    rows = _judged(finding)
    verdict = finding.verdicts.get(claim.name) or NOT_MEASURED
    return verdict, [rows[name] for name in claim.primaries if name in rows]


def claims_of(experiment: str) -> list[Claim]:
    """Return the claims that an experiment tests; none for a user's own experiment.

    Only these are checked, so that an error in another experiment's file stops nothing.
    """
    file = TomlFile(declare.CLAIMS)
    return [
        _claim(file, ("claim", k))
        for k, table in enumerate(file.content["claim"])
        if table.get("experiment") == experiment
    ]


def _ratios(claim: Claim, finding: Finding) -> list[dict[Any, Any]]:
    """Return the ratios of a benchmark to the claim's peer, each with its outcome."""
    against = benchmarks.find(claim.benchmark).peers[claim.peer]
    frame = finding.tables.get("rows")
    rows = [] if frame is None else frame.to_dict("records")
    return [
        {**row, "outcome": _outcome(row, claim.low)}
        for row in rows
        if row["against"] == against and row["measure"] == "ratio"
        if not row["control"] and row["processes"] >= PROCESSES
    ]


def _outcome(row: Mapping[Any, Any], low: float) -> str:
    if row["low"] > low:
        return verdicts.CONFIRMED
    return verdicts.REFUTED if row["high"] < low else verdicts.UNDECIDED


def _judged(finding: Finding) -> Mapping[str, dict[Any, Any]]:
    """Return the judged subject's results: name of a comparison -> its row."""
    frame = finding.tables.get(PREDICTIONS)
    rows = [] if frame is None else frame.to_dict("records")
    return {row["comparison"]: row for row in rows if row["judged"]}


def read_claims(path: Path = declare.CLAIMS) -> list[Claim]:
    """Read and check the claims.

    Raises:
        HarnessError: a claim uses an unknown name. The sentence has the file, the line,
            the key, the allowed values and the remedy.
    """
    file = TomlFile(path)
    file.require_keys((), ["claim"], required=["claim"])
    file.require(
        isinstance(file.content["claim"], list), ("claim",), "[[claim]] tables"
    )
    claims: list[Claim] = []
    for k in range(len(file.content["claim"])):
        claim = _claim(file, ("claim", k))
        if claim.name in [other.name for other in claims]:
            key = ("claim", k, "name")
            raise file.error(key, "a name that no claim above it has", repr(claim.name))
        claims.append(claim)
    return claims


def _claim(file: TomlFile, key: Key) -> Claim:
    file.require_keys(key, KEYS, required=REQUIRED)
    table = file.value(key)
    required = _required(table)
    file.require_keys(key, (*REQUIRED, *required), required=required)
    for name in table.keys() - {"primaries", "low"}:
        text = isinstance(table[name], str) and bool(table[name].strip())
        file.require(text, (*key, name), "a text")
    if table["of"] not in OF:
        raise file.unknown((*key, "of"), "whose claim", OF)
    if required == OF_EXPERIMENT:
        _require_primaries(file, key)
    if required == OF_BENCHMARK:
        _require_peer(file, key)
    if table.get("cases", NORMS) != NORMS:
        raise file.unknown((*key, "cases"), "family", [NORMS])
    return Claim(**table)


def _required(table: Mapping[str, Any]) -> Sequence[str]:
    """Return the keys that a claim needs, depending on what tests it."""
    if "experiment" in table:
        return OF_EXPERIMENT
    if "benchmark" in table:
        return OF_BENCHMARK
    if "page" in table:
        return ("page", "cases") if "cases" in table else ("page",)
    return ("missing",)


def _require_peer(file: TomlFile, key: Key) -> None:
    table = file.value(key)
    if table["benchmark"] not in benchmarks.known():
        raise file.unknown((*key, "benchmark"), "benchmark", benchmarks.known())
    benchmark = benchmarks.find(table["benchmark"])
    peers = {row.peer for row in benchmark.rows if row.measure == "ratio" and row.peer}
    if table["peer"] not in peers:
        raise file.unknown((*key, "peer"), f"peer of {benchmark.name}", sorted(peers))
    number = type(table["low"]) in (int, float) and table["low"] > 0
    file.require(number, (*key, "low"), "a ratio > 0")


def _require_primaries(file: TomlFile, key: Key) -> None:
    table = file.value(key)
    if table["experiment"] not in declare.known():
        raise file.unknown((*key, "experiment"), "experiment", declare.known())
    experiment = declare.find(table["experiment"])
    names = [primary.name for primary in experiment.primaries]
    listed = isinstance(table["primaries"], list)
    file.require(listed, (*key, "primaries"), "a list of names")
    for k, name in enumerate(table["primaries"]):
        if name not in names:
            kind = f"comparison of {experiment.name}"
            raise file.unknown((*key, "primaries", k), kind, names)
    if not table["primaries"]:
        expected = f"comparisons of {experiment.name}"
        raise file.error((*key, "primaries"), expected, "none")
