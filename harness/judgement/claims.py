"""The ledger: claims of sources and of our own, each with the comparisons that test it.

``experiments/claims.toml`` names claims and comparisons, but contains no verdict. The
verdict is computed from the results of the comparisons, by the rule in
``harness.judgement.verdicts``. A claim about time names a benchmark instead. Each of
the benchmark's ratios to one peer is confirmed if its whole interval is above the
predicted ratio, and refuted if it is below.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import model_validator

from harness.bench import declare as benchmarks
from harness.bench.judge import PROCESSES
from harness.declarations import declare
from harness.declarations.toml_files import (
    Positive,
    Table,
    Text,
    TomlFile,
    one_of,
    wrong,
)
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.norms import equal_without_zeros
from lockstep.errors import sentence, unknown_name

NO_RECORD = "not tested"
"""Shown instead of a verdict: no experiment tests the claim."""

NOT_MEASURED = "not measured yet"
"""Shown instead of a verdict: an experiment tests the claim, but has no results."""

NO_VERDICT = "illustration"
"""Shown instead of a verdict: the claim restates arithmetic."""

NORMS = "multitask_clip"
"""The family of recorded cases that test the claim about the global norm."""

NEEDS: Mapping[str, set[str]] = {
    "experiment": {"experiment", "primaries", "picture"},
    "benchmark": {"benchmark", "peer", "low", "picture"},
    "page": {"page"},
    "missing": {"missing"},
}
"""What tests a claim -> the keys that this needs."""


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
        picture: name of a figure of the experiment or benchmark.
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
    picture: Text = ""
    page: Text = ""
    cases: Annotated[str, one_of("family", [NORMS])] = ""
    missing: Text = ""

    @model_validator(mode="after")
    def _require_test(self) -> Self:
        """Require what names the test, one of four, with the keys that it needs."""
        texts = {"name", "of", "claim", "source", "figure"}
        own = next(filter(self.model_fields_set.__contains__, NEEDS), "missing")
        needed = NEEDS[own]
        for name in sorted(needed - self.model_fields_set):
            raise wrong(f"expected a key of this name beside {own}, got none.", name)
        allowed = needed | ({"cases"} if own == "page" else set())
        for name in sorted(self.model_fields_set - texts - allowed):
            raise wrong(f"expected no such key beside {own}; leave it out.", name)
        if self.experiment:
            self._require_primaries()
        if self.benchmark:
            self._require_peer()
        return self

    def _require_primaries(self) -> None:
        if self.experiment not in declare.known():
            text = str(unknown_name("experiment", self.experiment, declare.known()))
            raise wrong(text, "experiment")
        names = [primary.name for primary in declare.find(self.experiment).primaries]
        kind = f"comparison of {self.experiment}"
        for place, name in enumerate(self.primaries):
            if name not in names:
                raise wrong(str(unknown_name(kind, name, names)), "primaries", place)
        if not self.primaries:
            text = f"expected comparisons of {self.experiment}, got none."
            raise wrong(text, "primaries")

    def _require_peer(self) -> None:
        known = benchmarks.known()
        if self.benchmark not in known:
            text = str(unknown_name("benchmark", self.benchmark, known))
            raise wrong(text, "benchmark")
        rows = benchmarks.find(self.benchmark).rows
        peers = sorted({row.peer for row in rows if row.measure == "ratio"} - {""})
        if self.peer not in peers:
            kind = f"peer of {self.benchmark}"
            raise wrong(str(unknown_name(kind, self.peer, peers)), "peer")

    @property
    def test(self) -> str:
        """The name of the experiment or benchmark; empty if there is none."""
        return self.experiment or self.benchmark


class Claims(Table):
    """The content of ``claims.toml``."""

    claim: tuple[Claim, ...]


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
        file.checked(Claim, table, "claim", place)
        for place, table in enumerate(file.content["claim"])
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
    claims = file.checked(Claims, file.content).claim
    names = [claim.name for claim in claims]
    for place, name in enumerate(names):
        if name in names[:place]:
            line = file.line("claim", place, "name")
            expected = "a name that no claim above it has"
            where = f"{file.name}, line {line}: claim[{place}].name"
            raise HarnessError(sentence(where, expected, repr(name), "change it there"))
    return list(claims)
